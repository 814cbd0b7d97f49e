/**
 * An HTTP interface to a model, in the words of OpenAI's API, for programs of one's own:
 *
 * ```ts
 * import { load } from "@forge/forge";
 * import { createHandler } from "@forge/forge/serve";
 *
 * await using model = await load("path/to/model");
 * await Deno.serve({ hostname: "127.0.0.1", port: 8080 }, createHandler(model)).finished;
 * ```
 *
 * `forge serve` is this handler and a port. Clients that go away are known by the request's signal; Deno
 * remarks once on what that signal used to mean, unless it is started with
 * `--unstable-no-legacy-abort` or deno.json has `"unstable": ["no-legacy-abort"]`.
 *
 * @module
 */
export { createHandler, type Handler } from "./handler.ts";
export type { ServeOptions } from "./options.ts";

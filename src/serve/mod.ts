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
 * `forge serve` is this handler and a port.
 *
 * @module
 */
export { createHandler, type Handler } from "./handler.ts";
export type { ServeOptions } from "./options.ts";

/**
 * Serves a model over HTTP with OpenAI's API, from your own program:
 *
 * ```ts
 * import { load } from "@forge/forge";
 * import { createHandler } from "@forge/forge/serve";
 *
 * await using model = await load("path/to/model");
 * await Deno.serve({ hostname: "127.0.0.1", port: 8080 }, createHandler(model)).finished;
 * ```
 *
 * `forge serve` is this handler on a port. The handler uses the request's signal to detect clients
 * that leave. Deno prints one warning about that signal unless it runs with
 * `--unstable-no-legacy-abort` or deno.json has `"unstable": ["no-legacy-abort"]`.
 *
 * @module
 */
export { createHandler, type Handler } from "./handler.ts";
export {
  type ModelSource,
  type OfferedModels,
  offerModels,
  type PoolOptions,
} from "./model_pool.ts";
export type { ServeOptions } from "./options.ts";

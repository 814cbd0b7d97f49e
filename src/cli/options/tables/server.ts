/** Options of `forge serve`. */
import { DEFAULT_PARALLEL, MAX_COUNT, MAX_PARALLEL } from "../../../engine/limits.ts";
import { DEFAULT_QUEUE } from "../../../serve/options.ts";
import type { OptionSpec } from "../types.ts";

export const DEFAULT_HOST = "127.0.0.1";
export const DEFAULT_PORT = 8080;

/** Environment variable with the API key, used without --api-key. */
export const API_KEY_VARIABLE = "FORGE_API_KEY";

/** Environment variable that makes the end of stdin stop the server, if it is 1. */
export const STDIN_VARIABLE = "FORGE_STOP_WITH_STDIN";

/** Default number of models in memory at a time. */
export const DEFAULT_MODELS = 3;

export const SERVER_OPTIONS = {
  serveModel: {
    flags: "-m, --model",
    kind: "list",
    metavar: "MODEL",
    group: "Model",
    help: "model folder, .gguf file, hub name or short name; given again, one server has several",
    defaultText: "the bundled demo model",
  },
  modelsDir: {
    flags: "--models-dir",
    kind: "text",
    metavar: "DIR",
    group: "Server",
    help: "serve every model of a folder, by the names of its files and folders",
  },
  maxModels: {
    flags: "--max-models",
    kind: "integer",
    metavar: "N",
    min: 1,
    max: MAX_COUNT,
    group: "Server",
    help: "models in memory at a time; the least recently used makes room",
    defaultText: `${DEFAULT_MODELS}`,
  },
  keepAlive: {
    flags: "--keep-alive",
    kind: "text",
    metavar: "TIME",
    group: "Server",
    help: "time for which an unused model stays loaded, such as 5m; negative for ever",
    defaultText: "until another model needs its memory",
  },
  host: {
    flags: "--host",
    kind: "text",
    metavar: "ADDRESS",
    group: "Server",
    help: "address to listen on; 0.0.0.0 for all addresses of the machine",
    defaultText: DEFAULT_HOST,
  },
  port: {
    flags: "--port",
    kind: "integer",
    metavar: "N",
    min: 0,
    max: 65535,
    group: "Server",
    help: "port to listen on; 0 chooses a free one",
    defaultText: `${DEFAULT_PORT}`,
  },
  serveParallel: {
    flags: "--parallel",
    kind: "integer",
    metavar: "N",
    min: 1,
    max: MAX_PARALLEL,
    group: "Server",
    help: "answers computed at a time",
    defaultText: `${DEFAULT_PARALLEL}`,
  },
  maxQueue: {
    flags: "--max-queue",
    kind: "integer",
    metavar: "N",
    min: 0,
    max: MAX_COUNT,
    group: "Server",
    help: "limit of queued answers; more requests get status 503",
    defaultText: `${DEFAULT_QUEUE}`,
  },
  alias: {
    flags: "--alias",
    kind: "list",
    metavar: "NAME",
    group: "Server",
    help: "name of a single model for clients; may be given more than once",
    defaultText: "the name of its file or folder",
  },
  apiKey: {
    flags: "--api-key",
    kind: "text",
    metavar: "KEY",
    group: "Server",
    help: "require this key from clients",
    defaultText: `$${API_KEY_VARIABLE}`,
  },
  cors: {
    flags: "--cors",
    kind: "text",
    metavar: "ORIGIN",
    group: "Server",
    help: "allow web pages of this origin, such as https://example.com; * for all",
  },
} as const satisfies Record<string, OptionSpec>;

/** The options of `forge serve` alone. */
import { DEFAULT_PARALLEL, MAX_COUNT, MAX_PARALLEL } from "../../../engine/limits.ts";
import { DEFAULT_QUEUE } from "../../../serve/options.ts";
import type { OptionSpec } from "../types.ts";

export const DEFAULT_HOST = "127.0.0.1";
export const DEFAULT_PORT = 8080;

/** The variable that names the API key where no option does. */
export const API_KEY_VARIABLE = "FORGE_API_KEY";

export const SERVER_OPTIONS = {
  host: {
    flags: "--host",
    kind: "text",
    metavar: "ADDRESS",
    group: "Server",
    help: "listen here; 0.0.0.0 is every address of the machine",
    otherwise: DEFAULT_HOST,
  },
  port: {
    flags: "--port",
    kind: "integer",
    metavar: "N",
    min: 0,
    max: 65535,
    group: "Server",
    help: "listen on this port; 0 takes a free one",
    otherwise: `${DEFAULT_PORT}`,
  },
  serveParallel: {
    flags: "--parallel",
    kind: "integer",
    metavar: "N",
    min: 1,
    max: MAX_PARALLEL,
    group: "Server",
    help: "answers computed at a time",
    otherwise: `${DEFAULT_PARALLEL}`,
  },
  maxQueue: {
    flags: "--max-queue",
    kind: "integer",
    metavar: "N",
    min: 0,
    max: MAX_COUNT,
    group: "Server",
    help: "answers that may wait for their turn; more are refused with status 503",
    otherwise: `${DEFAULT_QUEUE}`,
  },
  alias: {
    flags: "--alias",
    kind: "list",
    metavar: "NAME",
    group: "Server",
    help: "what clients call the model; may be given more than once",
    otherwise: "the name of its file or folder",
  },
  apiKey: {
    flags: "--api-key",
    kind: "text",
    metavar: "KEY",
    group: "Server",
    help: "answer only clients that send this key",
    otherwise: `$${API_KEY_VARIABLE}`,
  },
  cors: {
    flags: "--cors",
    kind: "text",
    metavar: "ORIGIN",
    group: "Server",
    help: "let web pages of this origin use the server, as https://example.com; * for all",
  },
} as const satisfies Record<string, OptionSpec>;

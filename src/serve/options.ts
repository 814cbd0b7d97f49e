import { ForgeError } from "../errors.ts";
import { MAX_COUNT } from "../engine/limits.ts";
import {
  BOOLEAN,
  checkOptions as checkNames,
  checkWholeNumber,
  FUNCTION,
  type OptionChecks,
  STRING,
  STRINGS,
} from "../formats/arguments.ts";
import { GENERATE_OPTIONS, type GenerateOptions } from "../engine/request/options.ts";
import { quote } from "../formats/quote.ts";

/** Default number of queued answers, in addition to those being computed. */
export const DEFAULT_QUEUE = 256;

/** Options of {@linkcode createHandler}. Every member has a default. */
export interface ServeOptions {
  /**
   * Names of a single model. Requests for another name are rejected; responses use the first. The
   * models of a {@linkcode offerModels} have their own.
   *
   * @default the name of its file or folder
   */
  readonly names?: readonly string[] | undefined;
  /** Key that clients must send as `Authorization: Bearer KEY`. @default no key */
  readonly apiKey?: string | undefined;
  /**
   * Origin whose web pages may use the server, such as `https://example.com`, or `*` for all.
   *
   * @default none
   */
  readonly corsOrigin?: string | undefined;
  /**
   * True if requests may be addressed to any host. If false, and without an API key, requests must
   * name this machine (`localhost`, `127.0.0.1`, `[::1]`). That stops web pages whose domain name
   * resolves to this machine (DNS rebinding).
   *
   * @default false
   */
  readonly anyHost?: boolean | undefined;
  /** Options of generations with a single model where a request sets none. */
  readonly defaults?: GenerateOptions | undefined;
  /** Limit of answers in progress, computed or queued; more are rejected. @default 288 */
  readonly maxAnswers?: number | undefined;
  /** Receives errors of forge itself or of the device. @default console.error */
  readonly onError?: ((error: unknown) => void) | undefined;
}

const SERVE_OPTIONS: OptionChecks<ServeOptions> = {
  names: STRINGS,
  apiKey: STRING,
  corsOrigin: STRING,
  anyHost: BOOLEAN,
  defaults: undefined,
  maxAnswers: undefined,
  onError: FUNCTION,
};

/** @throws {ForgeError} `usage`, naming the option */
export function checkOptions(options: ServeOptions): void {
  checkNames("createHandler", options, SERVE_OPTIONS);
  checkNames("createHandler's defaults", options.defaults ?? {}, GENERATE_OPTIONS);
  const { names, apiKey, corsOrigin, maxAnswers } = options;
  if (names?.length === 0 || names?.includes("")) {
    throw new ForgeError(
      "usage",
      "a name of the model is empty; valid is a name of at least one character",
    );
  }
  if (apiKey !== undefined && !/^[\x21-\x7e]+$/.test(apiKey)) {
    throw new ForgeError(
      "usage",
      "the API key is not valid; valid is at least one visible ASCII character, without spaces",
    );
  }
  if (corsOrigin !== undefined && corsOrigin !== "*" && !isOrigin(corsOrigin)) {
    throw new ForgeError(
      "usage",
      `the CORS origin is ${
        quote(corsOrigin)
      }; valid is * or an origin such as https://example.com`,
    );
  }
  if (maxAnswers !== undefined) checkWholeNumber("maxAnswers", maxAnswers, 1, MAX_COUNT);
}

function isOrigin(text: string): boolean {
  return URL.canParse(text) && new URL(text).origin === text;
}

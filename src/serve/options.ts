import { ForgeError } from "../errors.ts";
import { MAX_COUNT } from "../engine/limits.ts";
import {
  checkOptions as checkNames,
  checkWholeNumber,
  GENERATE_OPTIONS,
  type GenerateOptions,
  type OptionChecks,
} from "../engine/request/options.ts";
import { quote } from "../formats/quote.ts";

/** Answers that may wait for their turn beside those that are computed. */
export const DEFAULT_QUEUE = 256;

/** How a handler serves a model. Every member has a default. */
export interface ServeOptions {
  /**
   * What the model is called; a request that names another is refused. The first is its name in answers.
   *
   * @default the name of its file or folder
   */
  readonly names?: readonly string[] | undefined;
  /** What clients must send as `Authorization: Bearer KEY`. @default nothing */
  readonly apiKey?: string | undefined;
  /**
   * The origin whose pages may read answers in a browser, such as `https://example.com`, or `*` for all.
   *
   * @default none
   */
  readonly corsOrigin?: string | undefined;
  /**
   * Whether requests may be addressed to any host. Otherwise, unless there is an API key, they must name
   * this machine (`localhost`, `127.0.0.1`, `[::1]`), so that no web page reaches a server that only
   * programs on this machine are meant to by letting a name of its own point here.
   *
   * @default false
   */
  readonly anyHost?: boolean | undefined;
  /** Options of answers where a request sets none. */
  readonly defaults?: GenerateOptions | undefined;
  /** How many answers are computed or wait for their turn at a time; more are refused. @default 288 */
  readonly maxAnswers?: number | undefined;
  /** Told of errors that are forge's own fault or the device's. @default console.error */
  readonly onError?: ((error: unknown) => void) | undefined;
}

const SERVE_OPTIONS: OptionChecks<ServeOptions> = {
  names: undefined,
  apiKey: undefined,
  corsOrigin: undefined,
  anyHost: undefined,
  defaults: undefined,
  maxAnswers: undefined,
  onError: undefined,
};

/** @throws {ForgeError} `usage`, naming the option */
export function checkOptions(options: ServeOptions): void {
  checkNames("createHandler", options, SERVE_OPTIONS);
  checkNames("createHandler's defaults", options.defaults ?? {}, GENERATE_OPTIONS);
  const { names, apiKey, corsOrigin, maxAnswers } = options;
  if (names?.length === 0 || names?.includes("")) {
    throw new ForgeError(
      "usage",
      "a name of the model is empty; valid are names of a character or more",
    );
  }
  if (apiKey !== undefined && !/^[\x21-\x7e]+$/.test(apiKey)) {
    throw new ForgeError("usage", "the API key must be of visible ASCII characters, at least one");
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

/** Keys that OpenAI's endpoints share. */
import type { JsonObject, JsonValue } from "../../formats/json.ts";
import { FIELD_ALIASES } from "../../requests/options.ts";
import {
  checkKeys,
  invalid,
  isGiven,
  readBoolean,
  readObject,
  RequestError,
} from "../../requests/values.ts";

/** Keys that have no effect on an answer. `keep_alive` is read where the model is chosen. */
const IGNORED = [
  "keep_alive",
  "user",
  "metadata",
  "safety_identifier",
  "prompt_cache_key",
  "prompt_cache_retention",
  "prompt_cache_options",
  // Nothing is stored, and prompts are always cached.
  "store",
  "cache_prompt",
  // A wish about style.
  "verbosity",
  // A text that the answer may resemble: forge drafts from the prompt by itself.
  "prediction",
];

/** Keys of unsupported features, and the values that turn each off. */
const NEUTRAL: Readonly<Record<string, readonly JsonValue[]>> = {
  modalities: [["text"]],
  service_tier: ["auto", "default"],
  echo: [false],
  best_of: [1],
};

const ALIASES = {
  ...FIELD_ALIASES,
  functions: "tools",
  function_call: "tool_choice",
};

/** Options of a stream. */
export interface StreamOptions {
  /** True if the last event reports the number of tokens. */
  readonly includeUsage: boolean;
}

/**
 * Rejects keys that are unknown, and unsupported keys whose value asks for something.
 *
 * @param known keys of the endpoint
 * @throws {RequestError}
 */
export function checkFields(body: JsonObject, known: readonly string[]): void {
  const relevant: JsonObject = {};
  for (const [name, value] of Object.entries(body)) {
    if (IGNORED.includes(name)) continue;
    const neutral = Object.hasOwn(NEUTRAL, name) ? NEUTRAL[name]! : undefined;
    if (neutral === undefined || known.includes(name)) {
      relevant[name] = value;
    } else if (isGiven(value) && !neutral.some((valid) => isEqual(valid, value))) {
      throw invalid(name, value, neutral.map((valid) => JSON.stringify(valid)).join(" or "));
    }
  }
  checkKeys(relevant, known, ALIASES);
}

function isEqual(a: JsonValue, b: JsonValue): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

/** Reads `stream` and `stream_options`; returns `undefined` for a whole response. */
export function readStream({ stream, stream_options }: JsonObject): StreamOptions | undefined {
  const isStream = isGiven(stream) && readBoolean(stream, "stream");
  if (!isGiven(stream_options)) return isStream ? { includeUsage: false } : undefined;
  if (!isStream) throw new RequestError('stream_options needs "stream": true', "stream_options");
  const options = readObject(stream_options, "stream_options");
  // Obfuscation pads the events of a network that is listened to.
  checkKeys(options, ["include_usage", "include_obfuscation"]);
  const { include_usage } = options;
  return {
    includeUsage: isGiven(include_usage) &&
      readBoolean(include_usage, "stream_options.include_usage"),
  };
}

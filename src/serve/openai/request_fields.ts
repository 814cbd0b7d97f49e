/** Keys that the endpoints which generate have in common. */
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
import type { StreamOptions } from "../answer.ts";

/** Keys that say nothing about the answer. */
const NOTES = ["user", "metadata", "safety_identifier", "prompt_cache_key"];

/** Keys of features that are not offered, and the values that ask for none. */
const NEUTRAL: Readonly<Record<string, readonly JsonValue[]>> = {
  store: [false],
  service_tier: ["auto", "default"],
  echo: [false],
  best_of: [1],
  suffix: [""],
};

const ALIASES = {
  ...FIELD_ALIASES,
  functions: "tools",
  function_call: "tool_choice",
};

/**
 * Refuses keys that would not be heeded. Those whose value asks for nothing may be there.
 *
 * @param known keys of the endpoint
 * @throws {RequestError}
 */
export function checkFields(body: JsonObject, known: readonly string[]): void {
  const meant: JsonObject = {};
  for (const [name, value] of Object.entries(body)) {
    if (NOTES.includes(name)) continue;
    const neutral = Object.hasOwn(NEUTRAL, name) ? NEUTRAL[name]! : undefined;
    if (neutral === undefined || known.includes(name)) {
      meant[name] = value;
    } else if (isGiven(value) && !neutral.includes(value)) {
      throw invalid(name, value, neutral.map((valid) => JSON.stringify(valid)).join(" or "));
    }
  }
  checkKeys(meant, known, ALIASES);
}

/** Whether the answer is a stream, and of what kind. @throws {RequestError} */
export function readStream({ stream, stream_options }: JsonObject): StreamOptions | undefined {
  const isStream = isGiven(stream) && readBoolean(stream, "stream");
  if (!isGiven(stream_options)) return isStream ? { includeUsage: false } : undefined;
  if (!isStream) throw new RequestError('stream_options needs "stream": true', "stream_options");
  const options = readObject(stream_options, "stream_options");
  checkKeys(options, ["include_usage"]);
  const { include_usage } = options;
  return {
    includeUsage: isGiven(include_usage) &&
      readBoolean(include_usage, "stream_options.include_usage"),
  };
}

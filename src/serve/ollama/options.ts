/** Options of Ollama's requests, translated for the engine. */
import type { GenerateOptions } from "../../engine/request/options.ts";
import { SAMPLING_FIELDS } from "../../engine/request/sampling.ts";
import type { JsonObject, JsonValue } from "../../formats/json.ts";
import { readOptions } from "../../requests/options.ts";
import { quote } from "../../formats/quote.ts";
import {
  checkKeys,
  invalid,
  isGiven,
  readBoolean,
  readObject,
  RequestError,
} from "../../requests/values.ts";
import { isHarmony } from "../chat/harmony.ts";
import { findMarks, withEffort } from "../chat/reasoning.ts";
import type { Service } from "../service.ts";

/** Names in OpenAI's or vLLM's API of the keys of `options`. */
const SAMPLING: Readonly<Record<string, string>> = {
  num_predict: "max_tokens",
  stop: "stop",
  dry_sequence_breakers: "dry_sequence_breakers",
  ...Object.fromEntries(Object.keys(SAMPLING_FIELDS).map((name) => [name, name])),
};

/** Values that mean the default. */
const UNSET: Readonly<Record<string, readonly JsonValue[]>> = {
  num_predict: [-1, -2],
  seed: [-1],
};

/** Keys that configure loading. They are ignored, since the model is loaded. */
const LOADING = [
  ...["num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "numa"],
  ...["low_vram", "use_mmap", "use_mlock", "vocab_only", "f16_kv"],
];

/** Keys of unsupported samplers, and the values that turn each off. */
const NEUTRAL: Readonly<Record<string, readonly JsonValue[]>> = {
  tfs_z: [1],
  penalize_newline: [true],
};

/** Settings of a generation, apart from its prompt. */
export interface Settings {
  readonly options: GenerateOptions;
  readonly isStream: boolean;
}

/**
 * Reads `options`, `format`, `think` and `stream`.
 *
 * @throws {RequestError} naming the key and the valid values
 */
export function readSettings({ model, name, defaults }: Service, body: JsonObject): Settings {
  const { n: _, ...options } = readOptions({
    ...samplingOf(body.options),
    ...constraintOf(body.format),
  }, defaults);
  const { chatTemplate } = model.checkpoint;
  const thinks = findMarks(chatTemplate, model.tokenizer) !== undefined ||
    isHarmony(chatTemplate);
  const effort = effortOf(body.think, thinks, name);
  return {
    options: withEffort(options, effort, chatTemplate, "think"),
    // As in Ollama, the response is a stream by default.
    isStream: !isGiven(body.stream) || readBoolean(body.stream, "stream"),
  };
}

function samplingOf(value: JsonValue | undefined): JsonObject {
  if (!isGiven(value)) return {};
  const options = readObject(value, "options");
  checkKeys(options, [...Object.keys(SAMPLING), ...LOADING, ...Object.keys(NEUTRAL)]);
  const sampling: JsonObject = {};
  for (const [name, value] of Object.entries(options)) {
    if (!isGiven(value) || LOADING.includes(name)) continue;
    const neutral = Object.hasOwn(NEUTRAL, name) ? NEUTRAL[name]! : undefined;
    if (neutral !== undefined && !neutral.includes(value)) {
      throw invalid(`options.${name}`, value, neutral.map(String).join(" or "));
    }
    if (neutral === undefined && UNSET[name]?.includes(value) !== true) {
      sampling[SAMPLING[name]!] = value;
    }
  }
  return sampling;
}

function constraintOf(format: JsonValue | undefined): JsonObject {
  if (!isGiven(format) || format === "") return {};
  if (format === "json") return { json_object: true };
  if (typeof format === "object" && !Array.isArray(format)) return { json_schema: format };
  throw invalid("format", format, '"json" or a JSON schema');
}

/**
 * @param thinks true if the model reasons at all
 * @throws {RequestError} in Ollama's words if it does not, and is asked to
 */
function effortOf(
  think: JsonValue | undefined,
  thinks: boolean,
  model: string,
): JsonValue | undefined {
  if (!isGiven(think) || (think === false && !thinks)) return undefined;
  const isEffort = ["low", "medium", "high"].some((known) => known === think);
  if ((think === true || isEffort) && !thinks) {
    throw new RequestError(`${quote(model)} does not support thinking`, "think");
  }
  if (think === true) return "medium";
  if (think === false) return "none";
  if (isEffort) return think;
  throw invalid("think", think, 'true, false, "low", "medium" or "high"');
}

/** Keys of Ollama's requests, and what they are for the engine. */
import type { GenerateOptions } from "../../engine/request/options.ts";
import type { JsonObject, JsonValue } from "../../formats/json.ts";
import { readOptions } from "../../requests/options.ts";
import { checkKeys, invalid, isGiven, readBoolean, readObject } from "../../requests/values.ts";
import { findMarks } from "../chat/reasoning.ts";
import { effortVariables } from "../chat/reasoning_effort.ts";
import type { Service } from "../service.ts";

/** Keys of `options`, by the names that OpenAI's API and vLLM's give them. */
const SAMPLING: Readonly<Record<string, string>> = {
  num_predict: "max_tokens",
  seed: "seed",
  temperature: "temperature",
  top_k: "top_k",
  top_p: "top_p",
  min_p: "min_p",
  stop: "stop",
  repeat_last_n: "repeat_last_n",
  repeat_penalty: "repetition_penalty",
  presence_penalty: "presence_penalty",
  frequency_penalty: "frequency_penalty",
};

/** Values that stand for the default. */
const UNSET: Readonly<Record<string, readonly JsonValue[]>> = {
  num_predict: [-1, -2],
  seed: [-1],
};

/** Keys about how a model is loaded, which it is already. */
const LOADING = [
  ...["num_ctx", "num_batch", "num_gpu", "main_gpu", "num_thread", "num_keep", "numa"],
  ...["low_vram", "use_mmap", "use_mlock", "vocab_only", "f16_kv"],
];

/** Keys of samplers that are not offered, and the values that ask for none. */
const NEUTRAL: Readonly<Record<string, readonly JsonValue[]>> = {
  mirostat: [0],
  typical_p: [1],
  tfs_z: [1],
  penalize_newline: [true],
};

/** What a request to generate says beside its text or messages. */
export interface Asked {
  readonly options: GenerateOptions;
  readonly isStream: boolean;
}

/**
 * Reads `options`, `format`, `think` and `stream`.
 *
 * @throws {RequestError} naming the key and what is valid
 */
export function readAsked({ model, defaults }: Service, body: JsonObject): Asked {
  const { n: _, ...options } = readOptions({
    ...samplingOf(body.options),
    ...constraintOf(body.format),
  }, defaults);
  const { chatTemplate } = model.checkpoint;
  const effort = effortOf(body.think, findMarks(chatTemplate, model.tokenizer) !== undefined);
  const variables = effortVariables(effort, chatTemplate, options.templateVariables);
  return {
    options: variables === undefined ? options : { ...options, templateVariables: variables },
    // What Ollama answers is a stream unless it is asked not to be.
    isStream: !isGiven(body.stream) || readBoolean(body.stream, "stream"),
  };
}

function samplingOf(value: JsonValue | undefined): JsonObject {
  if (!isGiven(value)) return {};
  const options = readObject(value, "options");
  checkKeys(options, [...Object.keys(SAMPLING), ...LOADING, ...Object.keys(NEUTRAL)]);
  const asked: JsonObject = {};
  for (const [name, value] of Object.entries(options)) {
    if (!isGiven(value) || LOADING.includes(name)) continue;
    const neutral = Object.hasOwn(NEUTRAL, name) ? NEUTRAL[name]! : undefined;
    if (neutral !== undefined && !neutral.includes(value)) {
      throw invalid(`options.${name}`, value, neutral.map(String).join(" or "));
    }
    if (neutral === undefined && UNSET[name]?.includes(value) !== true) {
      asked[SAMPLING[name]!] = value;
    }
  }
  return asked;
}

function constraintOf(format: JsonValue | undefined): JsonObject {
  if (!isGiven(format) || format === "") return {};
  if (format === "json") return { json_object: true };
  if (typeof format === "object" && !Array.isArray(format)) return { json_schema: format };
  throw invalid("format", format, '"json" or a JSON schema');
}

/** @param thinks whether the model has thoughts at all; who has none need not be told to keep them */
function effortOf(think: JsonValue | undefined, thinks: boolean): JsonValue | undefined {
  if (!isGiven(think) || (think === false && !thinks)) return undefined;
  if (think === true) return "medium";
  if (think === false) return "none";
  if (["low", "medium", "high"].some((known) => known === think)) return think;
  throw invalid("think", think, 'true, false, "low", "medium" or "high"');
}

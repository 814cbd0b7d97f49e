/** The keys of a batch line that set options, under the names that OpenAI's and vLLM's APIs give them. */
import { SAMPLING_RANGES, type SamplingOptions } from "../engine/sampling.ts";
import { ForgeError } from "../errors.ts";
import { isJsonObject, type JsonObject, type JsonValue, kindOf } from "../formats/json.ts";
import { quote } from "../formats/quote.ts";
import type { BatchRequest, GenerateOptions, JsonSchema } from "../mod.ts";

const MAX_LOGPROBS = 20;
const MAX_COMPLETIONS = 128;

/** The options of a request, and how many completions it asks for. */
export type RequestOptions = GenerateOptions & Pick<BatchRequest, "n">;

type Read = (value: JsonValue, name: string, line: JsonObject) => RequestOptions;

const READERS: Readonly<Record<string, Read>> = {
  max_tokens: (value, name) => ({ maxTokens: number(value, name, 0, 2 ** 31 - 1, true) }),
  max_completion_tokens(value, name, line) {
    if (isGiven(line.max_tokens)) throw bad(`give ${name} or max_tokens, not both`);
    return { maxTokens: number(value, name, 0, 2 ** 31 - 1, true) };
  },
  temperature: sampling("temperature"),
  top_k: sampling("topK"),
  top_p: sampling("topP"),
  min_p: sampling("minP"),
  seed: sampling("seed"),
  presence_penalty: sampling("presencePenalty"),
  frequency_penalty: sampling("frequencyPenalty"),
  repetition_penalty: sampling("repeatPenalty"),
  repeat_last_n: sampling("repeatLastN"),
  logit_bias: (value, name) => ({ logitBias: biases(value, name) }),
  n: (value, name) => ({ n: number(value, name, 1, MAX_COMPLETIONS, true) }),
  stop: (value, name) => ({ stop: texts(value, name) }),
  logprobs(value, name, line) {
    if (typeof value === "boolean") {
      return { logprobs: value ? topLogprobs(line) : undefined };
    }
    return { logprobs: number(value, name, 0, MAX_LOGPROBS, true) };
  },
  top_logprobs(_value, name, line) {
    if (line.logprobs !== true) throw bad(`${name} needs "logprobs": true`);
    return { logprobs: topLogprobs(line) };
  },
  json_schema: (value, name) => ({ jsonSchema: schema(value, name) }),
  json_object: (value, name) => ({ jsonObject: boolean(value, name) }),
  regex: (value, name) => ({ regex: string(value, name) }),
  grammar: (value, name) => ({ grammar: string(value, name) }),
  response_format: (value, name) => responseFormat(object(value, name), name),
  system: (value, name) => ({ system: string(value, name) }),
  raw: (value, name) => ({ raw: boolean(value, name) }),
  chat_template_kwargs: (value, name) => ({ templateVariables: object(value, name) }),
};

/** The keys that set options. */
export const OPTION_FIELDS: readonly string[] = Object.keys(READERS);

/** What other programs call them. */
export const FIELD_ALIASES: Readonly<Record<string, string>> = {
  temp: "temperature",
  n_predict: "max_tokens",
  max_new_tokens: "max_tokens",
  num_predict: "max_tokens",
  repeat_penalty: "repetition_penalty",
  stop_sequences: "stop",
  text: "prompt",
  input: "prompt",
  system_prompt: "system",
};

/**
 * The options that a line sets. `null` stands for the default, as in OpenAI's API.
 *
 * @throws {ForgeError} `bad_input`, naming the key and what is valid
 */
export function readOptions(line: JsonObject): RequestOptions {
  let options: RequestOptions = {};
  for (const [name, value] of Object.entries(line)) {
    const read = Object.hasOwn(READERS, name) ? READERS[name] : undefined;
    if (read !== undefined && isGiven(value)) options = { ...options, ...read(value, name, line) };
  }
  return options;
}

/** Whether a key is there and asks for something. */
export function isGiven(value: JsonValue | undefined): value is Exclude<JsonValue, null> {
  return value !== undefined && value !== null;
}

function sampling(option: keyof SamplingOptions): Read {
  const { min, max, integer } = SAMPLING_RANGES[option];
  return (value, name) => ({ [option]: number(value, name, min, max, integer) });
}

function topLogprobs({ top_logprobs }: JsonObject): number {
  return isGiven(top_logprobs) ? number(top_logprobs, "top_logprobs", 0, MAX_LOGPROBS, true) : 0;
}

function number(value: JsonValue, name: string, min: number, max: number, integer: boolean) {
  if (
    typeof value === "number" && value >= min && value <= max &&
    (!integer || Number.isInteger(value))
  ) return value;
  throw invalid(name, value, `${integer ? "a whole number" : "a number"} from ${min} to ${max}`);
}

function texts(value: JsonValue, name: string): readonly string[] {
  const list = Array.isArray(value) ? value : [value];
  return list.map((text) => {
    if (typeof text === "string" && text !== "") return text;
    throw invalid(name, text, "a text of at least one character, or a list of them");
  });
}

export function string(value: JsonValue, name: string): string {
  if (typeof value === "string") return value;
  throw invalid(name, value, "a text");
}

function boolean(value: JsonValue, name: string): boolean {
  if (typeof value === "boolean") return value;
  throw invalid(name, value, "true or false");
}

function schema(value: JsonValue | undefined, name: string): JsonSchema {
  if (typeof value === "boolean" || isJsonObject(value)) return value;
  throw invalid(name, value, "an object, true or false");
}

/** The constraint of OpenAI's chat API. */
function responseFormat({ type, json_schema }: JsonObject, name: string): RequestOptions {
  switch (type) {
    case "text":
      return {};
    case "json_object":
      return { jsonObject: true };
    case "json_schema": {
      const place = `${name}.json_schema`;
      if (!isJsonObject(json_schema)) throw invalid(place, json_schema, "an object with a schema");
      return { jsonSchema: schema(json_schema.schema, `${place}.schema`) };
    }
    default:
      throw invalid(`${name}.type`, type, '"text", "json_object" or "json_schema"');
  }
}

function object(value: JsonValue, name: string): JsonObject {
  if (isJsonObject(value)) return value;
  throw invalid(name, value, "an object");
}

function biases(value: JsonValue, name: string): Readonly<Record<string, number>> {
  const entries = Object.entries(object(value, name)).map(([id, bias]) => {
    if (typeof bias === "number") return [id, bias] as const;
    throw invalid(`${name}[${quote(id)}]`, bias, "a number");
  });
  return Object.fromEntries(entries);
}

export function bad(message: string): ForgeError {
  return new ForgeError("bad_input", message);
}

export function invalid(name: string, value: JsonValue | undefined, valid: string): ForgeError {
  const shown = typeof value === "string"
    ? quote(value)
    : typeof value === "number" || typeof value === "boolean"
    ? String(value)
    : kindOf(value);
  return bad(`${name} is ${shown}; valid is ${valid}`);
}

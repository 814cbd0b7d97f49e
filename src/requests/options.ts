/** Options of a request, with the keys of OpenAI's and vLLM's APIs. */
import type { BatchRequest } from "../engine/generation/batch.ts";
import type { ConstraintOptions, JsonSchema } from "../constrain/spec.ts";
import { MAX_COMPLETIONS, MAX_COUNT, MAX_LOGPROBS } from "../engine/limits.ts";
import type { AdapterChoice } from "../engine/request/adapters.ts";
import type { GenerateOptions } from "../engine/request/options.ts";
import {
  describeRange,
  isInRange,
  SAMPLING_FIELDS,
  SAMPLING_RANGES,
  type SamplingOptions,
} from "../engine/request/sampling.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../formats/json.ts";
import { quote } from "../formats/quote.ts";
import {
  checkKeys,
  invalid,
  isGiven,
  readBoolean,
  readNumber,
  readObject,
  readString,
  RequestError,
} from "./values.ts";

/** Limit of stop strings, because every token is compared with all of them. */
const MAX_STOPS = 64;
const MAX_STOP_CHARACTERS = 1000;

/** Options of a request, and its number of completions. */
type RequestOptions = GenerateOptions & Pick<BatchRequest, "n">;

type Read = (value: JsonValue, name: string, request: JsonObject) => RequestOptions;

const READERS: Readonly<Record<string, Read>> = {
  max_tokens: (value, name) => ({ maxTokens: readTokenLimit(value, name) }),
  max_completion_tokens(value, name, request) {
    if (isGiven(request.max_tokens)) {
      throw new RequestError(`give ${name} or max_tokens, not both`, name);
    }
    return { maxTokens: readTokenLimit(value, name) };
  },
  ...Object.fromEntries(
    Object.entries(SAMPLING_FIELDS).map(([field, option]) => [field, sampling(option)]),
  ),
  dry_sequence_breakers: (value, name) => ({ drySequenceBreakers: readBreakers(value, name) }),
  logit_bias: (value, name) => ({ logitBias: readBiases(value, name) }),
  n: (value, name) => ({ n: readNumber(value, name, 1, MAX_COMPLETIONS, true) }),
  stop: (value, name) => ({ stop: readStops(value, name) }),
  logprobs(value, name, request) {
    if (typeof value === "boolean") {
      return { logprobs: value ? topLogprobs(request) : undefined };
    }
    return { logprobs: readNumber(value, name, 0, MAX_LOGPROBS, true) };
  },
  top_logprobs(_value, name, request) {
    if (request.logprobs !== true) throw new RequestError(`${name} needs "logprobs": true`, name);
    return { logprobs: topLogprobs(request) };
  },
  json_schema: (value, name) => ({ jsonSchema: readSchema(value, name) }),
  json_object: (value, name) => ({ jsonObject: readBoolean(value, name) }),
  regex: (value, name) => ({ regex: readString(value, name) }),
  grammar: (value, name) => ({ grammar: readString(value, name) }),
  response_format: (value, name) => responseFormat(readObject(value, name), name),
  system: (value, name) => ({ system: readString(value, name) }),
  raw: (value, name) => ({ raw: readBoolean(value, name) }),
  lora: (value, name) => ({ lora: readAdapters(value, name) }),
  chat_template_kwargs: (value, name) => ({ templateVariables: readObject(value, name) }),
};

/** Keys that set options. */
export const OPTION_FIELDS: readonly string[] = Object.keys(READERS);

/** Keys of other programs, for the advice on an unknown key. */
export const FIELD_ALIASES: Readonly<Record<string, string>> = {
  temp: "temperature",
  n_predict: "max_tokens",
  max_new_tokens: "max_tokens",
  num_predict: "max_tokens",
  typ_p: "typical_p",
  typical: "typical_p",
  dynatemp_exp: "dynatemp_exponent",
  dry_sequence_breaker: "dry_sequence_breakers",
  stop_sequences: "stop",
  guided_json: "json_schema",
  guided_regex: "regex",
  guided_grammar: "grammar",
  text: "prompt",
  input: "prompt",
  system_prompt: "system",
};

/** Removes the default constraint, because a request's constraint replaces it. */
const NO_CONSTRAINT: Readonly<Record<keyof ConstraintOptions, undefined>> = {
  constraintScope: undefined,
  jsonSchema: undefined,
  jsonObject: undefined,
  regex: undefined,
  grammar: undefined,
};
const CONSTRAINT_FIELDS = ["json_schema", "json_object", "regex", "grammar", "response_format"];

/**
 * Reads the options of a request. As in OpenAI's API, `null` means the default.
 *
 * @param defaults options where the request sets none
 * @throws {RequestError} naming the key and the valid values
 */
export function readOptions(request: JsonObject, defaults: GenerateOptions): RequestOptions {
  const constraints = CONSTRAINT_FIELDS.filter((name) => isGiven(request[name]));
  if (constraints.length > 1) {
    throw new RequestError(`give ${constraints.join(" or ")}, not both`, constraints[1]);
  }
  let options: RequestOptions = constraints.length > 0
    ? { ...defaults, ...NO_CONSTRAINT }
    : defaults;
  for (const [name, value] of Object.entries(request)) {
    const read = Object.hasOwn(READERS, name) ? READERS[name] : undefined;
    if (read !== undefined && isGiven(value)) {
      options = { ...options, ...read(value, name, request) };
    }
  }
  return options;
}

/** Reads a limit of tokens; -1 means no limit, as in llama.cpp and Ollama. */
function readTokenLimit(value: JsonValue, name: string): number | undefined {
  return value === -1 ? undefined : readNumber(value, name, 0, MAX_COUNT, true);
}

function sampling(option: keyof SamplingOptions): Read {
  const range = SAMPLING_RANGES[option];
  return (value, name) => {
    if (!isInRange(range, value)) throw invalid(name, value, describeRange(range));
    return { [option]: value };
  };
}

function topLogprobs({ top_logprobs }: JsonObject): number {
  if (!isGiven(top_logprobs)) return 0;
  return readNumber(top_logprobs, "top_logprobs", 0, MAX_LOGPROBS, true);
}

/** Reads the list of DRY's sequence breakers, under the limits of stop strings. */
function readBreakers(value: JsonValue, name: string): readonly string[] {
  if (Array.isArray(value)) return readStops(value, name);
  throw invalid(name, value, "a list of texts");
}

function readStops(value: JsonValue, name: string): readonly string[] {
  const list = Array.isArray(value) ? value : [value];
  if (list.length > MAX_STOPS) {
    throw new RequestError(
      `${name} has ${list.length} texts; at most ${MAX_STOPS} are valid`,
      name,
    );
  }
  return list.map((text) => {
    if (typeof text !== "string" || text === "") {
      throw invalid(name, text, "a text of at least one character, or a list of them");
    }
    if (text.length <= MAX_STOP_CHARACTERS) return text;
    throw new RequestError(
      `${name} has a text of ${text.length} characters; at most ${MAX_STOP_CHARACTERS} are valid`,
      name,
    );
  });
}

function readSchema(value: JsonValue | undefined, name: string): JsonSchema {
  if (typeof value === "boolean" || isJsonObject(value)) return value;
  throw invalid(name, value, "an object, true or false");
}

/**
 * Reads the choice of adapters: the name of one, or a list as llama.cpp takes it, or with names.
 */
export function readAdapters(value: JsonValue, name: string): AdapterChoice {
  if (typeof value === "string") return value;
  const valid =
    'the name of an adapter, or a list of {"name": "…", "scale": 1} or {"id": 0, "scale": 1}';
  if (!Array.isArray(value)) throw invalid(name, value, valid);
  return value.map((item, i) => {
    const place = `${name}[${i}]`;
    const fields = readObject(item, place);
    checkKeys(fields, ["id", "name", "scale"]);
    const { id, name: own, scale } = fields;
    const adapter = own ?? id;
    if (
      (typeof adapter !== "string" && typeof adapter !== "number") || (isGiven(id) && isGiven(own))
    ) {
      throw invalid(place, item, valid);
    }
    return {
      name: adapter,
      scale: isGiven(scale) ? readNumber(scale, `${place}.scale`, -1e6, 1e6, false) : undefined,
    };
  });
}

/** Reads the constraint of OpenAI's chat API. */
function responseFormat({ type, json_schema }: JsonObject, name: string): RequestOptions {
  switch (type) {
    case "text":
      return {};
    case "json_object":
      return { jsonObject: true };
    case "json_schema": {
      const place = `${name}.json_schema`;
      if (!isJsonObject(json_schema)) throw invalid(place, json_schema, "an object with a schema");
      return { jsonSchema: readSchema(json_schema.schema, `${place}.schema`) };
    }
    default:
      throw invalid(`${name}.type`, type, '"text", "json_object" or "json_schema"');
  }
}

function readBiases(value: JsonValue, name: string): Readonly<Record<string, number>> {
  const entries = Object.entries(readObject(value, name)).map(([id, bias]) => {
    // The device computes with 32 bits, where larger numbers are infinite.
    if (typeof bias === "number" && Number.isFinite(Math.fround(bias))) return [id, bias] as const;
    throw invalid(`${name}[${quote(id)}]`, bias, "a number from -3.4e38 to 3.4e38");
  });
  return Object.fromEntries(entries);
}

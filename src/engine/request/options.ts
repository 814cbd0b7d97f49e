import type { ConstraintOptions } from "../../constrain/spec.ts";
import { ForgeError } from "../../errors.ts";
import { quote, show } from "../../formats/quote.ts";
import { nearestName } from "../../formats/suggest.ts";
import type { AdapterChoice, AdapterScale } from "./adapters.ts";
import type { Constraint } from "./constraint.ts";
import type { PromptOptions } from "./prompt.ts";
import { SAMPLING_RANGES, type SamplingOptions } from "./sampling.ts";

/** Limit of the reasoning at the beginning of an answer. */
export interface ReasoningLimit {
  /** Most tokens of reasoning; then its closing mark is appended, and the answer follows. */
  readonly most: number;
  /** Token that ends the reasoning. */
  readonly close: number;
  /** Token that begins it; `undefined` if the prompt ends inside the reasoning. */
  readonly open?: number | undefined;
}

/** Options of a generation. Every member has a default. */
export interface GenerateOptions extends SamplingOptions, PromptOptions, ConstraintOptions {
  /** Most tokens to generate. @default as many as fit the context */
  readonly maxTokens?: number | undefined;
  /** Strings that end the text; they are not part of it. */
  readonly stop?: string | readonly string[] | undefined;
  /**
   * Control tokens whose names become part of the text, such as the start of a tool call; others
   * add nothing. @default none
   */
  readonly shownTokens?: readonly number[] | undefined;
  /** Number of alternatives to report for each token, 0 to 20. @default none */
  readonly logprobs?: number | undefined;
  /**
   * Added to the logits of single tokens, by token id; -Infinity bans a token.
   * `{ "50256": -100 }`
   */
  readonly logitBias?: Readonly<Record<string, number>> | undefined;
  /**
   * Strings across which DRY finds no repetitions; an empty list for none.
   *
   * @default ["\n", ":", "\"", "*"]
   */
  readonly drySequenceBreakers?: readonly string[] | undefined;
  /** Ends reasoning that is too long. @default no limit */
  readonly reasoningLimit?: ReasoningLimit | undefined;
  /** Custom constraint on the tokens, instead of one of `ConstraintOptions`. */
  readonly constraint?: Constraint | undefined;
  /**
   * Adapters to apply: the name of one, or a list of `{ name, scale }`; an empty list for none.
   * @default all, with the scales that the model was loaded with
   */
  readonly lora?: AdapterChoice | undefined;
  /** Stops the generation; text generated so far is kept. */
  readonly signal?: AbortSignal | undefined;
  /** Called after each chunk of the prompt but the last. */
  readonly onPrefill?: ((done: number, total: number) => void) | undefined;
}

/** Check of an argument or an option's value, with the valid values in words. */
interface OptionCheck {
  readonly accepts: (value: unknown) => boolean;
  readonly valid: string;
}

/**
 * Checks of all members of an options interface; `undefined` for a member that is checked where it
 * is used.
 */
export type OptionChecks<T> = Readonly<Record<keyof T, OptionCheck | undefined>>;

export const STRING: OptionCheck = {
  accepts: (value) => typeof value === "string",
  valid: "a string",
};
const OBJECT: OptionCheck = {
  accepts: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
  valid: "an object",
};

/** Check of an array of strings. */
export const STRINGS: OptionCheck = {
  accepts: (value) => Array.isArray(value) && value.every((text) => typeof text === "string"),
  valid: "an array of strings",
};

/** Check of texts that may be encoded. */
export const TEXTS: OptionCheck = {
  accepts: (value) =>
    Array.isArray(value) &&
    value.every((text) => typeof text === "string" || text instanceof Int32Array),
  valid: "an array of strings and of Int32Arrays of token ids",
};

/** Check of token ids. */
export const TOKENS: OptionCheck = {
  accepts: (value) => value instanceof Int32Array,
  valid: "an Int32Array of token ids",
};

/** Check of a boolean. */
export const BOOLEAN: OptionCheck = {
  accepts: (value) => typeof value === "boolean",
  valid: "true or false",
};

/** Check of a number, whose range is checked where it is used. */
export const NUMBER: OptionCheck = {
  accepts: (value) => typeof value === "number",
  valid: "a number",
};

/** Check of a function. */
export const FUNCTION: OptionCheck = {
  accepts: (value) => typeof value === "function",
  valid: "a function",
};

/** Check of an abort signal. */
export const SIGNAL: OptionCheck = {
  accepts: (value) => value instanceof AbortSignal,
  valid: "an AbortSignal",
};

/** Check of the adapters of a request. */
export const ADAPTER_CHOICE: OptionCheck = {
  accepts: (value) =>
    typeof value === "string" ||
    (Array.isArray(value) && value.every((item) => {
      const { name, scale = 1, ...others } = Object(item) as Partial<AdapterScale>;
      return (typeof name === "string" || typeof name === "number") &&
        typeof scale === "number" && Object.keys(others).length === 0;
    })),
  valid: "the name of an adapter, or a list of { name, scale }",
};

const PROMPT_OPTIONS: OptionChecks<PromptOptions> = {
  raw: BOOLEAN,
  system: STRING,
  answerStart: STRING,
  templateVariables: OBJECT,
};

const SAMPLING_OPTIONS = Object.fromEntries(
  Object.keys(SAMPLING_RANGES).map((name) => [name, undefined]),
) as OptionChecks<SamplingOptions>;

export const GENERATE_OPTIONS: OptionChecks<GenerateOptions> = {
  ...SAMPLING_OPTIONS,
  ...PROMPT_OPTIONS,
  jsonSchema: undefined,
  jsonObject: undefined,
  regex: undefined,
  grammar: undefined,
  constraintScope: OBJECT,
  maxTokens: undefined,
  stop: {
    accepts: (value) => [value].flat().every((text) => typeof text === "string"),
    valid: "a string or an array of strings",
  },
  shownTokens: {
    accepts: (value) => Array.isArray(value) && value.every(Number.isInteger),
    valid: "an array of token ids",
  },
  logprobs: undefined,
  logitBias: OBJECT,
  drySequenceBreakers: {
    accepts: (value) =>
      Array.isArray(value) && value.every((text) => typeof text === "string" && text !== ""),
    valid: "an array of strings of at least one character",
  },
  reasoningLimit: {
    accepts: (value) => {
      const { most, close, open = 0 } = Object(value) as Partial<ReasoningLimit>;
      return [most, close, open].every((n) => Number.isInteger(n) && n! >= 0);
    },
    valid: "{ most, close, open } with a number of tokens and token ids",
  },
  constraint: {
    accepts: (value) => typeof Object(value).start === "function",
    valid: "an object with the method start()",
  },
  lora: ADAPTER_CHOICE,
  signal: SIGNAL,
  onPrefill: FUNCTION,
};

/** Names of options in other libraries and APIs. */
const ALIASES: Readonly<Record<string, string>> = {
  maxNewTokens: "maxTokens",
  maxCompletionTokens: "maxTokens",
  numPredict: "maxTokens",
  temp: "temperature",
  repetitionPenalty: "repeatPenalty",
  typical: "typicalP",
  dynamicTemperature: "dynatempRange",
  drySequenceBreaker: "drySequenceBreakers",
  stopSequences: "stop",
  abortSignal: "signal",
  systemPrompt: "system",
  tools: "templateVariables: { tools }",
  enableThinking: "templateVariables: { enable_thinking }",
};

/**
 * Checks an argument, which TypeScript does not for JavaScript.
 *
 * @throws {ForgeError} `usage` for a value of the wrong type
 */
export function checkArgument(name: string, value: unknown, { accepts, valid }: OptionCheck): void {
  if (!accepts(value)) {
    throw new ForgeError("usage", `${name} is ${show(value)}; valid is ${valid}`);
  }
}

/**
 * Checks the names and types of options. TypeScript does not check options from JavaScript, from
 * JSON, or from a variable with more members.
 *
 * @param name owner of the options in messages
 * @throws {ForgeError} `usage` for an unknown option or a value of the wrong type
 */
export function checkOptions<T extends object>(
  name: string,
  options: T,
  checks: OptionChecks<T>,
): void {
  if (!OBJECT.accepts(options)) {
    throw new ForgeError("usage", `${name} is ${show(options)}; valid is an object of options`);
  }
  for (const [key, value] of Object.entries(options)) {
    if (!Object.hasOwn(checks, key)) throw unknownOption(name, key, Object.keys(checks));
    const check = checks[key as keyof T];
    if (value !== undefined && check !== undefined) checkArgument(key, value, check);
  }
}

function unknownOption(name: string, key: string, known: readonly string[]): ForgeError {
  const aliases = Object.entries(ALIASES)
    .filter(([, meant]) => known.includes(meant.split(":", 1)[0]!));
  const nearest = nearestName(key, known, Object.fromEntries(aliases));
  const hint = nearest === undefined ? `valid are ${known.join(", ")}` : `did you mean ${nearest}?`;
  return new ForgeError("usage", `${name} has no option ${quote(key)}; ${hint}`);
}

/**
 * Checks for a whole number from `min` to `max`, and returns it. @throws {ForgeError} `usage`
 * otherwise
 */
export function checkWholeNumber(name: string, value: number, min: number, max: number): number {
  if (!Number.isInteger(value) || value < min || value > max) {
    throw new ForgeError(
      "usage",
      `${name} is ${show(value)}; valid is a whole number from ${min} to ${max}`,
    );
  }
  return value;
}

/** Returns a signal that is raised with the first of some signals. */
export function anySignal(...signals: readonly (AbortSignal | undefined)[]): AbortSignal {
  return AbortSignal.any(signals.filter((signal) => signal !== undefined));
}

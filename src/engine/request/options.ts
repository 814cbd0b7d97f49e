import type { ConstraintOptions } from "../../constrain/spec.ts";
import {
  BOOLEAN,
  FUNCTION,
  OBJECT,
  type OptionCheck,
  type OptionChecks,
  SIGNAL,
  STRING,
} from "../../formats/arguments.ts";
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

/** Names of sampling options, whose ranges are checked where they are used. */
export const SAMPLING_OPTIONS = Object.fromEntries(
  Object.keys(SAMPLING_RANGES).map((name) => [name, undefined]),
) as OptionChecks<SamplingOptions>;

/** Checks of the options of a generation. */
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

/** Returns a signal that is raised with the first of some signals. */
export function anySignal(...signals: readonly (AbortSignal | undefined)[]): AbortSignal {
  return AbortSignal.any(signals.filter((signal) => signal !== undefined));
}

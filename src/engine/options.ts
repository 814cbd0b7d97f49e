import type { ConstraintOptions } from "../constrain/spec.ts";
import { ForgeError } from "../errors.ts";
import type { Constraint } from "./constraint.ts";
import type { PromptOptions } from "./prompt.ts";
import type { SamplingOptions } from "./sampling.ts";

/** How an answer is generated. Every member has a default. */
export interface GenerateOptions extends SamplingOptions, PromptOptions, ConstraintOptions {
  /** The most tokens to generate. @default as many as the context has room for */
  readonly maxTokens?: number | undefined;
  /** Strings that end the text; they are not part of it. */
  readonly stop?: string | readonly string[] | undefined;
  /**
   * Control tokens whose names are part of the text, such as one that begins a tool call; others add
   * nothing to it. @default none
   */
  readonly shownTokens?: readonly number[] | undefined;
  /** How many alternatives to report for each token, 0 to 20. @default 0 */
  readonly logprobs?: number | undefined;
  /**
   * Added to the logits of single tokens, by token id; -Infinity bans a token.
   * `{ "50256": -100 }`
   */
  readonly logitBias?: Readonly<Record<string, number>> | undefined;
  /** A constraint of one's own on the tokens, in place of those that `ConstraintOptions` names. */
  readonly constraint?: Constraint | undefined;
  /** Stops the generation; what was generated so far is kept. */
  readonly signal?: AbortSignal | undefined;
  /** Called after each chunk of the prompt but the last. */
  readonly onPrefill?: ((done: number, total: number) => void) | undefined;
}

/** @throws {ForgeError} `usage` for what is no whole number from `min` to `max` */
export function checkWholeNumber(name: string, value: number, min: number, max: number): number {
  if (!Number.isInteger(value) || value < min || value > max) {
    throw new ForgeError(
      "usage",
      `${name} is ${value}; valid is a whole number from ${min} to ${max}`,
    );
  }
  return value;
}

/** Raised with the first of some signals. */
export function anySignal(...signals: readonly (AbortSignal | undefined)[]): AbortSignal {
  return AbortSignal.any(signals.filter((signal) => signal !== undefined));
}

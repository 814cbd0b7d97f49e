import type { TokenLogprob } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { quote } from "../../formats/quote.ts";
import { MAX_LOGPROBS } from "../limits.ts";
import type { Constraint } from "../request/constraint.ts";
import { checkWholeNumber, type GenerateOptions } from "../request/options.ts";
import type { EncodedPrompt } from "../request/prompt.ts";
import { type ResolvedSampling, resolveLogitBias } from "../request/sampling.ts";
import type { Runner } from "../runner.ts";
import type { Timings } from "./timings.ts";

/**
 * Why a generation ended: the model or a stop string ended it; there was no room for more; the constraint
 * is met and allows nothing more; it was stopped on request.
 */
export type FinishReason = "stop" | "length" | "constraint_complete" | "cancelled";

/** What is known when a generation has ended. */
export interface GenerationEnd {
  /** Why it ended. */
  readonly finishReason: FinishReason;
  /** Tokens of the prompt. */
  readonly promptTokens: number;
  /** Tokens of the prompt whose keys and values were known already. */
  readonly cachedPromptTokens: number;
  /** Tokens of the answer. */
  readonly completionTokens: number;
  /** The seed that was given or chosen; with it the answer can be had again. */
  readonly seed: number;
  /** How long its parts took. */
  readonly timings: Timings;
}

/** One step of a generation. */
export interface Piece {
  /** Text that became certain; often one token's, sometimes none or several tokens'. */
  readonly text: string;
  /** The token just chosen; `undefined` in the last piece. */
  readonly token: number | undefined;
  /**
   * Natural log-probability of the token under the model's own distribution; `undefined` for a token
   * that a constraint left no choice about, unless log-probabilities were asked for.
   */
  readonly logprob: number | undefined;
  /** The most probable tokens at this place, as many as were asked for. */
  readonly top: readonly TokenLogprob[];
  /** Set in the last piece alone. */
  readonly end: GenerationEnd | undefined;
}

/** Generations of one prompt that run as they are read. */
export interface Generations {
  /** The prompt as tokens. */
  readonly promptTokens: ArrayLike<number>;
  /** The pieces of each generation. */
  readonly pieces: readonly AsyncGenerator<Piece>[];
}

/** A generation with every option resolved. */
export interface GenerationRequest {
  readonly prompt: ArrayLike<number>;
  readonly sampling: ResolvedSampling;
  /** Added to the logits of single tokens. */
  readonly logitBias: ReadonlyMap<number, number> | undefined;
  /** Tells apart the random draws of generations that share a seed. */
  readonly stream: number;
  /** The most tokens to generate. */
  readonly maxTokens: number;
  readonly stop: readonly string[];
  readonly endTokens: ReadonlySet<number>;
  /** How many alternatives to report for each token; `undefined` when nothing is reported. */
  readonly logprobs: number | undefined;
  readonly constraint: Constraint | undefined;
  /** Tokens that the model knows; masks have a bit for each. */
  readonly vocabSize: number;
  /** Whether the text begins a message, so that a word's leading space is not part of it. */
  readonly startsText: boolean;
  /** Control tokens whose names are part of the text. */
  readonly shownTokens: ReadonlySet<number>;
  readonly signal: AbortSignal | undefined;
  /** Called after each chunk of the prompt but the last. */
  readonly onPrefill: ((done: number, total: number) => void) | undefined;
}

/**
 * Resolves and checks every option of a generation.
 *
 * @throws {ForgeError} `usage` for an option out of range; `bad_input` for a prompt that leaves no room
 * for an answer
 */
export function resolveRequest(
  { tokens, startsText }: EncodedPrompt,
  sampling: ResolvedSampling,
  options: GenerateOptions,
  { contextLength, limits, vocabSize }: Pick<Runner, "contextLength" | "limits" | "vocabSize">,
  endTokens: ReadonlySet<number>,
): GenerationRequest {
  const { stop = [], logprobs } = options;
  return {
    prompt: tokens,
    startsText,
    shownTokens: new Set(options.shownTokens),
    sampling,
    logitBias: resolveLogitBias(options.logitBias, vocabSize),
    stream: 0,
    maxTokens: maxTokens(tokens.length, options.maxTokens, contextLength),
    stop: typeof stop === "string" ? [stop] : stop,
    endTokens,
    logprobs: logprobs === undefined
      ? undefined
      : Math.min(checkWholeNumber("logprobs", logprobs, 0, MAX_LOGPROBS), limits.maxTop),
    constraint: options.constraint,
    vocabSize,
    signal: options.signal,
    onPrefill: options.onPrefill,
  };
}

function maxTokens(nPrompt: number, asked: number | undefined, contextLength: number): number {
  const room = contextLength - nPrompt;
  if (room < 1) {
    throw new ForgeError(
      "bad_input",
      `the prompt has ${nPrompt} tokens; the context of ${contextLength} has room for ` +
        `${contextLength - 1} and an answer`,
    );
  }
  if (asked === undefined) return room;
  return Math.min(room, checkWholeNumber("maxTokens", asked, 0, Number.MAX_SAFE_INTEGER));
}

/** @throws {ForgeError} `unsupported` for a model without an output matrix, whose logits mean nothing */
export function checkHead({ path }: Checkpoint, { hasHead }: Pick<Runner, "hasHead">): void {
  if (hasHead) return;
  throw new ForgeError(
    "unsupported",
    `${quote(path)} has no output matrix: it embeds texts and does not generate`,
  );
}

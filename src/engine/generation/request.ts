import type { TokenLogprob } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { quote } from "../../formats/quote.ts";
import { MAX_LOGPROBS } from "../limits.ts";
import type { Constraint } from "../request/constraint.ts";
import { checkWholeNumber } from "../../formats/arguments.ts";
import type { GenerateOptions, ReasoningLimit } from "../request/options.ts";
import { type EncodedPrompt, TooLongError } from "../request/prompt.ts";
import { type ResolvedSampling, resolveLogitBias } from "../request/sampling.ts";
import { DRY_SEQUENCE_BREAKERS } from "./repetition.ts";
import type { Runner } from "../runner.ts";
import type { SequenceAdapters } from "../token_list.ts";
import type { Timings } from "./timings.ts";

/**
 * Reason for which a generation ended: an end token or a stop string; the limit of tokens; a
 * constraint that allows nothing more; a request to stop.
 */
export type FinishReason = "stop" | "length" | "constraint_complete" | "cancelled";

/** Summary of a generation that has ended. */
export interface GenerationEnd {
  /** Reason for which it ended. */
  readonly finishReason: FinishReason;
  /** Tokens of the prompt. */
  readonly promptTokens: number;
  /** Tokens of the prompt found in the prefix cache. */
  readonly cachedPromptTokens: number;
  /** Tokens of the answer. */
  readonly completionTokens: number;
  /** Seed given or chosen; the same seed gives the same answer. */
  readonly seed: number;
  /** Durations of its parts. */
  readonly timings: Timings;
}

/** One step of a generation. */
export interface Piece {
  /** Text that became certain: of one token, of none or of several. */
  readonly text: string;
  /** Token just chosen; `undefined` in the last piece. */
  readonly token: number | undefined;
  /**
   * Natural log-probability of the token under the model's own distribution; `undefined` for a
   * token that a constraint forced, unless log-probabilities were asked for.
   */
  readonly logprob: number | undefined;
  /** Most probable tokens at this position, as many as were asked for. */
  readonly top: readonly TokenLogprob[];
  /** Set only in the last piece. */
  readonly end: GenerationEnd | undefined;
}

/** Generations of one prompt. Each runs as its pieces are read. */
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
  /** Strings at which the repetitions of DRY begin again. */
  readonly dryBreakers: readonly string[];
  /** Distinguishes the random numbers of generations that share a seed. */
  readonly stream: number;
  /** Most tokens to generate. */
  readonly maxTokens: number;
  readonly stop: readonly string[];
  readonly endTokens: ReadonlySet<number>;
  /** Number of alternatives reported for each token; `undefined` without log-probabilities. */
  readonly logprobs: number | undefined;
  readonly reasoningLimit: ReasoningLimit | undefined;
  readonly constraint: Constraint | undefined;
  /** `undefined` for the model without adapters. */
  readonly adapters?: SequenceAdapters | undefined;
  /** Size of the model's vocabulary; masks have a bit for each token. */
  readonly vocabSize: number;
  /** True if the text begins a message, so that the leading space of its first word is dropped. */
  readonly startsText: boolean;
  /** Control tokens whose names become part of the text. */
  readonly shownTokens: ReadonlySet<number>;
  readonly signal: AbortSignal | undefined;
  /** Called after each chunk of the prompt but the last. */
  readonly onPrefill: ((done: number, total: number) => void) | undefined;
}

/**
 * Resolves and checks every option of a generation.
 *
 * @throws {ForgeError} `usage` for an option out of range; `bad_input` for a prompt without room
 * for an answer
 */
export function resolveRequest(
  { tokens, startsText }: EncodedPrompt,
  sampling: ResolvedSampling,
  options: GenerateOptions,
  { contextLength, limits, vocabSize }: Pick<Runner, "contextLength" | "limits" | "vocabSize">,
  endTokens: ReadonlySet<number>,
  adapters?: SequenceAdapters,
): GenerationRequest {
  const { stop = [], logprobs } = options;
  return {
    prompt: tokens,
    startsText,
    shownTokens: new Set(options.shownTokens),
    sampling,
    logitBias: resolveLogitBias(options.logitBias, vocabSize),
    dryBreakers: options.drySequenceBreakers ?? DRY_SEQUENCE_BREAKERS,
    stream: 0,
    maxTokens: maxTokens(tokens.length, options.maxTokens, contextLength),
    stop: typeof stop === "string" ? [stop] : stop,
    endTokens,
    logprobs: logprobs === undefined
      ? undefined
      : Math.min(checkWholeNumber("logprobs", logprobs, 0, MAX_LOGPROBS), limits.maxTop),
    reasoningLimit: options.reasoningLimit,
    constraint: options.constraint,
    adapters,
    vocabSize,
    signal: options.signal,
    onPrefill: options.onPrefill,
  };
}

function maxTokens(nPrompt: number, asked: number | undefined, contextLength: number): number {
  const room = contextLength - nPrompt;
  if (room < 1) {
    throw new TooLongError(
      `the prompt has ${nPrompt} tokens; the context of ${contextLength} has room for ` +
        `${contextLength - 1} and an answer`,
    );
  }
  if (asked === undefined) return room;
  return Math.min(room, checkWholeNumber("maxTokens", asked, 0, Number.MAX_SAFE_INTEGER));
}

/** Checks that a model has an output matrix. @throws {ForgeError} `unsupported` without one */
export function checkHead({ path }: Checkpoint, { hasHead }: Pick<Runner, "hasHead">): void {
  if (hasHead) return;
  throw new ForgeError(
    "unsupported",
    `${quote(path)} has no output matrix: it embeds or scores texts and does not generate`,
  );
}

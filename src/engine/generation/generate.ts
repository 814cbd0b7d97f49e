import type { TokenLogprob } from "../../backend.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import type { Constraint } from "../request/constraint.ts";
import { Generation } from "./generation.ts";
import type { ResolvedSampling } from "../request/sampling.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
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

/** A generation with every option settled. */
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
 * Generates from a prompt, together with whatever else the scheduler runs, and yields a token at a time.
 * It goes on while the reader is busy, up to a bound. However the reader leaves, the generation ends.
 *
 * @throws {ForgeError} what goes wrong on the device; being stopped is no error but a finish reason
 */
export async function* generate(
  scheduler: Pick<Scheduler, "submit">,
  tokenizer: Tokenizer,
  request: GenerationRequest,
): AsyncGenerator<Piece, void, undefined> {
  const generation = new Generation(tokenizer, request);
  const { signal } = request;
  const cancel = () => generation.cancel();
  if (signal?.aborted) generation.cancel();
  signal?.addEventListener("abort", cancel, { once: true });
  try {
    if (!generation.isEnded) scheduler.submit(generation);
    for (;;) {
      const piece = await generation.next();
      yield piece;
      if (piece.end !== undefined) return;
    }
  } finally {
    signal?.removeEventListener("abort", cancel);
    generation.cancel();
  }
}

import type { OutputRequest, StepResult } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import { show } from "../../formats/quote.ts";
import type { KvPages } from "../cache/kv_pages.ts";
import { Measurement } from "../schedule/measurement.ts";
import { UNSAMPLED } from "../runner.ts";
import type { Scheduler } from "../schedule/scheduler.ts";
import { type Progress, SAMPLING } from "../schedule/sequence.ts";
import type { SequenceAdapters } from "../token_list.ts";

/** Task that computes the log-probability of each token but the first. */
class Scoring extends Measurement<Float32Array> {
  readonly kind = SAMPLING;
  readonly scoresAll = true;
  readonly mayReuse = false;
  readonly #tokens: ArrayLike<number>;
  readonly #scores: Float32Array;

  constructor(tokens: ArrayLike<number>, adapters?: SequenceAdapters) {
    super(Array.prototype.slice.call(tokens, 0, -1), adapters);
    this.#tokens = tokens;
    this.#scores = new Float32Array(tokens.length - 1);
  }

  outputs(start: number, end: number): readonly OutputRequest[] {
    return Array.from({ length: end - start }, (_, row) => ({
      ...UNSAMPLED,
      row,
      forcedToken: this.#tokens[start + row + 1]!,
    }));
  }

  accept({ computed, results }: Progress<StepResult>): void {
    for (const [i, result] of results.entries()) {
      if (result instanceof ForgeError) throw result;
      this.#scores[computed - results.length + i] = result.logprob;
    }
    if (computed === this.#scores.length) this.finish(this.#scores);
  }
}

/** Task that computes the logits after the last token. */
class LastLogits extends Measurement<Float32Array> {
  readonly kind = SAMPLING;
  readonly scoresAll = false;
  readonly mayReuse = true;

  outputs(start: number, end: number): readonly OutputRequest[] {
    return end < this.tokens.length ? [] : [{ ...UNSAMPLED, row: end - start - 1 }];
  }

  accept({ results, readLogits }: Progress<StepResult>): void {
    const [result] = results;
    if (result instanceof ForgeError) throw result;
    if (result !== undefined) this.finish(readLogits(0));
  }
}

/** Keys, values and state of computed tokens. */
interface Computed {
  /** Pages that hold the keys and values. */
  readonly pages: readonly number[];
  /** Recurrent state after the tokens, for each of the model's state caches. */
  readonly state: readonly Uint8Array[];
}

/** Task that computes the keys and values of tokens, and the state after them, without outputs. */
class Filling extends Measurement<Computed> {
  readonly kind = SAMPLING;
  readonly scoresAll = false;
  readonly mayReuse = true;
  readonly #pool: KvPages;

  constructor(tokens: ArrayLike<number>, pool: KvPages, adapters?: SequenceAdapters) {
    super(tokens, adapters);
    this.#pool = pool;
  }

  outputs(): readonly OutputRequest[] {
    return [];
  }

  accept({ computed, pages, readState }: Progress<StepResult>): void {
    if (computed < this.tokens.length) return;
    const state = readState();
    for (const page of pages) this.#pool.share(page);
    this.finish({ pages: [...pages], state });
  }
}

/**
 * Computes the pages of tokens that are not cached, and the state after them. The caller becomes a
 * user of each page and must release it.
 */
export async function computePages(
  scheduler: Pick<Scheduler, "submit">,
  pool: KvPages,
  tokens: ArrayLike<number>,
  signal?: AbortSignal,
  adapters?: SequenceAdapters,
): Promise<Computed> {
  return await new Filling(tokens, pool, adapters).run(scheduler, signal);
}

/**
 * Computes the natural log-probability of each token but the first, given all before it.
 *
 * @returns one number fewer than tokens
 */
export async function scoreTokens(
  scheduler: Pick<Scheduler, "submit">,
  tokens: ArrayLike<number>,
  signal?: AbortSignal,
  adapters?: SequenceAdapters,
): Promise<Float32Array> {
  if (tokens.length < 2) return new Float32Array(0);
  return await new Scoring(tokens, adapters).run(scheduler, signal);
}

/** Computes the logits after the last token, `[vocabSize]`. */
export async function lastLogits(
  scheduler: Pick<Scheduler, "submit">,
  tokens: ArrayLike<number>,
  signal?: AbortSignal,
  adapters?: SequenceAdapters,
): Promise<Float32Array> {
  return await new LastLogits(tokens, adapters).run(scheduler, signal);
}

/** Token that may follow. */
export interface Candidate {
  /** Token id. */
  readonly token: number;
  /** Probability under the model's own distribution. */
  readonly probability: number;
}

/** Returns the `k` most probable tokens, best first; of equal ones the lowest id first. */
export function topCandidates(logits: Float32Array, k: number): Candidate[] {
  if (!Number.isInteger(k) || k < 1 || k > logits.length) {
    throw new ForgeError(
      "usage",
      `k is ${show(k)}; valid is a whole number from 1 to ${logits.length}`,
    );
  }
  const normalizer = logSumExp(logits);
  const ids = Int32Array.from(logits, (_, id) => id);
  ids.sort((a, b) => logits[b]! - logits[a]! || a - b);
  return Array.from(
    ids.subarray(0, k),
    (token) => ({ token, probability: Math.exp(logits[token]! - normalizer) }),
  );
}

/** Returns the logarithm of the sum of `exp(logit)`. */
function logSumExp(logits: Float32Array): number {
  const largest = logits.reduce((most, logit) => Math.max(most, logit), -Infinity);
  return largest + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - largest), 0));
}

import type { OutputRequest } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import { Measurement } from "../schedule/measurement.ts";
import { UNSAMPLED } from "../runner.ts";
import type { Progress, StepKind } from "../schedule/sequence.ts";
import type { SequenceAdapters } from "../token_list.ts";
import type { Pooling } from "./pooling.ts";

/** Steps that compute a hidden state for each output. */
const HIDDEN_STATES: StepKind<Float32Array> = {
  // Such a step can lack memory that the sampling step has.
  failsAlone: true,
  // Hidden states are smaller than logits: every token may have an output.
  maxOutputs: ({ maxTokens }) => maxTokens,
  run: (runner, chunks) => runner.embed(chunks),
};

/** Task that computes the pooled hidden states of a text, `[hiddenSize]`. */
export class EmbeddingTask extends Measurement<Float32Array, Float32Array> {
  readonly kind = HIDDEN_STATES;
  readonly scoresAll: boolean;
  readonly isWhole: boolean;
  // Texts rarely share prefixes, and their pages would evict those of chats.
  readonly mayReuse = false;
  readonly #pooling: Pooling;
  #sum: Float64Array | undefined;

  /** @param isWhole true in a bidirectional model */
  constructor(
    tokens: ArrayLike<number>,
    pooling: Pooling,
    isWhole = false,
    adapters?: SequenceAdapters,
  ) {
    // With causal attention the first token's hidden state does not depend on the others.
    const needed = pooling === "cls" && !isWhole
      ? Array.prototype.slice.call(tokens, 0, 1)
      : tokens;
    super(needed, adapters);
    this.scoresAll = pooling === "mean";
    this.isWhole = isWhole;
    this.#pooling = pooling;
  }

  override begin(): void {
    this.#sum = undefined;
  }

  outputs(start: number, end: number): readonly OutputRequest[] {
    if (this.scoresAll) {
      return Array.from({ length: end - start }, (_, row) => ({ ...UNSAMPLED, row }));
    }
    if (end < this.tokens.length) return [];
    return [{ ...UNSAMPLED, row: this.#pooling === "cls" ? 0 : end - start - 1 }];
  }

  accept({ computed, results }: Progress<Float32Array>): void {
    const { length } = this.tokens;
    if (this.scoresAll) { for (const row of results) this.#add(row); }
    if (computed < length) return;
    const pooled = this.#sum === undefined
      ? results[0]!.slice()
      : Float32Array.from(this.#sum, (sum) => sum / length);
    if (pooled.every(Number.isFinite)) return this.finish(pooled);
    throw new ForgeError(
      "bad_model",
      "the model computed hidden states that are NaN or infinite: its weights hold NaN or overflow",
    );
  }

  #add(row: Float32Array): void {
    const sum = this.#sum ??= new Float64Array(row.length);
    for (let i = 0; i < row.length; i++) sum[i]! += row[i]!;
  }
}

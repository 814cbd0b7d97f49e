import { unknownCharacter } from "./alphabet.ts";
import { MergeTable, type PairTable } from "./pair_table.ts";
import type { Vocabulary } from "./vocabulary.ts";

/** Pairs remembered before the table starts over. */
const CAPACITY = 1 << 19;

/** A rank that marks a remembered pair that does not join. */
const NOT_A_PAIR = -1;

/**
 * The merges of SentencePiece's BPE, which has scores instead of a merge list: two neighbours join
 * when their text together is a piece, the piece with the highest score first. Which pairs those
 * are is found out as text needs them and remembered: listing all of them would take longer than
 * loading the vocabulary.
 */
export class ScorePairs implements PairTable {
  readonly #vocabulary: Vocabulary;
  readonly #isPiece: (id: number) => boolean;
  readonly #scores: Float32Array;
  /** Every score, in ascending order. */
  readonly #sorted: Float32Array;
  #known = new MergeTable(1 << 10);

  /**
   * @param scores one for each id, without NaN
   * @param isPiece which tokens text may become
   */
  constructor(
    vocabulary: Vocabulary,
    scores: Float32Array,
    isPiece: (id: number) => boolean,
  ) {
    this.#vocabulary = vocabulary;
    this.#scores = scores;
    this.#sorted = scores.slice().sort();
    this.#isPiece = isPiece;
  }

  find(left: number, right: number): number {
    let handle = this.#known.find(left, right);
    if (handle < 0) {
      this.#learn(left, right);
      handle = this.#known.find(left, right);
    }
    return this.#known.rank(handle) === NOT_A_PAIR ? -1 : handle;
  }

  rank(handle: number): number {
    return this.#known.rank(handle);
  }

  merged(handle: number): number {
    return this.#known.merged(handle);
  }

  #learn(left: number, right: number): void {
    if (this.#known.size >= CAPACITY) this.#known = new MergeTable(1 << 10);
    const merged = this.#vocabulary.idOfJoined(this.#textOf(left), this.#textOf(right));
    const rank = merged >= 0 && this.#isPiece(merged) ? this.#rankOf(merged) : NOT_A_PAIR;
    this.#known.add(left, right, rank, merged);
  }

  #textOf(symbol: number): string {
    return symbol < 0 ? unknownCharacter(symbol) : this.#vocabulary.text(symbol) ?? "";
  }

  /** How many scores are higher than that of `id`, so that equal scores have equal ranks. */
  #rankOf(id: number): number {
    const score = this.#scores[id] ?? 0;
    let low = 0, high = this.#sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#sorted[middle] ?? 0) > score) high = middle;
      else low = middle + 1;
    }
    return this.#sorted.length - low;
  }
}

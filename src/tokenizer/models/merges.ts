import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import { tableSize, type Vocabulary } from "../vocabulary.ts";
import { unknownCharacter } from "./alphabet.ts";

/** A table of pairs of symbols that join, with their ranks and results. */
export interface PairTable {
  /** Returns a handle of the pair, or -1 if it does not join. Valid until the next call. */
  find(left: number, right: number): number;
  /** Returns the rank of the pair: the lowest rank in a word joins first. */
  rank(handle: number): number;
  /** Returns the id of the joined pair. */
  merged(handle: number): number;
}

/** Integers of an entry: left, right, rank, merged. */
const STRIDE = 4;

/**
 * A table from (left id, right id) to (rank, merged id). Entries are stored in the order of
 * insertion; an open-addressing table holds their indices. Filling one array in order and hashing
 * into a small one suits the memory hierarchy: a `Map`, or entries in the slots, took two to four
 * times as long for the 280 thousand merges of Llama 3.
 */
export class MergeTable implements PairTable {
  /** Number of pairs. */
  size = 0;

  #entries: Int32Array;
  /** One more than the index of an entry; 0 for a free slot. */
  #slots: Int32Array;
  // Random odd factors: no file can make every pair collide.
  readonly #leftFactor = (Math.random() * 2 ** 32) | 1;
  readonly #rightFactor = (Math.random() * 2 ** 32) | 1;

  /** @param capacity expected number of pairs; the table grows if necessary */
  constructor(capacity: number) {
    this.#entries = new Int32Array(STRIDE * Math.max(16, capacity));
    this.#slots = new Int32Array(tableSize(capacity));
  }

  find(left: number, right: number): number {
    return this.#slots[this.#slotOf(left, right)]! - 1;
  }

  rank(handle: number): number {
    return this.#entries[STRIDE * handle + 2]!;
  }

  merged(handle: number): number {
    return this.#entries[STRIDE * handle + 3]!;
  }

  /** Adds a pair. A pair that exists keeps its rank. */
  add(left: number, right: number, rank: number, merged: number): void {
    if (4 * (this.size + 1) > 3 * this.#slots.length) this.#growSlots();
    if (STRIDE * (this.size + 1) > this.#entries.length) this.#growEntries();
    const slot = this.#slotOf(left, right);
    if (this.#slots[slot] !== 0) return;
    const entries = this.#entries, start = STRIDE * this.size;
    entries[start] = left;
    entries[start + 1] = right;
    entries[start + 2] = rank;
    entries[start + 3] = merged;
    this.#slots[slot] = ++this.size;
  }

  /** Returns the slot of a pair, or the free slot for it. */
  #slotOf(left: number, right: number): number {
    const entries = this.#entries, slots = this.#slots, mask = slots.length - 1;
    const mixed = Math.imul(left, this.#leftFactor) ^ Math.imul(right, this.#rightFactor);
    const spread = Math.imul(mixed ^ (mixed >>> 15), this.#leftFactor);
    let slot = (spread ^ (spread >>> 13)) & mask;
    for (let found = slots[slot]; found; found = slots[slot]) {
      const start = STRIDE * (found - 1);
      if (entries[start] === left && entries[start + 1] === right) break;
      slot = (slot + 1) & mask;
    }
    return slot;
  }

  #growSlots(): void {
    const entries = this.#entries;
    this.#slots = new Int32Array(2 * this.#slots.length);
    for (let i = 0; i < this.size; i++) {
      const slot = this.#slotOf(entries[STRIDE * i]!, entries[STRIDE * i + 1]!);
      this.#slots[slot] = i + 1;
    }
  }

  #growEntries(): void {
    const entries = new Int32Array(2 * this.#entries.length);
    entries.set(this.#entries);
    this.#entries = entries;
  }
}

/** Contents of a list of merges. */
interface Merges {
  /** The pairs; the position in the list is the rank. */
  readonly table: MergeTable;
  /**
   * True if no merge joins a piece that does not end in "▁" with one that begins with "▁". Then
   * text can be cut before each such "▁" without changing the result.
   */
  readonly keepsMarkersApart: boolean;
}

/**
 * Reads a list of merges, in order of rank: "left right" with one space between, or a pair of
 * strings.
 *
 * @param isApart returns true for the tokens that text must not merge into
 * @param where the file and key, for messages
 * @throws ForgeError `bad_model` if an entry has neither form, or names a token that is missing
 * from the vocabulary
 */
export function readMerges(
  merges: readonly unknown[],
  vocabulary: Vocabulary,
  isApart: (id: number) => boolean,
  where: string,
): Merges {
  const table = new MergeTable(merges.length);
  const ids = new Int32Array(3);
  let keepsMarkersApart = true;
  for (let rank = 0; rank < merges.length; rank++) {
    const merge = merges[rank];
    let left: unknown = merge, right: unknown = merge, leftEnd = 0, rightStart = 0;
    if (typeof merge === "string") {
      if (merge.startsWith("#version")) continue;
      leftEnd = merge.indexOf(" ", 1); // from 1: a piece may itself begin with a space
      rightStart = leftEnd + 1;
    } else if (Array.isArray(merge) && merge.length === 2) {
      [left, right] = merge;
      if (typeof left === "string") leftEnd = left.length;
    }
    if (typeof left !== "string" || typeof right !== "string" || leftEnd <= 0) {
      const shown = typeof merge === "string" ? quote(merge) : "not a pair of strings";
      throw new ForgeError(
        "bad_model",
        `${where}[${rank}] is ${shown}; expected "left right" or ["left", "right"]`,
      );
    }
    vocabulary.idsOfPair(left, leftEnd, right, rightStart, ids);
    const leftId = ids[0]!, rightId = ids[1]!, merged = ids[2]!;
    if (leftId < 0 || rightId < 0 || merged < 0) {
      const head = left.slice(0, leftEnd), tail = right.slice(rightStart);
      const missing = leftId < 0 ? head : rightId < 0 ? tail : head + tail;
      throw new ForgeError(
        "bad_model",
        `${where}[${rank}] names the token ${quote(missing)}, which is not in the vocabulary`,
      );
    }
    if (right.charCodeAt(rightStart) === MARKER && left.charCodeAt(leftEnd - 1) !== MARKER) {
      keepsMarkersApart = false;
    }
    if (!isApart(merged)) table.add(leftId, rightId, rank, merged);
  }
  return { table, keepsMarkersApart };
}

/** "▁" (U+2581), which stands for a space in SentencePiece vocabularies. */
const MARKER = 0x2581;

/** Number of pairs cached before the cache is cleared. */
const CAPACITY = 1 << 19;

/** Rank of a cached pair that does not join. */
const NOT_A_PAIR = -1;

/**
 * The merges of SentencePiece's BPE, which has scores instead of a merge list: two neighbours join
 * if their joined text is a piece, the piece with the highest score first. Pairs are computed on
 * demand and cached: listing them all would take longer than loading the vocabulary.
 */
export class ScorePairs implements PairTable {
  readonly #vocabulary: Vocabulary;
  readonly #isPiece: (id: number) => boolean;
  readonly #scores: Float32Array;
  /** All scores, in ascending order. */
  readonly #sorted: Float32Array;
  #known = new MergeTable(1 << 10);

  /**
   * @param scores one for each id, without NaN
   * @param isPiece returns true for the tokens that text may become
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

  /** Number of scores above that of `id`, so that equal scores have equal ranks. */
  #rankOf(id: number): number {
    const score = this.#scores[id]!;
    let low = 0, high = this.#sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#sorted[middle]! > score) high = middle;
      else low = middle + 1;
    }
    return this.#sorted.length - low;
  }
}

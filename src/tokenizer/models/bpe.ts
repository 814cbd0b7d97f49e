import { ForgeError } from "../../errors.ts";
import type { Alphabet } from "./alphabet.ts";
import { toByteLevel } from "../byte_level.ts";
import { IdBuffer, SLICE_STEPS, type WordEncoder } from "./word_encoder.ts";
import type { PairTable } from "./merges.ts";
import type { Vocabulary } from "../vocabulary.ts";

/**
 * Returns a look-up of whole words, for models that do not merge a word of the vocabulary
 * ("ignore_merges").
 *
 * @param bytes true if the vocabulary is written in GPT-2's byte alphabet
 * @param isApart returns true for the tokens that text must not become
 */
export function wholeWords(
  vocabulary: Vocabulary,
  bytes: boolean,
  isApart: (id: number) => boolean,
): (word: string) => number {
  return (word) => {
    if (word.length > vocabulary.longest) return -1;
    const id = vocabulary.idOf(bytes ? toByteLevel(word) : word);
    return id >= 0 && !isApart(id) ? id : -1;
  };
}

/** Positions are below 2^26 so that rank and position fit a double's 53 bits together. */
const POSITION_RANGE = 2 ** 26;

/** The longest word, in symbols, that a merge queue can hold. */
const MAX_WORD_SYMBOLS = POSITION_RANGE;

/** A binary heap of (rank, position) that pops the lowest rank first, leftmost on ties. */
export class MergeQueue {
  #keys: Float64Array;
  #size = 0;

  constructor(capacity: number) {
    this.#keys = new Float64Array(Math.max(16, capacity));
  }

  get isEmpty(): boolean {
    return this.#size === 0;
  }

  /** Adds an entry; `rank` is below 2^27. */
  push(rank: number, position: number): void {
    if (this.#size === this.#keys.length) {
      const grown = new Float64Array(2 * this.#keys.length);
      grown.set(this.#keys);
      this.#keys = grown;
    }
    const keys = this.#keys;
    const key = rank * POSITION_RANGE + position;
    let child = this.#size++;
    while (child > 0) {
      const parent = (child - 1) >> 1;
      const above = keys[parent]!;
      if (above <= key) break;
      keys[child] = above;
      child = parent;
    }
    keys[child] = key;
  }

  /** Removes the first entry and returns it as one number; see `rankOf` and `positionOf`. */
  pop(): number {
    const keys = this.#keys;
    const first = keys[0]!;
    const size = --this.#size;
    const key = keys[size]!;
    let parent = 0;
    for (;;) {
      let child = 2 * parent + 1;
      if (child >= size) break;
      if (child + 1 < size && keys[child + 1]! < keys[child]!) child++;
      const below = keys[child]!;
      if (below >= key) break;
      keys[parent] = below;
      parent = child;
    }
    keys[parent] = key;
    return first;
  }

  /** Returns the rank of an entry that `pop` returned. */
  static rankOf(entry: number): number {
    return Math.floor(entry / POSITION_RANGE);
  }

  /** Returns the position of an entry that `pop` returned. */
  static positionOf(entry: number): number {
    return entry % POSITION_RANGE;
  }
}

/** Marks a symbol at which no pair begins. */
const NO_PAIR = 0x7fffffff;

/** Most symbols for which a scan for the lowest rank is faster than a queue (measured, V8 15). */
const SCAN_LIMIT = 96;

/**
 * Byte-pair encoding (Sennrich et al., 2016, https://arxiv.org/abs/1508.07909): a word is split
 * into the symbols of an alphabet, and the neighbours with the lowest rank join, leftmost first,
 * until no neighbours can join. SentencePiece's BPE is the same with ranks computed from scores.
 */
export class BpeEncoder implements WordEncoder {
  readonly #alphabet: Alphabet;
  readonly #pairs: PairTable;
  readonly #wholeWord: (word: string) => number;
  readonly #symbols = new IdBuffer();
  readonly #scanRanks = new Int32Array(SCAN_LIMIT);

  /**
   * @param wholeWord returns the id of a word that becomes one token without merging, or -1
   */
  constructor(
    alphabet: Alphabet,
    pairs: PairTable,
    wholeWord: (word: string) => number = () => -1,
  ) {
    this.#alphabet = alphabet;
    this.#pairs = pairs;
    this.#wholeWord = wholeWord;
  }

  encode(word: string, out: IdBuffer): void {
    const whole = this.#wholeWord(word);
    if (whole >= 0) return out.push(whole);
    const symbols = this.#symbols;
    symbols.length = 0;
    this.#split(word, symbols, out);
    let count: number;
    if (symbols.length > SCAN_LIMIT) {
      const merge = new QueueMerge(symbols, this.#pairs);
      merge.advance(Infinity);
      count = merge.collect();
    } else {
      count = this.#mergeByScan(symbols);
    }
    this.#alphabet.emit(symbols.data, count, out);
    // Release the buffers of a huge word.
    if (symbols.data.length > 1 << 16) {
      symbols.data = new Int32Array(64);
    }
  }

  *encodeInSlices(word: string, out: IdBuffer): Generator<void, void> {
    const whole = this.#wholeWord(word);
    if (whole >= 0) return out.push(whole);
    const symbols = new IdBuffer(word.length);
    this.#split(word, symbols, out);
    yield;
    const merge = new QueueMerge(symbols, this.#pairs);
    while (!merge.advance(SLICE_STEPS)) yield;
    this.#alphabet.emit(symbols.data, merge.collect(), out);
  }

  /** @throws {TokenLimitError} for a long word whose tokens would be discarded */
  #split(word: string, symbols: IdBuffer, out: IdBuffer): void {
    this.#alphabet.split(word, symbols);
    if (symbols.length > Math.max(SCAN_LIMIT, out.longestCut) && out.limit < Infinity) {
      out.expect(this.#alphabet.fewestTokens(symbols));
    }
  }

  #rank(left: number, right: number): number {
    const handle = this.#pairs.find(left, right);
    return handle < 0 ? NO_PAIR : this.#pairs.rank(handle);
  }

  #merged(left: number, right: number): number {
    return this.#pairs.merged(this.#pairs.find(left, right));
  }

  /** Joins `symbols` in place; returns their new number. Quadratic: for short words. */
  #mergeByScan(symbols: IdBuffer): number {
    const ids = symbols.data, ranks = this.#scanRanks;
    let count = symbols.length;
    for (let i = 0; i + 1 < count; i++) ranks[i] = this.#rank(ids[i]!, ids[i + 1]!);
    for (;;) {
      let lowest = NO_PAIR, at = 0;
      for (let i = 0; i + 1 < count; i++) {
        const rank = ranks[i]!;
        if (rank < lowest) {
          lowest = rank;
          at = i;
        }
      }
      if (lowest === NO_PAIR) return count;
      ids[at] = this.#merged(ids[at]!, ids[at + 1]!);
      count--;
      for (let i = at + 1; i < count; i++) {
        ids[i] = ids[i + 1]!;
        ranks[i] = ranks[i + 1]!;
      }
      if (at > 0) ranks[at - 1] = this.#rank(ids[at - 1]!, ids[at]!);
      if (at + 1 < count) ranks[at] = this.#rank(ids[at]!, ids[at + 1]!);
    }
  }
}

/** Joins the symbols of a long word, in O(n log n) steps. */
class QueueMerge {
  readonly #pairs: PairTable;
  readonly #ids: Int32Array;
  readonly #count: number;
  /** A linked list over positions. */
  readonly #next: Int32Array;
  readonly #previous: Int32Array;
  /** Rank of the pair that begins at each position; an entry of the queue with another is stale. */
  readonly #ranks: Int32Array;
  readonly #queue: MergeQueue;
  /** Number of positions that are in the queue. */
  #rated = 0;

  /** @throws {ForgeError} `bad_input` for too many symbols */
  constructor({ data, length }: IdBuffer, pairs: PairTable) {
    if (length > MAX_WORD_SYMBOLS) {
      throw new ForgeError(
        "bad_input",
        `the text has ${length} characters or bytes without a place to cut; ` +
          `at most ${MAX_WORD_SYMBOLS} are supported`,
      );
    }
    this.#pairs = pairs;
    this.#ids = data;
    this.#count = length;
    this.#next = new Int32Array(length);
    this.#previous = new Int32Array(length);
    this.#ranks = new Int32Array(length).fill(NO_PAIR);
    this.#queue = new MergeQueue(length);
  }

  /** Takes at most `steps` steps. @returns true when nothing is left to join */
  advance(steps: number): boolean {
    const pairs = this.#pairs, ids = this.#ids, count = this.#count, queue = this.#queue;
    const next = this.#next, previous = this.#previous, ranks = this.#ranks;
    const rate = (left: number, right: number) => {
      const handle = pairs.find(ids[left]!, ids[right]!);
      const rank = handle < 0 ? NO_PAIR : pairs.rank(handle);
      ranks[left] = rank;
      if (rank !== NO_PAIR) queue.push(rank, left);
    };
    let left = steps;
    let i = this.#rated;
    for (; i < count && left > 0; i++, left--) {
      next[i] = i + 1;
      previous[i] = i - 1;
      if (i + 1 < count) rate(i, i + 1);
    }
    this.#rated = i;
    for (; left > 0 && !queue.isEmpty; left--) {
      const entry = queue.pop();
      const at = MergeQueue.positionOf(entry);
      if (ranks[at] !== MergeQueue.rankOf(entry)) continue;
      const gone = next[at]!;
      const after = next[gone]!;
      const before = previous[at]!;
      ids[at] = pairs.merged(pairs.find(ids[at]!, ids[gone]!));
      next[at] = after;
      ranks[at] = NO_PAIR;
      ranks[gone] = NO_PAIR;
      if (after < count) {
        previous[after] = at;
        rate(at, after);
      }
      if (before >= 0) rate(before, at);
    }
    return i === count && queue.isEmpty;
  }

  /** Moves the joined symbols to the start of their buffer; returns their number. */
  collect(): number {
    let kept = 0;
    for (let i = 0; i < this.#count; i = this.#next[i]!) this.#ids[kept++] = this.#ids[i]!;
    return kept;
  }
}

import { ForgeError } from "../../errors.ts";

/** Thrown for a text with more tokens than the limit. */
export class TokenLimitError extends ForgeError {
  /** The limit. */
  readonly limit: number;

  constructor(limit: number) {
    super("bad_input", `the text has more than ${limit} tokens`);
    this.limit = limit;
  }
}

/** A growing list of token ids in a typed array. */
export class IdBuffer {
  /** The ids; only the first `length` are valid. Replaced when the buffer grows. */
  data: Int32Array;
  /** Number of ids. May be lowered to drop the last ones. */
  length = 0;
  /** Maximum number of ids. Only {@linkcode expect} checks it. */
  readonly limit: number;

  /**
   * Longest word, in symbols, whose first ids are returned even if all of them exceed the limit.
   */
  readonly longestCut: number;

  constructor(capacity = 64, limit = Infinity, longestCut = 0) {
    this.data = new Int32Array(Math.max(1, capacity));
    this.limit = limit;
    this.longestCut = longestCut;
  }

  /**
   * Checks that there is room for more ids.
   *
   * @throws {TokenLimitError} if they would exceed the limit
   */
  expect(count: number): void {
    if (this.length + count > this.limit) throw new TokenLimitError(this.limit);
  }

  /** Appends one id. */
  push(id: number): void {
    if (this.length === this.data.length) this.#grow(this.length + 1);
    this.data[this.length++] = id;
  }

  /** Appends `source[start..end)`. */
  pushRange(source: Int32Array, start: number, end: number): void {
    const needed = this.length + end - start;
    if (needed > this.data.length) this.#grow(needed);
    for (let i = start; i < end; i++) this.data[this.length++] = source[i]!;
  }

  /** Returns a copy of the ids. */
  toArray(): Int32Array {
    return this.data.slice(0, this.length);
  }

  #grow(needed: number): void {
    const grown = new Int32Array(Math.max(needed, 2 * this.data.length));
    grown.set(this.data);
    this.data = grown;
  }
}

/** Encodes one word (a pre-tokenized piece of text) to token ids, appended to `out`. */
export interface WordEncoder {
  encode(word: string, out: IdBuffer): void;
  /** Encodes a long word and yields every few milliseconds. Several may be in progress. */
  encodeInSlices(word: string, out: IdBuffer): Generator<void, void>;
}

/** Length of a long word, in UTF-16 units: encoding it takes tens of milliseconds. */
export const LONG_WORD = 1 << 15;

/** Steps of a slice: characters, or pairs that join. They take about 5 ms. */
export const SLICE_STEPS = 1 << 13;

/** Runs all slices of a computation at once. */
export function finish<T>(slices: Generator<void, T>): T {
  for (;;) {
    const { done, value } = slices.next();
    if (done) return value;
  }
}

/**
 * Maximum length of a cached word, in UTF-16 units. V8 represents a substring of 13 or more as a
 * reference into its parent, so a longer key would keep a whole prompt alive.
 */
const LONGEST_WORD = 12;

/** Number of token ids before the cache is cleared: about 100 thousand words. */
const CAPACITY = 1 << 18;

/** Caches the ids of short words, which most texts repeat. */
export class WordCache implements WordEncoder {
  readonly #encoder: WordEncoder;
  readonly #ids = new IdBuffer(1 << 12);
  /** Start × 64 + count of each word's ids. A word of 12 units has at most 36 ids. */
  readonly #places = new Map<string, number>();

  constructor(encoder: WordEncoder) {
    this.#encoder = encoder;
  }

  encode(word: string, out: IdBuffer): void {
    if (word.length > LONGEST_WORD) return this.#encoder.encode(word, out);
    const place = this.#places.get(word);
    if (place !== undefined) {
      const start = place >> 6;
      return out.pushRange(this.#ids.data, start, start + (place & 63));
    }
    const before = out.length;
    this.#encoder.encode(word, out);
    if (this.#ids.length + 64 > CAPACITY) {
      this.#ids.length = 0;
      this.#places.clear();
    }
    this.#places.set(word, this.#ids.length * 64 + out.length - before);
    this.#ids.pushRange(out.data, before, out.length);
  }

  encodeInSlices(word: string, out: IdBuffer): Generator<void, void> {
    return this.#encoder.encodeInSlices(word, out);
  }
}

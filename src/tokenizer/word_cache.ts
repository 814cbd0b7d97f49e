import type { WordEncoder } from "./bpe.ts";
import { IdBuffer } from "./id_buffer.ts";

/**
 * The longest word kept, in UTF-16 units. V8 represents a substring of 13 or more as a reference
 * into its parent, so a longer key would keep a whole prompt alive.
 */
const LONGEST_WORD = 12;

/** Token ids kept before the cache starts over: about 100 thousand words. */
const CAPACITY = 1 << 18;

/** Remembers the ids of short words: text repeats them far more often than it brings new ones. */
export class WordCache implements WordEncoder {
  readonly #encoder: WordEncoder;
  readonly #ids = new IdBuffer(1 << 12);
  /** The place of a word's ids: start × 64 + count. A word of 12 units has at most 36 ids. */
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
}

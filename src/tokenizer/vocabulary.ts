import { ForgeError } from "../errors.ts";
import { quote } from "../formats/quote.ts";

/** Maximum id, above that of any known model; a larger one is from a damaged or hostile file. */
export const MAX_TOKEN_ID = (1 << 24) - 1;

/** Maximum run of occupied slots; a longer one does not occur by chance. */
const LONGEST_PROBE = 4096;

/** Factors of the two hash functions: FNV-1a's, and another odd number with well mixed bits. */
const FACTOR = 0x01000193, OTHER_FACTOR = 0x85ebca6b;

/**
 * The pieces of a vocabulary, by id and by text.
 *
 * Text is looked up in an open-addressing table by two rolling hashes instead of in a `Map`: an
 * entry of a merge list contains its three tokens ("he llo": "he", "llo" and "hello"), and rolling
 * hashes find all three in one pass without creating strings. Pieces with equal hashes are taken to
 * be equal: the 64 bits have a random start, so that no file can force collisions, and they do not
 * occur by chance. Reading 280 thousand merges takes a quarter of the time of a `Map`.
 */
export class Vocabulary {
  /** One more than the highest id. */
  readonly size: number;
  /** Length in UTF-16 units of the longest piece. */
  readonly longest: number;

  readonly #texts: readonly (string | undefined)[];
  /** The two hashes of each id's piece. */
  readonly #hashes: Int32Array;
  /** One more than an id; 0 for a free slot. */
  readonly #slots: Int32Array;
  readonly #seed = (Math.random() * 2 ** 32) | 0;
  readonly #otherSeed = (Math.random() * 2 ** 32) | 0;

  /**
   * @param texts the piece of each id; `undefined` or "" for an unused id
   * @param where the file and key, for messages
   * @throws ForgeError `bad_model` if two ids have the same piece
   */
  constructor(texts: readonly (string | undefined)[], where: string) {
    if (texts.length > MAX_TOKEN_ID + 1) {
      throw new ForgeError(
        "bad_model",
        `${where} has ${texts.length} tokens; at most ${MAX_TOKEN_ID + 1} are supported`,
      );
    }
    this.size = texts.length;
    this.#texts = texts;
    this.#hashes = new Int32Array(2 * texts.length);
    this.#slots = new Int32Array(tableSize(texts.length));
    let longest = 0;
    for (let id = 0; id < texts.length; id++) {
      const text = texts[id];
      if (text === undefined || text === "") continue;
      longest = Math.max(longest, text.length);
      this.#insert(id, text, where);
    }
    this.longest = longest;
  }

  /** Returns the piece of an id, or `undefined` if it has none. */
  text(id: number): string | undefined {
    return this.#texts[id];
  }

  /** Returns the id of a piece, or -1. */
  idOf(text: string): number {
    return this.idOfRange(text, 0, text.length);
  }

  /** Returns the id of the piece `text[start..end)`, or -1. */
  idOfRange(text: string, start: number, end: number): number {
    let hash = this.#seed, other = this.#otherSeed;
    for (let i = start; i < end; i++) {
      const unit = text.charCodeAt(i);
      hash = Math.imul(hash ^ unit, FACTOR);
      other = Math.imul(other ^ unit, OTHER_FACTOR);
    }
    return this.#find(hash, other);
  }

  /**
   * Writes to `into` the ids of the pieces that are `prefix` followed by one, two, three, … units
   * of `text` from `start` on; -1 for a missing piece.
   *
   * @returns the number of ids written, limited by `into` and the end of the text
   */
  idsOfPrefixes(text: string, start: number, into: Int32Array, prefix = ""): number {
    let hash = this.#seed, other = this.#otherSeed;
    for (let i = 0; i < prefix.length; i++) {
      const unit = prefix.charCodeAt(i);
      hash = Math.imul(hash ^ unit, FACTOR);
      other = Math.imul(other ^ unit, OTHER_FACTOR);
    }
    const count = Math.min(into.length, text.length - start);
    for (let i = 0; i < count; i++) {
      const unit = text.charCodeAt(start + i);
      hash = Math.imul(hash ^ unit, FACTOR);
      other = Math.imul(other ^ unit, OTHER_FACTOR);
      into[i] = this.#find(hash, other);
    }
    return count;
  }

  /** Returns the id of the piece that is `left` followed by `right`, or -1. */
  idOfJoined(left: string, right: string): number {
    this.idsOfPair(left, left.length, right, 0, this.#pair);
    return this.#pair[2] ?? -1;
  }

  readonly #pair = new Int32Array(3);

  /**
   * Writes to `into[0..3)` the ids of `left[..leftEnd)`, of `right[rightStart..)` and of both
   * joined; -1 for a text that is not a piece.
   */
  idsOfPair(
    left: string,
    leftEnd: number,
    right: string,
    rightStart: number,
    into: Int32Array,
  ): void {
    let joined = this.#seed, otherJoined = this.#otherSeed;
    for (let i = 0; i < leftEnd; i++) {
      const unit = left.charCodeAt(i);
      joined = Math.imul(joined ^ unit, FACTOR);
      otherJoined = Math.imul(otherJoined ^ unit, OTHER_FACTOR);
    }
    into[0] = this.#find(joined, otherJoined);
    let hash = this.#seed, other = this.#otherSeed;
    for (let i = rightStart; i < right.length; i++) {
      const unit = right.charCodeAt(i);
      hash = Math.imul(hash ^ unit, FACTOR);
      other = Math.imul(other ^ unit, OTHER_FACTOR);
      joined = Math.imul(joined ^ unit, FACTOR);
      otherJoined = Math.imul(otherJoined ^ unit, OTHER_FACTOR);
    }
    into[1] = this.#find(hash, other);
    into[2] = this.#find(joined, otherJoined);
  }

  #insert(id: number, text: string, where: string): void {
    const hashes = this.#hashes, slots = this.#slots, mask = slots.length - 1;
    let hash = this.#seed, other = this.#otherSeed;
    for (let i = 0; i < text.length; i++) {
      const unit = text.charCodeAt(i);
      hash = Math.imul(hash ^ unit, FACTOR);
      other = Math.imul(other ^ unit, OTHER_FACTOR);
    }
    let slot = spread(hash) & mask;
    let probes = 0;
    for (let found = slots[slot]; found; found = slots[slot]) {
      if (hashes[2 * found - 2] === hash && hashes[2 * found - 1] === other) {
        throw new ForgeError(
          "bad_model",
          `${where} has the token ${quote(text)} twice, as ids ${found - 1} and ${id}`,
        );
      }
      if (++probes > LONGEST_PROBE) {
        throw new ForgeError("bad_model", `${where} has too many tokens that hash alike`);
      }
      slot = (slot + 1) & mask;
    }
    slots[slot] = id + 1;
    hashes[2 * id] = hash;
    hashes[2 * id + 1] = other;
  }

  #find(hash: number, other: number): number {
    const hashes = this.#hashes, slots = this.#slots, mask = slots.length - 1;
    let slot = spread(hash) & mask;
    for (let found = slots[slot]; found; found = slots[slot]) {
      if (hashes[2 * found - 2] === hash && hashes[2 * found - 1] === other) return found - 1;
      slot = (slot + 1) & mask;
    }
    return -1;
  }
}

/** Returns the smallest power of two that `count` entries fill to at most three quarters. */
export function tableSize(count: number): number {
  let size = 16;
  while (3 * size < 4 * count) size *= 2;
  return size;
}

/** Mixes the high bits of a multiplicative hash, which are the best mixed, into the low bits. */
function spread(hash: number): number {
  return hash ^ (hash >>> 15);
}

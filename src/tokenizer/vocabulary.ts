import { ForgeError } from "../errors.ts";
import { quote } from "../formats/quote.ts";

/** More ids than any known model has; a larger one is a damaged or hostile file. */
export const MAX_TOKEN_ID = (1 << 24) - 1;

/** A run of occupied slots this long does not happen by chance. */
const LONGEST_PROBE = 4096;

/** Factors of the two hash functions: FNV-1a's, and another odd number with well mixed bits. */
const FACTOR = 0x01000193, OTHER_FACTOR = 0x85ebca6b;

/**
 * The pieces of a vocabulary, by id and by text.
 *
 * Text is looked up in an open-addressing table by two rolling hashes instead of in a `Map`: a
 * merge list names its three tokens as parts of one string ("he llo", "hello"), and rolling hashes
 * find all three in one pass without creating a string for each. The 64 bits begin at random, so
 * that pieces whose bits agree are taken to be equal: no file can be built to make others collide,
 * and by chance it does not happen. Reading 280 thousand merges this way takes a quarter of the
 * time that a `Map` takes.
 */
export class Vocabulary {
  /** One more than the highest id. */
  readonly size: number;
  /** Length in UTF-16 units of the longest piece. */
  readonly longest: number;

  readonly #texts: readonly (string | undefined)[];
  /** The two hashes of each id's piece. */
  readonly #hashes: Int32Array;
  /** One more than an id; 0 where a slot is free. */
  readonly #slots: Int32Array;
  readonly #seed = (Math.random() * 2 ** 32) | 0;
  readonly #otherSeed = (Math.random() * 2 ** 32) | 0;

  /**
   * @param texts the piece of each id; `undefined` or "" where an id is not used
   * @param where the file and key, for messages
   * @throws ForgeError `bad_model` when two ids have the same piece
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

  /** The piece of an id, or `undefined` when the id has none. */
  text(id: number): string | undefined {
    return this.#texts[id];
  }

  /** The id of a piece, or -1. */
  idOf(text: string): number {
    return this.idOfRange(text, 0, text.length);
  }

  /** The id of the piece `text[start..end)`, or -1. */
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
   * The ids of the pieces that are `prefix` followed by one, two, three, … units of `text` from
   * `start` on, written to `into`; -1 where there is no such piece.
   *
   * @returns how many were written: as many as `into` and the text have room for
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

  /** The id of the piece that is `left` followed by `right`, or -1. */
  idOfJoined(left: string, right: string): number {
    this.idsOfPair(left, left.length, right, 0, this.#pair);
    return this.#pair[2] ?? -1;
  }

  readonly #pair = new Int32Array(3);

  /**
   * The ids of `left[..leftEnd)`, of `right[rightStart..)` and of both joined, written to
   * `into[0..3)`; -1 for each that is not a piece.
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

/** The smallest power of two that leaves a table of `count` entries at most three quarters full. */
export function tableSize(count: number): number {
  let size = 16;
  while (3 * size < 4 * count) size *= 2;
  return size;
}

/** Brings the high bits, which a multiplicative hash mixes best, down to those the mask keeps. */
function spread(hash: number): number {
  return hash ^ (hash >>> 15);
}

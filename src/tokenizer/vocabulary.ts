import { ForgeError } from "../errors.ts";

/** More ids than any known model has; a larger one is a damaged or hostile file. */
export const MAX_TOKEN_ID = (1 << 24) - 1;

/** A run of occupied slots this long does not happen by chance at half load. */
const LONGEST_PROBE = 4096;

/**
 * The pieces of a vocabulary, by id and by text.
 *
 * Text is looked up in an open-addressing table over a rolling FNV-1a hash instead of a `Map`: a
 * merge list names its three tokens as parts of one string ("he llo", "hello"), and a rolling hash
 * finds them without creating a string for each. Reading 280 thousand merges this way takes about
 * a quarter of the time.
 */
export class Vocabulary {
  /** One more than the highest id. */
  readonly size: number;
  /** Length in UTF-16 units of the longest piece. */
  readonly longest: number;

  readonly #texts: readonly (string | undefined)[];
  readonly #hashes: Int32Array;
  readonly #slots: Int32Array;
  readonly #mask: number;
  /** Random, so that no file can be built to make every piece collide. */
  readonly #seed = (Math.random() * 2 ** 32) | 0;

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
    this.#hashes = new Int32Array(texts.length);
    this.#slots = new Int32Array(tableSize(texts.length));
    this.#mask = this.#slots.length - 1;
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
    return this.#find(this.#hash(this.#seed, text, start, end), text, start, end, "", 0, 0);
  }

  /** The id of the piece that is `left` followed by `right`, or -1. */
  idOfJoined(left: string, right: string): number {
    const hash = this.#hash(this.#seed, left, 0, left.length);
    const joined = this.#hash(hash, right, 0, right.length);
    return this.#find(joined, left, 0, left.length, right, 0, right.length);
  }

  /**
   * The ids of `left[..leftEnd)`, of `right[rightStart..)` and of both joined, written to
   * `into[0..3)`; -1 for each that is not a piece.
   */
  idsOfPair(left: string, leftEnd: number, right: string, rightStart: number, into: Int32Array) {
    const rightEnd = right.length;
    const leftHash = this.#hash(this.#seed, left, 0, leftEnd);
    const rightHash = this.#hash(this.#seed, right, rightStart, rightEnd);
    const joinedHash = this.#hash(leftHash, right, rightStart, rightEnd);
    into[0] = this.#find(leftHash, left, 0, leftEnd, "", 0, 0);
    into[1] = this.#find(rightHash, right, rightStart, rightEnd, "", 0, 0);
    into[2] = this.#find(joinedHash, left, 0, leftEnd, right, rightStart, rightEnd);
  }

  #hash(seed: number, text: string, start: number, end: number): number {
    let hash = seed;
    for (let i = start; i < end; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
    return hash;
  }

  #insert(id: number, text: string, where: string): void {
    const hash = this.#hash(this.#seed, text, 0, text.length);
    let slot = spread(hash) & this.#mask;
    let probes = 0;
    for (let found = this.#slots[slot]; found; found = this.#slots[slot]) {
      if (this.#hashes[found - 1] === hash && this.#texts[found - 1] === text) {
        throw new ForgeError(
          "bad_model",
          `${where} has the token ${quote(text)} twice, as ids ${found - 1} and ${id}`,
        );
      }
      if (++probes > LONGEST_PROBE) {
        throw new ForgeError("bad_model", `${where} has too many tokens that hash alike`);
      }
      slot = (slot + 1) & this.#mask;
    }
    this.#slots[slot] = id + 1;
    this.#hashes[id] = hash;
  }

  #find(
    hash: number,
    head: string,
    headStart: number,
    headEnd: number,
    tail: string,
    tailStart: number,
    tailEnd: number,
  ): number {
    const headLength = headEnd - headStart;
    const length = headLength + tailEnd - tailStart;
    let slot = spread(hash) & this.#mask;
    for (let found = this.#slots[slot]; found; found = this.#slots[slot]) {
      const id = found - 1;
      slot = (slot + 1) & this.#mask;
      if (this.#hashes[id] !== hash) continue;
      const text = this.#texts[id] ?? "";
      if (text.length !== length) continue;
      if (!rangesEqual(text, 0, head, headStart, headLength)) continue;
      if (rangesEqual(text, headLength, tail, tailStart, length - headLength)) return id;
    }
    return -1;
  }
}

/** A piece as a message shows it: quoted, and cut where it is long. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}…` : text);
}

/** The smallest power of two that leaves a table of `count` entries at most half full. */
export function tableSize(count: number): number {
  let size = 16;
  while (size < 2 * count) size *= 2;
  return size;
}

/** Brings the high bits, which a multiplicative hash mixes best, down to those the mask keeps. */
function spread(hash: number): number {
  return hash ^ (hash >>> 15);
}

function rangesEqual(a: string, aStart: number, b: string, bStart: number, length: number) {
  for (let i = 0; i < length; i++) {
    if (a.charCodeAt(aStart + i) !== b.charCodeAt(bStart + i)) return false;
  }
  return true;
}

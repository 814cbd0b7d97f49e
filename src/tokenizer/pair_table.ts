import { ForgeError } from "../errors.ts";
import { quote, tableSize, type Vocabulary } from "./vocabulary.ts";

/** Which neighbouring symbols join, in what order, and into what. */
export interface PairTable {
  /** A handle of the pair, or -1 when the two do not join. Valid until the next call. */
  find(left: number, right: number): number;
  /** The order of the pair: the lowest rank in a word joins first. */
  rank(handle: number): number;
  /** The id the two join into. */
  merged(handle: number): number;
}

/** Integers per slot: left + 1 (0 when the slot is free), right, rank, merged. */
const STRIDE = 4;

/**
 * A table from (left id, right id) to (rank, merged id), with open addressing over one
 * `Int32Array`: a `Map` keyed by a number above 2^31 allocates for every entry.
 */
export class MergeTable implements PairTable {
  /** How many pairs there are. */
  size = 0;

  #cells: Int32Array;
  #mask: number;
  // Random odd factors: no file can be built to make every pair collide.
  readonly #leftFactor = (Math.random() * 2 ** 32) | 1;
  readonly #rightFactor = (Math.random() * 2 ** 32) | 1;

  /** @param capacity how many pairs are expected; the table grows beyond it */
  constructor(capacity: number) {
    const slots = tableSize(capacity);
    this.#cells = new Int32Array(STRIDE * slots);
    this.#mask = slots - 1;
  }

  find(left: number, right: number): number {
    const cells = this.#cells;
    for (let slot = this.#hash(left, right);; slot = (slot + 1) & this.#mask) {
      const cell = slot * STRIDE;
      const stored = cells[cell];
      if (stored === 0 || stored === undefined) return -1;
      if (stored === left + 1 && cells[cell + 1] === right) return cell;
    }
  }

  rank(handle: number): number {
    return this.#cells[handle + 2] ?? 0;
  }

  merged(handle: number): number {
    return this.#cells[handle + 3] ?? -1;
  }

  /** Adds a pair. `left` must not be -1; a pair that is already there keeps its first rank. */
  add(left: number, right: number, rank: number, merged: number): void {
    if (2 * (this.size + 1) > this.#mask) this.#grow();
    if (this.#place(left, right, rank, merged)) this.size++;
  }

  #hash(left: number, right: number): number {
    const mixed = Math.imul(left, this.#leftFactor) + Math.imul(right, this.#rightFactor);
    return (mixed ^ (mixed >>> 15)) & this.#mask;
  }

  #place(left: number, right: number, rank: number, merged: number): boolean {
    const cells = this.#cells;
    let slot = this.#hash(left, right);
    for (; cells[slot * STRIDE] !== 0; slot = (slot + 1) & this.#mask) {
      if (cells[slot * STRIDE] === left + 1 && cells[slot * STRIDE + 1] === right) return false;
    }
    cells[slot * STRIDE] = left + 1;
    cells[slot * STRIDE + 1] = right;
    cells[slot * STRIDE + 2] = rank;
    cells[slot * STRIDE + 3] = merged;
    return true;
  }

  #grow(): void {
    const old = this.#cells;
    this.#cells = new Int32Array(2 * old.length);
    this.#mask = 2 * this.#mask + 1;
    for (let cell = 0; cell < old.length; cell += STRIDE) {
      const left = old[cell] ?? 0;
      if (left === 0) continue;
      this.#place(left - 1, old[cell + 1] ?? 0, old[cell + 2] ?? 0, old[cell + 3] ?? 0);
    }
  }
}

/** What a list of merges holds. */
export interface Merges {
  /** The pairs; the position in the list is the rank. */
  readonly table: MergeTable;
  /**
   * Whether no merge joins a piece that does not end in "▁" with one that begins with "▁". Then
   * text can be cut before each such "▁" without changing the result.
   */
  readonly keepsMarkersApart: boolean;
}

/**
 * Reads a list of merges, in order of rank: "left right" with one space between, or a pair of
 * strings.
 *
 * @param isSpecial tokens that text must never merge into
 * @param where the file and key, for messages
 * @throws ForgeError `bad_model` when an entry has neither form or names a token the vocabulary
 * does not have
 */
export function readMerges(
  merges: readonly unknown[],
  vocabulary: Vocabulary,
  isSpecial: (id: number) => boolean,
  where: string,
): Merges {
  const table = new MergeTable(merges.length);
  const ids = new Int32Array(3);
  let keepsMarkersApart = true;
  for (let rank = 0; rank < merges.length; rank++) {
    const merge = merges[rank];
    let left: unknown = merge, right: unknown = merge, leftEnd = 0, rightStart = 0;
    if (typeof merge === "string") {
      if (rank === 0 && merge.startsWith("#version")) continue;
      leftEnd = merge.indexOf(" ", 1); // from 1: a piece may itself begin with a space
      rightStart = leftEnd + 1;
    } else if (Array.isArray(merge) && merge.length === 2) {
      [left, right] = merge;
      if (typeof left === "string") leftEnd = left.length;
    }
    if (typeof left !== "string" || typeof right !== "string" || leftEnd <= 0) {
      throw new ForgeError(
        "bad_model",
        `${where}[${rank}] is ${quote(JSON.stringify(merge) ?? "undefined")}; ` +
          `expected "left right" or ["left", "right"]`,
      );
    }
    vocabulary.idsOfPair(left, leftEnd, right, rightStart, ids);
    const [leftId = -1, rightId = -1, merged = -1] = ids;
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
    if (!isSpecial(merged)) table.add(leftId, rightId, rank, merged);
  }
  return { table, keepsMarkersApart };
}

/** "▁" (U+2581), which stands for a space in SentencePiece vocabularies. */
const MARKER = 0x2581;

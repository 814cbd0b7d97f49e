/** Positions are below 2^26 so that rank and position fit a double's 53 bits together. */
const POSITION_RANGE = 2 ** 26;

/** The longest word, in symbols, that a merge queue can hold. */
export const MAX_WORD_SYMBOLS = POSITION_RANGE;

/** A binary heap of (rank, position) that gives the lowest rank first, leftmost on ties. */
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
      const above = keys[parent] ?? 0;
      if (above <= key) break;
      keys[child] = above;
      child = parent;
    }
    keys[child] = key;
  }

  /** Removes the first entry and returns it as one number; see `rankOf` and `positionOf`. */
  pop(): number {
    const keys = this.#keys;
    const first = keys[0] ?? 0;
    const size = --this.#size;
    const key = keys[size] ?? 0;
    let parent = 0;
    for (;;) {
      let child = 2 * parent + 1;
      if (child >= size) break;
      if (child + 1 < size && (keys[child + 1] ?? 0) < (keys[child] ?? 0)) child++;
      const below = keys[child] ?? 0;
      if (below >= key) break;
      keys[parent] = below;
      parent = child;
    }
    keys[parent] = key;
    return first;
  }

  /** The rank of an entry that `pop` returned. */
  static rankOf(entry: number): number {
    return Math.floor(entry / POSITION_RANGE);
  }

  /** The position of an entry that `pop` returned. */
  static positionOf(entry: number): number {
    return entry % POSITION_RANGE;
  }
}

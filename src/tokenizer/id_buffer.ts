/** A growing list of token ids: what an array of numbers would be, without boxing or re-hashing. */
export class IdBuffer {
  /** The ids; only the first `length` count. Replaced when the buffer grows. */
  data: Int32Array;
  /** How many ids there are. May be lowered to drop the last ones. */
  length = 0;

  constructor(capacity = 64) {
    this.data = new Int32Array(Math.max(1, capacity));
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
    for (let i = start; i < end; i++) this.data[this.length++] = source[i] ?? 0;
  }

  /** A copy of the ids. */
  toArray(): Int32Array {
    return this.data.slice(0, this.length);
  }

  #grow(needed: number): void {
    const grown = new Int32Array(Math.max(needed, 2 * this.data.length));
    grown.set(this.data);
    this.data = grown;
  }
}

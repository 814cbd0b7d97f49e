/** Token ids that grow at the end. */
export class TokenList {
  #ids: Int32Array;
  #length: number;

  constructor(tokens: ArrayLike<number>) {
    this.#ids = Int32Array.from(tokens);
    this.#length = tokens.length;
  }

  get length(): number {
    return this.#length;
  }

  /** Drops the tokens behind the first `length`. */
  truncate(length: number): void {
    this.#length = Math.min(length, this.#length);
  }

  /** The token at a place; `undefined` behind the last one. */
  at(place: number): number | undefined {
    return place < this.#length ? this.#ids[place] : undefined;
  }

  push(token: number): void {
    if (this.#length === this.#ids.length) {
      const larger = new Int32Array(2 * this.#length + 64);
      larger.set(this.#ids);
      this.#ids = larger;
    }
    this.#ids[this.#length++] = token;
  }

  /** The tokens from `start` to `end`; not a copy. */
  view(start: number, end = this.#length): Int32Array {
    return this.#ids.subarray(start, Math.min(end, this.#length));
  }
}

/** How many tokens two sequences have in common from their beginning. */
export function commonLength(a: ArrayLike<number>, b: ArrayLike<number>): number {
  const most = Math.min(a.length, b.length);
  let length = 0;
  while (length < most && a[length] === b[length]) length++;
  return length;
}

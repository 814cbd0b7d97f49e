/** Low-rank adapters that a sequence is computed with. */
export interface SequenceAdapters {
  /** Scale of each of the model's adapters, 0 for those that are not used. */
  readonly scales: Float32Array;
  /** Differs for different scales. */
  readonly key: string;
}

/** Growing list of token ids, with the adapters under which the tokens are computed. */
export class TokenList {
  /** `undefined` for the model without adapters. */
  readonly adapters: SequenceAdapters | undefined;
  #ids: Int32Array;
  #length: number;

  constructor(tokens: ArrayLike<number>, adapters?: SequenceAdapters) {
    this.adapters = adapters;
    this.#ids = Int32Array.from(tokens);
    this.#length = tokens.length;
  }

  get length(): number {
    return this.#length;
  }

  /** Drops all tokens after the first `length`. */
  truncate(length: number): void {
    this.#length = Math.min(length, this.#length);
  }

  /** Returns the token at an index; `undefined` past the end. */
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

  /** Returns the tokens from `start` to `end` as a view, not a copy. */
  view(start: number, end = this.#length): Int32Array {
    return this.#ids.subarray(start, Math.min(end, this.#length));
  }
}

/** Returns the length of the common prefix of two sequences. */
export function commonLength(a: ArrayLike<number>, b: ArrayLike<number>): number {
  const most = Math.min(a.length, b.length);
  let length = 0;
  while (length < most && a[length] === b[length]) length++;
  return length;
}

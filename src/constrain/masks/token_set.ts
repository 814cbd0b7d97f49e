/** Collects tokens of a vocabulary. */
export class TokenSetBuilder {
  readonly #words: Uint32Array;
  #count = 0;

  /** @param words number of 32-bit words in a mask of the vocabulary */
  constructor(words: number) {
    this.#words = new Uint32Array(words);
  }

  add(token: number): void {
    this.#words[token >> 5]! |= 1 << (token & 31);
    this.#count++;
  }

  /** Returns the set. The builder must not be used afterwards. */
  build(): TokenSet {
    return new TokenSet(this.#words, this.#count);
  }
}

/** A set of tokens: a list if it is small, otherwise a bit mask of the vocabulary. */
export class TokenSet {
  readonly #list: Int32Array | undefined;
  readonly #words: Uint32Array | undefined;

  /** @param most upper bound on the number of tokens */
  constructor(words: Uint32Array, most: number) {
    if (most >= words.length) {
      this.#words = words;
      return;
    }
    const list: number[] = [];
    words.forEach((word, i) => {
      for (let rest = word; rest !== 0; rest &= rest - 1) {
        list.push(32 * i + 31 - Math.clz32(rest & -rest));
      }
    });
    this.#list = Int32Array.from(list);
  }

  get isEmpty(): boolean {
    return this.#list?.length === 0;
  }

  get byteLength(): number {
    return (this.#list ?? this.#words)!.byteLength;
  }

  /** Sets the bits of the tokens. */
  addTo(mask: Uint32Array): void {
    const list = this.#list, words = this.#words;
    if (list !== undefined) {
      for (let i = 0; i < list.length; i++) mask[list[i]! >> 5]! |= 1 << (list[i]! & 31);
    }
    if (words !== undefined) {
      for (let i = 0; i < words.length; i++) mask[i]! |= words[i]!;
    }
  }
}

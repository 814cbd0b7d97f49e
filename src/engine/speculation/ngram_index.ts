import type { TokenList } from "../token_list.ts";

const SMALLEST = 2 ** 8;
const LARGEST = 2 ** 16;

/**
 * Hash table of bounded size from each n-gram of a growing text to its latest end. Of n-grams with
 * the same hash, the latest is kept.
 */
export class NgramIndex {
  readonly order: number;
  /** Ends of n-grams, exclusive; 0 for an empty place. */
  #ends = new Int32Array(SMALLEST);
  #count = 0;

  /** @param order number of tokens of an n-gram */
  constructor(order: number) {
    this.order = order;
  }

  /**
   * Records the n-gram that ends before `end`.
   *
   * @returns end of its previous occurrence; 0 if unknown
   */
  visit(tokens: TokenList, end: number): number {
    if (end < this.order) return 0;
    const place = this.#placeOf(tokens, end);
    const before = this.#ends[place]!;
    this.#ends[place] = end;
    if (before === 0) this.#grow(tokens);
    return before > 0 && this.#isSame(tokens, before, end) ? before : 0;
  }

  /** Doubles the table when a quarter of it is in use. */
  #grow(tokens: TokenList): void {
    if (4 * ++this.#count < this.#ends.length || this.#ends.length === LARGEST) return;
    const ends = this.#ends;
    this.#ends = new Int32Array(2 * ends.length);
    // Ends at different places of the smaller table have different places in the larger one.
    for (const end of ends) if (end > 0) this.#ends[this.#placeOf(tokens, end)] = end;
  }

  #isSame(tokens: TokenList, a: number, b: number): boolean {
    for (let i = 1; i <= this.order; i++) if (tokens.at(a - i) !== tokens.at(b - i)) return false;
    return true;
  }

  /** Hash in the manner of FNV-1a; the size of the table is a power of two. */
  #placeOf(tokens: TokenList, end: number): number {
    let hash = 0x811c9dc5;
    for (let i = end - this.order; i < end; i++) {
      hash = Math.imul(hash ^ tokens.at(i)!, 0x01000193);
      hash ^= hash >>> 15;
    }
    return Math.imul(hash, 0x9e3779b1) >>> 16 & this.#ends.length - 1;
  }
}

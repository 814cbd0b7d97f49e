import type { ConstraintState } from "./constraint.ts";

/** A mask that allows more tokens than this is wide. */
const WIDE = 64;

/** The tokens that a constraint allows next in one sequence. */
export class TokenMask {
  readonly #state: ConstraintState;
  readonly #words: Uint32Array;
  #isRestricted = false;
  #isPutOff = false;
  #wasWide = false;
  #isDisposed = false;

  constructor(state: ConstraintState, vocabSize: number) {
    this.#state = state;
    this.#words = new Uint32Array(Math.ceil(vocabSize / 32));
  }

  /** One bit a token; `undefined` when every token is allowed. To be read once it is filled. */
  get words(): Uint32Array | undefined {
    return this.#isRestricted ? this.#words : undefined;
  }

  /** Fills the words, where that was put off. */
  get fillLater(): (() => void) | undefined {
    return this.#isPutOff ? () => this.#fill() : undefined;
  }

  get isTerminated(): boolean {
    return this.#state.isTerminated;
  }

  /**
   * Finds out what is allowed now. Returns the token, where it is only one.
   *
   * Behind a place where much was allowed, as inside of a string, a single token is not to be expected:
   * there the work is put off until the device computes.
   */
  update(): number | undefined {
    this.#isPutOff = this.#wasWide;
    this.#isRestricted = true;
    if (this.#isPutOff) return undefined;
    this.#fill();
    return this.#isRestricted ? onlyBit(this.#words) : undefined;
  }

  #fill(): void {
    this.#isPutOff = false;
    this.#isRestricted = this.#state.fillMask(this.#words);
    // What may be read already has to say so in its words.
    if (!this.#isRestricted) this.#words.fill(0xffffffff);
    this.#wasWide = !this.#isRestricted || hasMoreBits(this.#words, WIDE);
  }

  accept(token: number): void {
    this.#state.accept(token);
  }

  dispose(): void {
    if (!this.#isDisposed) this.#state.dispose();
    this.#isDisposed = true;
  }
}

/** The position of the one bit that is set; `undefined` when there is none or more than one. */
function onlyBit(words: Uint32Array): number | undefined {
  let found: number | undefined;
  for (let i = 0; i < words.length; i++) {
    const word = words[i]!;
    if (word === 0) continue;
    if (found !== undefined || (word & (word - 1)) !== 0) return undefined;
    found = 32 * i + 31 - Math.clz32(word);
  }
  return found;
}

/** Whether more than `most` bits are set. */
function hasMoreBits(words: Uint32Array, most: number): boolean {
  let count = 0;
  for (let i = 0; i < words.length; i++) {
    for (let word = words[i]!; word !== 0; word &= word - 1) {
      if (++count > most) return true;
    }
  }
  return false;
}

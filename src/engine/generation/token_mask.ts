import type { ConstraintState } from "../request/constraint.ts";

/** A mask that allows more tokens than this is wide. */
const WIDE = 64;

/** The tokens that a constraint allows next in one sequence. */
export class TokenMask {
  readonly #state: ConstraintState;
  readonly #words: Uint32Array;
  #isRestricted = false;
  #isPutOff = false;
  #isCurrent = false;
  #wasWide = false;
  #only: number | undefined;
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

  /** The token that is allowed, where it is the only one and the words are filled. */
  get only(): number | undefined {
    return this.#only;
  }

  get isTerminated(): boolean {
    return this.#state.isTerminated;
  }

  /** Whether a token may be allowed; known for certain once the words are filled. */
  mayAllow(token: number): boolean {
    if (this.#isPutOff || !this.#isRestricted) return true;
    return ((this.#words[token >>> 5] ?? 0) >>> (token & 31) & 1) === 1;
  }

  /**
   * Finds out what is allowed now, if that is not known.
   *
   * Behind a place where much was allowed, as inside of a string, a single token is not to be expected:
   * there the work is put off until the device computes.
   */
  update(): void {
    if (this.#isCurrent) return;
    this.#isCurrent = true;
    this.#isPutOff = this.#wasWide;
    this.#isRestricted = true;
    this.#only = undefined;
    if (!this.#isPutOff) this.#fill();
  }

  #fill(): void {
    this.#isPutOff = false;
    this.#isRestricted = this.#state.fillMask(this.#words);
    this.#only = this.#isRestricted ? onlyBit(this.#words) : undefined;
    // What may be read already has to say so in its words.
    if (!this.#isRestricted) this.#words.fill(0xffffffff);
    // Where all is allowed there was nothing to find out, and mostly there is not in the next place.
    this.#wasWide = this.#isRestricted && hasMoreBits(this.#words, WIDE);
  }

  /** Goes on by a token. @throws {ForgeError} `bad_input` for one that is not allowed */
  accept(token: number): void {
    this.#state.accept(token);
    this.#isCurrent = false;
  }

  /** The mask behind a token that may follow, {@linkcode update} yet to be called. */
  fork(token: number): TokenMask {
    const mask = new TokenMask(this.#state.fork(), 32 * this.#words.length);
    mask.#wasWide = this.#wasWide || this.#isPutOff;
    try {
      mask.accept(token);
    } catch (error) {
      mask.dispose();
      throw error;
    }
    return mask;
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

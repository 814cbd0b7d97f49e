import type { ConstraintState } from "../request/constraint.ts";

/** A mask that allows more tokens than this is wide. */
const WIDE = 64;

/** Mask of the tokens that a constraint allows next in one sequence. */
export class TokenMask {
  readonly #state: ConstraintState;
  readonly #words: Uint32Array;
  #isRestricted = false;
  #isDeferred = false;
  #isCurrent = false;
  #wasWide = false;
  #only: number | undefined;
  #isDisposed = false;

  constructor(state: ConstraintState, vocabSize: number) {
    this.#state = state;
    this.#words = new Uint32Array(Math.ceil(vocabSize / 32));
  }

  /** One bit per token; `undefined` if every token is allowed. Valid once it is filled. */
  get words(): Uint32Array | undefined {
    return this.#isRestricted ? this.#words : undefined;
  }

  /** Fills the words, if that was deferred. */
  get fillLater(): (() => void) | undefined {
    return this.#isDeferred ? () => this.#fill() : undefined;
  }

  /** The only allowed token, if the words are filled and allow one token. */
  get only(): number | undefined {
    return this.#only;
  }

  get isTerminated(): boolean {
    return this.#state.isTerminated;
  }

  /** True if a token may be allowed; exact once the words are filled. */
  mayAllow(token: number): boolean {
    if (this.#isDeferred || !this.#isRestricted) return true;
    return ((this.#words[token >>> 5] ?? 0) >>> (token & 31) & 1) === 1;
  }

  /**
   * Updates the mask for the current state.
   *
   * After a wide mask, as inside of a string, a forced token is unlikely: the work is deferred
   * until the device computes.
   */
  update(): void {
    if (this.#isCurrent) return;
    this.#isCurrent = true;
    this.#isDeferred = this.#wasWide;
    this.#isRestricted = true;
    this.#only = undefined;
    if (!this.#isDeferred) this.#fill();
  }

  #fill(): void {
    this.#isDeferred = false;
    this.#isRestricted = this.#state.fillMask(this.#words);
    this.#only = this.#isRestricted ? onlyBit(this.#words) : undefined;
    // The words may be read already, so that they must allow all tokens.
    if (!this.#isRestricted) this.#words.fill(0xffffffff);
    // An unrestricted mask is cheap, and the next one usually is, too.
    this.#wasWide = this.#isRestricted && hasMoreBits(this.#words, WIDE);
  }

  /** Advances by a token. @throws {ForgeError} `bad_input` if it is not allowed */
  accept(token: number): void {
    this.#state.accept(token);
    this.#isCurrent = false;
  }

  /** Returns the mask after a token, before its {@linkcode update}. */
  fork(token: number): TokenMask {
    const mask = new TokenMask(this.#state.fork(), 32 * this.#words.length);
    mask.#wasWide = this.#wasWide;
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

/** Returns the position of the only bit set; `undefined` for none or several. */
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

/** True if more than `most` bits are set. */
function hasMoreBits(words: Uint32Array, most: number): boolean {
  let count = 0;
  for (let i = 0; i < words.length; i++) {
    for (let word = words[i]!; word !== 0; word &= word - 1) {
      if (++count > most) return true;
    }
  }
  return false;
}

import type { ConstraintState } from "./constraint.ts";

/** The tokens that a constraint allows next in one sequence. */
export class TokenMask {
  readonly #state: ConstraintState;
  readonly #words: Uint32Array;
  #isRestricted = false;
  #isDisposed = false;

  constructor(state: ConstraintState, vocabSize: number) {
    this.#state = state;
    this.#words = new Uint32Array(Math.ceil(vocabSize / 32));
  }

  /** One bit a token; `undefined` when every token is allowed. */
  get words(): Uint32Array | undefined {
    return this.#isRestricted ? this.#words : undefined;
  }

  get isTerminated(): boolean {
    return this.#state.isTerminated;
  }

  /** Finds out what is allowed now. Returns the token, where it is only one. */
  update(): number | undefined {
    this.#isRestricted = this.#state.fillMask(this.#words);
    return this.#isRestricted ? onlyBit(this.#words) : undefined;
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

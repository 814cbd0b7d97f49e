/**
 * What the engine asks of a constraint on the text, such as a JSON schema, a regular expression or a
 * grammar. `src/constrain` implements it; the engine knows tokens and masks only.
 */

/** A compiled constraint. It is not changed by use, so that any number of sequences can share it. */
export interface Constraint {
  /** A state at the beginning of the text. */
  start(): ConstraintState;
}

/**
 * How far one sequence has come in its constraint.
 *
 * For every token of the answer the engine calls `fillMask` and then `accept`. A mask that allows one
 * token alone decides it: the model is not asked. A token that ends the answer is never accepted; the
 * mask allows it exactly where the text may end. Until then the mask allows at least one token.
 */
export interface ConstraintState {
  /**
   * Sets which tokens may come next: bit `i` of word `w` allows token `32 w + i`.
   *
   * @param mask `ceil(vocabSize / 32)` words for the model's vocabulary, which may be padded beyond the
   * tokenizer's; all of them are written when true is returned
   * @returns false when every token is allowed, and the mask was left as it was
   */
  fillMask(mask: Uint32Array): boolean;
  /**
   * Goes on by a token, which the mask allowed.
   *
   * @throws {ForgeError} `bad_input` for a token that is not allowed here
   */
  accept(token: number): void;
  /** Whether nothing more may follow but the end: the answer is complete. */
  readonly isTerminated: boolean;
  /** A copy that goes on by itself. */
  fork(): ConstraintState;
  /** Frees what the state holds; it is of no use afterwards. */
  dispose(): void;
}

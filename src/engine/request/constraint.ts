import type { ConstraintCost } from "../../constrain/compiled_constraint.ts";
import type { Constraints } from "../../constrain/constraints.ts";
import { checkScope, constraintName, constraintSpec } from "../../constrain/spec.ts";
import { ForgeError } from "../../errors.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import type { GenerateOptions } from "./options.ts";

/**
 * Interface of a constraint on the text, such as a JSON schema, a regular expression or a grammar.
 * `src/constrain` implements it; the engine only sees tokens and masks.
 */

/** Compiled constraint. It is immutable, so that any number of sequences can share it. */
export interface Constraint {
  /** Returns a state at the beginning of the text. */
  start(): ConstraintState;
}

/**
 * State of one sequence in its constraint.
 *
 * For every token of the answer the engine calls `fillMask` and then `accept`. A mask that allows
 * one token forces it without a run of the model. An end token is never passed to `accept`; the
 * mask allows it exactly where the text may end. A mask allows at least one token until the
 * constraint has terminated.
 */
export interface ConstraintState {
  /**
   * Fills the mask of the next token: bit `i` of word `w` allows token `32 w + i`.
   *
   * @param mask `ceil(vocabSize / 32)` words for the model's vocabulary, which may be padded beyond
   * the tokenizer's; all of them are written if true is returned
   * @returns false if every token is allowed; the mask is unchanged then
   */
  fillMask(mask: Uint32Array): boolean;
  /**
   * Advances by a token that the mask allowed.
   *
   * @throws {ForgeError} `bad_input` for a token that is not allowed here
   */
  accept(token: number): void;
  /** True if only the end may follow: the answer is complete. */
  readonly isTerminated: boolean;
  /** Returns an independent copy. */
  fork(): ConstraintState;
  /** Frees the state; it must not be used afterwards. */
  dispose(): void;
}

/** Constraints of one model. Their code is loaded when the first one is used. */
export class LazyConstraints {
  readonly #tokenizer: Tokenizer;
  readonly #vocabSize: number;
  readonly #endTokens: ReadonlySet<number>;
  #constraints: Constraints | undefined;

  constructor(tokenizer: Tokenizer, vocabSize: number, endTokens: ReadonlySet<number>) {
    this.#tokenizer = tokenizer;
    this.#vocabSize = vocabSize;
    this.#endTokens = endTokens;
  }

  /** Cost of constraints so far; `undefined` before the first. */
  get cost(): ConstraintCost | undefined {
    return this.#constraints && { ...this.#constraints.cost };
  }

  /**
   * Compiles the constraint that the options ask for, or returns it from the cache.
   *
   * @param startsText true if the answer is a whole text, not the continuation of a prompt
   * @throws {ForgeError} `usage` or `unsupported`, naming the part that cannot be enforced
   */
  async compile(options: GenerateOptions, startsText: boolean): Promise<Constraint | undefined> {
    const spec = constraintSpec(options);
    const { constraintScope: scope } = options;
    if (spec === undefined) {
      if (scope === undefined) return options.constraint;
      throw new ForgeError("usage", "constraintScope is given without a constraint to hold there");
    }
    if (options.constraint !== undefined) {
      throw new ForgeError(
        "usage",
        `constraint and ${constraintName(options)} are given; valid is one of them`,
      );
    }
    const strips = startsText && this.#tokenizer.stripsLeadingSpace;
    const { Constraints } = await import("../../constrain/constraints.ts");
    this.#constraints ??= new Constraints(this.#tokenizer, this.#vocabSize, this.#endTokens);
    if (scope === undefined) return await this.#constraints.compile(spec, strips);
    checkScope(scope, this.#vocabSize);
    const { ScopedConstraint } = await import("../../constrain/scoped_constraint.ts");
    const { prefixes = [""], suffixes = [""], opener } = scope;
    const framed = { kind: "framed", prefixes, inner: spec, suffixes } as const;
    const inner = await this.#constraints.compile(framed, false);
    const first = opener === undefined ? undefined : await this.#constraints.compile(spec, strips);
    const ends = [...this.#endTokens].filter((id) => id < this.#vocabSize);
    return new ScopedConstraint(scope, inner, first, ends);
  }

  dispose(): void {
    this.#constraints?.dispose();
  }
}

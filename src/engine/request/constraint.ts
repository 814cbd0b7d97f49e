import type { ConstraintCost } from "../../constrain/compiled_constraint.ts";
import type { Constraints } from "../../constrain/constraints.ts";
import { checkScope, constraintName, constraintSpec } from "../../constrain/spec.ts";
import { ForgeError } from "../../errors.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import type { GenerateOptions } from "./options.ts";

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

/** The constraints of one model. The code for them is only loaded once one is asked for. */
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

  /** What constraints have cost so far; `undefined` while none was used. */
  get cost(): ConstraintCost | undefined {
    return this.#constraints && { ...this.#constraints.cost };
  }

  /**
   * What the text must conform to, compiled if it was not before.
   *
   * @param startsText whether a leading space is taken off the text
   * @throws {ForgeError} `usage` or `unsupported`, naming what cannot be enforced
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
    const { Constraints } = await import("../../constrain/constraints.ts");
    this.#constraints ??= new Constraints(this.#tokenizer, this.#vocabSize, this.#endTokens);
    if (scope === undefined) return await this.#constraints.compile(spec, startsText);
    checkScope(scope, this.#vocabSize);
    const { ScopedConstraint } = await import("../../constrain/scoped_constraint.ts");
    const { prefixes = [""], suffixes = [""], opener } = scope;
    const framed = { kind: "framed", prefixes, inner: spec, suffixes } as const;
    const inner = await this.#constraints.compile(framed, false);
    const first = opener === undefined
      ? undefined
      : await this.#constraints.compile(spec, startsText);
    const ends = [...this.#endTokens].filter((id) => id < this.#vocabSize);
    return new ScopedConstraint(scope, inner, first, ends);
  }

  dispose(): void {
    this.#constraints?.dispose();
  }
}

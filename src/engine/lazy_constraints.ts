import type { ConstraintCost } from "../constrain/compiled_constraint.ts";
import type { Constraints } from "../constrain/constraints.ts";
import { checkScope } from "../constrain/scope.ts";
import { constraintName, constraintSpec } from "../constrain/spec.ts";
import { ForgeError } from "../errors.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import type { Constraint } from "./constraint.ts";
import type { GenerateOptions } from "./options.ts";

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
    const { Constraints } = await import("../constrain/constraints.ts");
    this.#constraints ??= new Constraints(this.#tokenizer, this.#vocabSize, this.#endTokens);
    if (scope === undefined) return await this.#constraints.compile(spec, startsText);
    checkScope(scope, this.#vocabSize);
    const { ScopedConstraint } = await import("../constrain/scoped_constraint.ts");
    const { before = [""], behind = [""], opener } = scope;
    const framed = { kind: "framed", before, inner: spec, behind } as const;
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

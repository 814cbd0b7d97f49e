import type { Constraint, ConstraintState } from "../engine/request/constraint.ts";
import { ForgeError } from "../errors.ts";
import type { ConstraintScope } from "./spec.ts";

/** A constraint on a part of an answer. */
export class ScopedConstraint implements Constraint {
  readonly scope: ConstraintScope;
  /** Applies after the token of the scope. */
  readonly inner: Constraint;
  /** Applies to an answer that does not begin with the scope's opener. */
  readonly first: Constraint | undefined;
  /** Tokens that end the answer. */
  readonly ends: readonly number[];

  constructor(
    scope: ConstraintScope,
    inner: Constraint,
    first: Constraint | undefined,
    ends: readonly number[],
  ) {
    this.scope = scope;
    this.inner = inner;
    this.first = first;
    this.ends = ends;
  }

  start(): ConstraintState {
    return new ScopedState(this, this.first?.start(), this.first !== undefined);
  }
}

/** The position of one sequence; `#held` is the state of the constraint that applies, if any. */
class ScopedState implements ConstraintState {
  readonly #all: ScopedConstraint;
  #held: ConstraintState | undefined;
  /** True before the first token, where the opener is allowed. */
  #isFirst: boolean;
  #isDisposed = false;

  constructor(all: ScopedConstraint, held: ConstraintState | undefined, isFirst: boolean) {
    this.#all = all;
    this.#held = held;
    this.#isFirst = isFirst;
  }

  fillMask(mask: Uint32Array): boolean {
    this.#requireLive();
    const { scope: { opener, isOptional }, ends } = this.#all;
    if (this.#held !== undefined) {
      const isRestricted = this.#held.fillMask(mask);
      if (isRestricted && this.#isFirst && opener !== undefined) {
        mask[opener >> 5]! |= 1 << (opener & 31);
      }
      return isRestricted;
    }
    if (isOptional) return false;
    mask.fill(0xffffffff);
    for (const id of ends) mask[id >> 5]! &= ~(1 << (id & 31));
    return true;
  }

  accept(token: number): void {
    this.#requireLive();
    const { scope: { after, opener, isOptional, repeats }, inner, ends } = this.#all;
    if (this.#isFirst && token === opener) {
      this.#free();
    } else if (this.#held !== undefined) {
      this.#held.accept(token);
      if (repeats && this.#held.isTerminated) this.#free();
    } else if (token === after) {
      this.#held = inner.start();
    } else if (!isOptional && ends.includes(token)) {
      throw new ForgeError("bad_input", `token ${token} is not allowed by the constraint here`);
    }
    this.#isFirst = false;
  }

  get isTerminated(): boolean {
    this.#requireLive();
    return this.#held?.isTerminated ?? false;
  }

  fork(): ConstraintState {
    this.#requireLive();
    return new ScopedState(this.#all, this.#held?.fork(), this.#isFirst);
  }

  dispose(): void {
    this.#free();
    this.#isDisposed = true;
  }

  #free(): void {
    this.#held?.dispose();
    this.#held = undefined;
  }

  #requireLive(): void {
    if (this.#isDisposed) throw new ForgeError("device", "the state of a constraint was freed");
  }
}

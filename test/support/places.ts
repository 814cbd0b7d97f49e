/** A constraint that lists the allowed tokens position by position. */
import type { Constraint, ConstraintState } from "../../src/engine/request/constraint.ts";
import { ForgeError } from "../../src/errors.ts";

/**
 * The allowed tokens for each position; an empty list allows all. The text ends after the last one.
 */
export class Places implements Constraint {
  readonly places: readonly (readonly number[])[];
  readonly end: readonly number[];
  open = 0;

  constructor(places: readonly (readonly number[])[], end: readonly number[] = []) {
    this.places = places;
    this.end = end;
  }

  start(): ConstraintState {
    return new Place(this, 0);
  }
}

class Place implements ConstraintState {
  readonly #all: Places;
  #at: number;

  constructor(all: Places, at: number) {
    this.#all = all;
    this.#at = at;
    all.open++;
  }

  fillMask(mask: Uint32Array): boolean {
    const { places, end } = this.#all;
    const allowed = places[this.#at] ?? end;
    if (this.#at < places.length && allowed.length === 0) return false;
    mask.fill(0);
    for (const id of allowed) mask[id >> 5]! |= 1 << (id & 31);
    return true;
  }

  accept(token: number): void {
    const allowed = this.#all.places[this.#at++];
    if (allowed === undefined || (allowed.length > 0 && !allowed.includes(token))) {
      throw new ForgeError("bad_input", `token ${token} is not allowed`);
    }
  }

  get isTerminated(): boolean {
    const { places, end } = this.#all;
    return this.#at === places.length && end.length === 0;
  }

  fork(): ConstraintState {
    return new Place(this.#all, this.#at);
  }

  dispose(): void {
    this.#all.open--;
  }
}

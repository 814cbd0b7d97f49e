import { ForgeError } from "../errors.ts";

/**
 * Limits of a constraint. Constraints are untrusted: without limits, a pattern of thirty characters
 * can require 2^30 states.
 */
export const LIMITS = {
  /** Characters of a grammar. */
  sourceLength: 1 << 20,
  /** Characters of a pattern. */
  patternLength: 20_000,
  /** Values of one enum. */
  values: 10_000,
  /** Nesting of groups, subschemas and values. */
  depth: 64,
  /** Nesting of arrays and objects in the JSON of a schema. */
  nesting: 256,
  /** Values of `minLength` and `maxLength`. */
  length: 65_536,
  /** Positions of one pattern with its repeats expanded. */
  positions: 20_000,
  /** States of one automaton. */
  states: 50_000,
  /** States times character classes of one automaton. */
  transitions: 1 << 20,
  /** Expressions of a whole grammar. */
  expressions: 100_000,
  /** Combinations of alternatives: allOf of anyOf of anyOf. */
  alternatives: 256,
  /** Alternatives that follow one place of a rule. */
  ways: 50_000,
  /** Steps to compile one constraint; a second or two. */
  steps: 10_000_000,
  /** Items of readings stepped for one mask, or work that takes as long; about a second. */
  work: 5_000_000,
} as const;

let steps = 0;

/** Resets the step counter. One counter is enough, because compiling never yields. */
export function beginSteps(): void {
  steps = 0;
}

/**
 * Counts steps of the constraint being compiled.
 *
 * @throws {ForgeError} `usage` above the limit
 */
export function countSteps(count: number): void {
  steps += count;
  if (steps > LIMITS.steps) {
    throw tooLarge("its patterns take too long to compile; fewer repeats or simpler ones may help");
  }
}

/** Rejects a value above a limit. */
export function checkLimit(what: string, value: number, most: number): void {
  if (value > most) throw tooLarge(`${what} is ${value}; at most ${most} is allowed`);
}

/** Returns an error for a constraint that would take too long. */
export function tooLarge(reason: string): ForgeError {
  return new ForgeError("usage", `the constraint is too large: ${reason}`);
}

import { ForgeError } from "../errors.ts";

/**
 * What a constraint may cost. Constraints are untrusted: without limits a pattern of thirty characters
 * can ask for 2^30 states.
 */
export const LIMITS = {
  /** Characters of a grammar. */
  sourceLength: 1 << 20,
  /** Characters of a pattern. */
  patternLength: 20_000,
  /** Values of one enum. */
  values: 10_000,
  /** How deep groups, subschemas and values may nest. */
  depth: 64,
  /** How deep the arrays and objects of a schema's JSON may nest. */
  nesting: 256,
  /** The value of `minLength` and `maxLength`. */
  length: 65_536,
  /** Positions of one pattern, its repeats written out. */
  positions: 20_000,
  /** States of one automaton. */
  states: 50_000,
  /** States of one automaton times the classes of characters it tells apart. */
  transitions: 1 << 20,
  /** Expressions of a whole grammar. */
  expressions: 100_000,
  /** Combinations of alternatives that hold together: allOf of anyOf of anyOf. */
  alternatives: 256,
  /** Ways on from one place of a rule. */
  ways: 50_000,
  /** Steps of compiling all of a constraint: about a second. */
  steps: 10_000_000,
  /** Places looked at for one mask: about a second. */
  work: 5_000_000,
} as const;

let steps = 0;

/** Begins to count the steps of a constraint. Compiling never yields, so that one counter serves all. */
export function beginSteps(): void {
  steps = 0;
}

/**
 * Counts steps of the constraint that is being compiled.
 *
 * @throws {ForgeError} `usage` when it takes too many
 */
export function countSteps(count: number): void {
  steps += count;
  if (steps > LIMITS.steps) {
    throw tooLarge("its patterns take too long to compile; fewer repeats or simpler ones may help");
  }
}

/** Refuses what is larger than a limit. */
export function checkLimit(what: string, value: number, most: number): void {
  if (value > most) throw tooLarge(`${what} is ${value}; at most ${most} is allowed`);
}

/** The error for a constraint that would take too long. */
export function tooLarge(reason: string): ForgeError {
  return new ForgeError("usage", `the constraint is too large: ${reason}`);
}

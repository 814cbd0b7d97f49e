import { ForgeError } from "../errors.ts";

/**
 * What a constraint may cost. Constraints are untrusted: without limits a pattern of thirty characters
 * can ask for 2^30 states. The engine's work for a state grows with the vocabulary, so that the limit
 * of states does too: see {@linkcode checkCost}.
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
  /** Positions of one pattern, its repeats written out. */
  positions: 20_000,
  /** States of one automaton. */
  states: 20_000,
  /** States of one automaton times the classes of characters it tells apart. */
  transitions: 1 << 20,
  /** Expressions of a whole grammar. */
  expressions: 100_000,
  /** Combinations of alternatives that hold together: allOf of anyOf of anyOf. */
  alternatives: 256,
} as const;

/**
 * The most that may be asked of the engine's compiler: wide states (those that allow most of a
 * vocabulary) times the size of the vocabulary. Measured with 128,256 tokens, a wide state of a
 * counted string takes 28 ms on one core, so that this is about nine seconds.
 */
export const MOST_WORK = 4e7;

/** Refuses what is larger than a limit. */
export function checkLimit(what: string, value: number, most: number): void {
  if (value > most) throw tooLarge(`${what} is ${value}; at most ${most} is allowed`);
}

export function tooLarge(reason: string): ForgeError {
  return new ForgeError("usage", `the constraint is too large: ${reason}`);
}

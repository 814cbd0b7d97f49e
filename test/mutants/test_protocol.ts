/** Messages between the judge of mutants and a process of tests: a line of JSON each. */

/** Precedes every answer, to tell it from what tests print. */
export const ANSWER_MARK = "\u0001";

/** The first line of a process: its tests, and the switches evaluated while modules loaded. */
export interface Loaded {
  readonly tests: readonly string[];
  readonly evaluated: readonly number[];
}

/** Asks for the switches that a test evaluates. */
export interface RecordRequest {
  readonly record: string;
}

/** The answer to a {@linkcode RecordRequest}. */
export interface Recorded {
  readonly passed: boolean;
  readonly ms: number;
  readonly evaluated: readonly number[];
}

/** Asks for the first of some tests that fails with a switch on. */
export interface JudgeRequest {
  readonly id: number;
  readonly tests: readonly string[];
}

/** The answer to a {@linkcode JudgeRequest}. */
export interface Verdict {
  readonly failed?: string;
  /** False if that test also fails with the switch off again. */
  readonly recovers: boolean;
}

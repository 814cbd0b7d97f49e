/** Inputs of recorded steps in benches. */
import type { StepInputs } from "../src/backend.ts";

/**
 * Returns the inputs of a step that continues some sequences by `n` tokens each, from position
 * `start` on.
 *
 * @param rows of the embedding of the step
 */
export function continuedSequences(
  sequences: readonly number[],
  n: number,
  start: number,
  pageTables: readonly Int32Array[],
  rows: number,
): StepInputs {
  const each = (value: (sequence: number, i: number) => number) =>
    sequences.flatMap((sequence) => Array.from({ length: n }, (_, i) => value(sequence, i)));
  return {
    tokens: each((sequence, i) => (sequence * 7 + (start + i) * 13) % rows),
    positions: each((_, i) => start + i),
    sequences: each((sequence) => sequence),
    pageTables,
    outputs: [],
  };
}

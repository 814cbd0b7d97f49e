/** Concurrent sequences that run through a step with recurrent state piece by piece. */
import type { Backend, StateCache, StateShape, StepInputs, Value } from "../../src/backend.ts";
import { type Matrix, matrixOfRows, rowOf } from "./matrix.ts";
import type { Random } from "./random.ts";
import { StepGraph } from "./step_graph.ts";

/** Consecutive tokens of a sequence. */
interface Piece {
  readonly sequence: number;
  readonly begin: number;
  readonly end: number;
}

/** The pieces that run together. Rows of all sequences are counted consecutively. */
export interface Schedule {
  readonly lengths: readonly number[];
  /** The slot of each sequence. */
  readonly slots: readonly number[];
  readonly nSlots: number;
  readonly steps: readonly (readonly Piece[])[];
}

export function totalRows({ lengths }: Schedule): number {
  return lengths.reduce((sum, length) => sum + length, 0);
}

/** The first row of each sequence. */
export function firstRows({ lengths }: Schedule): number[] {
  let at = 0;
  return lengths.map((length) => (at += length) - length);
}

/** Each sequence as one piece, one after another. */
export function wholeSchedule(lengths: readonly number[]): Schedule {
  return {
    lengths,
    slots: lengths.map((_, i) => i),
    nSlots: lengths.length,
    steps: lengths.map((end, sequence) => [{ sequence, begin: 0, end }]),
  };
}

/** Sequences in pieces of random lengths, combined at random, in random slots. */
export function randomSchedule(random: Random, lengths: readonly number[]): Schedule {
  const nSlots = lengths.length + random.int(0, 2);
  const slots = random.permutation(nSlots).slice(0, lengths.length);
  const done = lengths.map(() => 0);
  const steps: Piece[][] = [];
  while (done.some((count, i) => count < lengths[i]!)) {
    const step: Piece[] = [];
    for (const sequence of random.permutation(lengths.length)) {
      const left = lengths[sequence]! - done[sequence]!;
      if (left === 0 || random.chance(0.3)) continue;
      const count = Math.min(left, random.pick([1, 1, 2, 3, 5, 70]));
      step.push({ sequence, begin: done[sequence]!, end: done[sequence]! += count });
    }
    if (step.length > 0) steps.push(step);
  }
  return { lengths, slots, nSlots, steps };
}

/** The inputs of one step. Token ids are row numbers, so that an embedding can hold any matrix. */
function inputsOf(schedule: Schedule, step: readonly Piece[]): StepInputs {
  const first = firstRows(schedule);
  const tokens: number[] = [], positions: number[] = [], sequences: number[] = [];
  step.forEach(({ sequence, begin, end }, i) => {
    for (let position = begin; position < end; position++) {
      tokens.push(first[sequence]! + position);
      positions.push(position);
      sequences.push(i);
    }
  });
  return {
    tokens,
    positions,
    sequences,
    pageTables: step.map(() => [0]),
    slots: step.map(({ sequence }) => schedule.slots[sequence]!),
    outputs: [],
  };
}

/**
 * Runs a schedule through one recorded step. Slots start with arbitrary contents.
 *
 * @returns the recorded value for each row of the sequences
 */
export async function runSchedule(
  device: Backend,
  schedule: Schedule,
  shape: Omit<StateShape, "nSlots">,
  cols: number,
  record: (graph: StepGraph, state: StateCache) => Value,
): Promise<Matrix> {
  const { nSlots, steps } = schedule;
  const state = device.createState({ ...shape, nSlots });
  const rubbish = new Uint8Array(state.slotBytes).fill(0x7f);
  for (let slot = 0; slot < nSlots; slot++) state.writeSlot(slot, rubbish);
  const all = steps.map((step) => inputsOf(schedule, step));
  const recorder = device.record({
    maxTokens: Math.max(...all.map(({ tokens }) => tokens.length)),
    maxOutputs: 1,
    maxSequences: Math.max(...steps.map((step) => step.length)),
    maxPages: 1,
  });
  const value = record(new StepGraph(device, recorder), state);
  recorder.keep(value);
  const step = await recorder.finish();
  const rows: Float32Array[] = [];
  try {
    for (const inputs of all) {
      await step.run(inputs);
      const count = inputs.tokens.length;
      const data = new Float32Array(step.read(value, cols, 0, count));
      const result = { rows: count, cols, data };
      Array.from(inputs.tokens, (token, row) => rows[token] = rowOf(result, row));
    }
  } finally {
    step.release();
  }
  return matrixOfRows(totalRows(schedule), cols, (row) => rows[row]!);
}

/** Records one step of a few operations, runs it and reads the result. */
import type {
  Backend,
  KvCache,
  KvShape,
  OutputRequest,
  Recorder,
  SamplingParams,
  StepInputs,
  StepLimits,
  Value,
  Weight,
} from "../../src/backend.ts";
import type { Matrix } from "./matrix.ts";
import { f32Weight, type TestWeight } from "./weights.ts";

/** The sampling chain with all filters off. */
export const greedy: SamplingParams = {
  repeatPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  seed: 0n,
};

/** An output that only returns its row. */
export function outputRow(row: number, request: Partial<OutputRequest> = {}): OutputRequest {
  return { row, sampling: greedy, history: [], stream: 0, position: 0, nTop: 0, ...request };
}

/** Tokens 0 to `n - 1` of one sequence, which owns page 0; by default without outputs. */
export function tokenInputs(n: number, outputs: readonly OutputRequest[] = []): StepInputs {
  const numbers = Int32Array.from({ length: n }, (_, i) => i);
  return {
    tokens: numbers,
    positions: numbers,
    sequences: new Int32Array(n),
    pageTables: [[0]],
    outputs,
  };
}

/** The smallest limits that admit the inputs. */
export function limitsOf(inputs: StepInputs): StepLimits {
  return {
    maxTokens: inputs.tokens.length,
    maxOutputs: Math.max(1, inputs.outputs.length),
    maxSequences: inputs.pageTables.length,
    maxPages: Math.max(1, ...inputs.pageTables.map((table) => table.length)),
  };
}

/** A value and its number of columns. */
export interface Kept {
  readonly value: Value;
  readonly cols: number;
}

/** The recording interface of tests: a recorder, and inputs made of plain numbers. */
export class StepGraph {
  readonly backend: Backend;
  readonly recorder: Recorder;

  constructor(backend: Backend, recorder: Recorder) {
    this.backend = backend;
    this.recorder = recorder;
  }

  /** A value whose row for token `i` is row `i` of a matrix. */
  input(matrix: Matrix): Value {
    return this.recorder.embed(this.weight(f32Weight(matrix)));
  }

  weight({ type, rows, cols, bytes }: TestWeight): Weight {
    return this.backend.uploadWeight(type, rows, cols, bytes);
  }

  optionalWeight(weight: TestWeight | undefined): Weight | undefined {
    return weight === undefined ? undefined : this.weight(weight);
  }

  kv(shape: KvShape): KvCache {
    return this.backend.createKv(shape);
  }
}

/** Records and runs a step once; returns the rows of the value that `record` returns. */
export async function runStep(
  backend: Backend,
  inputs: StepInputs,
  record: (graph: StepGraph) => Kept,
  rows: "tokens" | "outputs" = "tokens",
): Promise<Matrix> {
  const recorder = backend.record(limitsOf(inputs));
  const { value, cols } = record(new StepGraph(backend, recorder));
  recorder.keep(value);
  const step = await recorder.finish();
  try {
    await step.run(inputs);
    const count = inputs[rows].length;
    return { rows: count, cols, data: new Float32Array(step.read(value, cols, 0, count)) };
  } finally {
    step.release();
  }
}

/** Timing steps on a GPU. */
import type { Backend, Meter, Step, StepInputs, StepLimits, Value } from "../../src/backend.ts";
import { Random } from "../../src/bench/random.ts";
import { median } from "../../src/bench/statistics.ts";
import { say, type SpeedLine } from "./lines.ts";

/** Runs before any is timed: one makes the plan, one captures the graph, one replays it. */
const WARM_UPS = 3;

/** How long to measure. */
export interface TimingOptions {
  /** @default 20 */
  readonly most?: number;
  /** Past these milliseconds, five runs are enough. @default 250 */
  readonly enough?: number;
}

/** The median of a step's runs, in microseconds, as its caller sees them. */
export async function timeRuns(
  step: Step,
  inputs: StepInputs,
  { most = 20, enough = 250 }: TimingOptions = {},
): Promise<number> {
  for (let i = 0; i < WARM_UPS; i++) await step.run(inputs);
  const times: number[] = [];
  const begin = performance.now();
  while (times.length < most && (times.length < 5 || performance.now() - begin < enough)) {
    const start = performance.now();
    await step.run(inputs);
    times.push((performance.now() - start) * 1e3);
  }
  return median(times);
}

/** What one step takes beyond another: of work that one of them lacks. */
export async function timeBeyond(
  step: Step,
  base: Step,
  inputs: StepInputs,
  options: TimingOptions = {},
): Promise<number> {
  return await timeRuns(step, inputs, options) - await timeRuns(base, inputs, options);
}

/** Inputs of `tokens` tokens of one sequence, none of whose logits are wanted. */
export function tokenInputs(tokens: number): StepInputs {
  const numbers = Int32Array.from({ length: tokens }, (_, i) => i);
  return {
    tokens: numbers,
    positions: numbers,
    sequences: new Int32Array(tokens),
    pageTables: [[0]],
    outputs: [],
  };
}

/** Limits of a step that takes such inputs. */
export function tokenLimits(tokens: number): StepLimits {
  return { maxTokens: tokens, maxOutputs: tokens, maxSequences: 1, maxPages: 1 };
}

/** A step whose values begin with random rows `[tokens, cols]`. */
export async function randomStep(
  backend: Backend,
  limits: StepLimits,
  cols: number,
  rows: number,
  record: (recorder: ReturnType<Backend["record"]>, x: Value) => void,
): Promise<Step> {
  const random = new Random(cols);
  // A period that no power of two divides: rows are unlike each other.
  const pool = Float32Array.from({ length: 65_521 }, () => random.normal(1));
  const table = new Float32Array(rows * cols);
  for (let at = 0; at < table.length; at += pool.length) {
    table.set(pool.subarray(0, table.length - at), at);
  }
  const recorder = backend.record(limits);
  record(
    recorder,
    recorder.embed(backend.uploadWeight("F32", rows, cols, new Uint8Array(table.buffer))),
  );
  return await recorder.finish();
}

/** Reports a speed, or that the work was lost in what two runs differ by anyway. */
export function saySpeed(line: SpeedLine): void {
  if (line.microseconds > 0) say(line);
  else say({ kind: "note", text: `${line.group}, ${line.name}: too short to be timed` });
}

/** Measures and reports what a copy moves. */
export function sayCopyLimit(device: Meter): void {
  const bytes = device.readBandwidth();
  if (bytes > 0) say({ kind: "limit", name: "copy GB/s", value: bytes / 1e9 });
}

/** 10^9 bytes a second. */
export function gigabytes(bytes: number, microseconds: number): number {
  return bytes / microseconds / 1e3;
}

/** 10^12 operations a second. */
export function teraflops(operations: number, microseconds: number): number {
  return operations / microseconds / 1e6;
}

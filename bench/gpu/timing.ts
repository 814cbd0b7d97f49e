/** Timing of steps on a GPU. */
import type { Backend, Meter, Step, StepInputs, StepLimits, Value } from "../../src/backend.ts";
import { Random } from "../../src/bench/random.ts";
import { median } from "../../src/bench/statistics.ts";
import { say, type SpeedLine } from "./lines.ts";

/** Untimed runs: the first makes the plan, the second captures the graph, the third replays it. */
const WARM_UPS = 3;
/** Milliseconds of work after which an idle GPU has raised its clocks, from 345 MHz on an H200. */
export const WARM_UP_MS = 150;
/** Milliseconds after which an idle GPU may have lowered them. */
const IDLE_MS = 100;
/** Milliseconds of a measurement, in which short steps run hundreds of times. */
export const MEASURED_MS = 60;
/** Fewest runs of a measurement. */
const FEWEST = 5;

/** When the last measurement ended. */
let lastEnd = -Infinity;

/** Median of a step's runs, in microseconds, as measured by the caller. */
export async function timeRuns(step: Step, inputs: StepInputs): Promise<number> {
  const wasIdle = performance.now() - lastEnd > IDLE_MS;
  const warmUntil = performance.now() + (wasIdle ? WARM_UP_MS : 0);
  for (let i = 0; i < WARM_UPS || performance.now() < warmUntil; i++) await step.run(inputs);
  const times: number[] = [];
  const end = performance.now() + MEASURED_MS;
  while (times.length < FEWEST || performance.now() < end) {
    const start = performance.now();
    await step.run(inputs);
    times.push((performance.now() - start) * 1e3);
  }
  lastEnd = performance.now();
  return median(times);
}

/** Returns the time of one step minus the time of another step that lacks some work. */
export async function timeBeyond(step: Step, base: Step, inputs: StepInputs): Promise<number> {
  return await timeRuns(step, inputs) - await timeRuns(base, inputs);
}

/** Inputs of `tokens` tokens of one sequence, without outputs. */
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

/** Limits of a step with such inputs. */
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
  // A prime period, so that rows differ.
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

/** Reports a speed, or that it is too small to distinguish from noise. */
export function saySpeed(line: SpeedLine): void {
  if (line.microseconds > 0) say(line);
  else say({ kind: "note", text: `${line.group}, ${line.name}: too short to be timed` });
}

/** Measures and reports the bandwidth of reads. */
export function sayReadLimit(device: Meter): void {
  const bytes = device.readBandwidth();
  if (bytes > 0) say({ kind: "limit", name: "read GB/s", value: bytes / 1e9 });
}

/** Returns 10^9 bytes per second. */
export function gigabytes(bytes: number, microseconds: number): number {
  return bytes / microseconds / 1e3;
}

/** Returns 10^12 operations per second. */
export function teraflops(operations: number, microseconds: number): number {
  return operations / microseconds / 1e6;
}

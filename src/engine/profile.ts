/** Times of the runs of a model, by operation. */
import type { OperationTime } from "../backend.ts";

/** Part of a generation with speeds of its own. */
export type Phase = "prefill" | "decode";

/** Sums over the runs of a phase. */
export interface PhaseTimes {
  /** The phase. */
  readonly phase: Phase;
  /** Number of steps. */
  readonly steps: number;
  /** Tokens of all steps. */
  readonly tokens: number;
  /** Nanoseconds of the runs, as the engine saw them. */
  readonly duration: number;
  /** Operations, the longest first. */
  readonly operations: readonly OperationSum[];
}

/** Sums over all operations of a kind with matrices of one shape and type. */
export interface OperationSum {
  /** As {@linkcode OperationTime.operation}. */
  readonly operation: string;
  /** As {@linkcode OperationTime.matrix}. */
  readonly matrix: string;
  /** Number of operations; on a GPU, of their kernels. */
  readonly count: number;
  /** Nanoseconds. */
  readonly duration: number;
  /** As {@linkcode OperationTime.bytes}. */
  readonly bytes: number;
  /** As {@linkcode OperationTime.flops}. */
  readonly flops: number;
}

/** Numbers of tokens and outputs of one sequence in a run. */
export interface ChunkSize {
  /** Tokens that are computed. */
  readonly tokens: { readonly length: number };
  /** Tokens after which one is sampled. */
  readonly outputs: { readonly length: number };
}

/** One run of a step. */
interface ProfiledRun {
  readonly phase: Phase;
  readonly tokens: number;
  /** Nanoseconds since the profile began. */
  readonly begin: number;
  readonly duration: number;
  readonly operations: readonly OperationTime[];
}

/** A complete event of the Trace Event Format, which Perfetto and Chrome open; times are in µs. */
export interface TraceEvent {
  /** Name of the operation, or a description of the run. */
  readonly name: string;
  /** Category: `run` or `operation`. */
  readonly cat: string;
  /** Kind of the event: complete. */
  readonly ph: "X";
  /** Begin, from the start of the profile. */
  readonly ts: number;
  /** Duration. */
  readonly dur: number;
  /** Process. */
  readonly pid: 1;
  /** Row of the picture: 1 for runs, 2 for operations. */
  readonly tid: 1 | 2;
  /** Matrix, kernel, bytes and flops of an operation; tokens of a run. */
  readonly args: Readonly<Record<string, string | number>>;
}

/** Times of runs, from {@linkcode Model.startProfile} on. */
export class Profile {
  readonly #origin = performance.now();
  readonly #runs: ProfiledRun[] = [];

  /**
   * Adds a run.
   *
   * @param chunks tokens and outputs of each sequence: a prompt has tokens without an output
   * @param start result of `performance.now()` before the run
   */
  add(chunks: readonly ChunkSize[], start: number, operations: readonly OperationTime[]): void {
    const nSteps = 1 + (operations.at(-1)?.step ?? 0);
    this.#runs.push({
      phase: chunks.some(({ tokens, outputs }) => tokens.length > outputs.length)
        ? "prefill"
        : "decode",
      tokens: nSteps * chunks.reduce((sum, { tokens }) => sum + tokens.length, 0),
      begin: (start - this.#origin) * 1e6,
      duration: (performance.now() - start) * 1e6,
      operations,
    });
  }

  /** Returns the sums of each phase that ran. */
  phases(): PhaseTimes[] {
    return (["prefill", "decode"] as const)
      .map((phase) => sumPhase(phase, this.#runs.filter((run) => run.phase === phase)))
      .filter(({ steps }) => steps > 0);
  }

  /**
   * Returns all runs and operations in Chrome's trace format:
   * https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
   */
  trace(): { traceEvents: TraceEvent[]; displayTimeUnit: "ns" } {
    const traceEvents = this.#runs.flatMap((run) => [
      event(1, `${run.phase} of ${run.tokens} tokens`, "run", run.begin, run.duration, {
        tokens: run.tokens,
      }),
      ...run.operations.map(({ operation, matrix, kernel, begin, duration, bytes, flops }) =>
        event(2, operation, "operation", run.begin + begin, duration, {
          ...(matrix === "" ? {} : { matrix }),
          ...(kernel === "" ? {} : { kernel }),
          bytes,
          flops,
        })
      ),
    ]);
    return { traceEvents, displayTimeUnit: "ns" };
  }
}

function event(
  tid: 1 | 2,
  name: string,
  cat: string,
  begin: number,
  duration: number,
  args: TraceEvent["args"],
): TraceEvent {
  return { name, cat, ph: "X", ts: begin / 1000, dur: duration / 1000, pid: 1, tid, args };
}

function sumPhase(phase: Phase, runs: readonly ProfiledRun[]): PhaseTimes {
  const all = runs.flatMap(({ operations }) => operations);
  const groups = Map.groupBy(all, ({ operation, matrix }) => `${operation} ${matrix}`);
  const operations = [...groups.values()].map((times): OperationSum => ({
    operation: times[0]!.operation,
    matrix: times[0]!.matrix,
    count: times.length,
    duration: total(times.map(({ duration }) => duration)),
    bytes: total(times.map(({ bytes }) => bytes)),
    flops: total(times.map(({ flops }) => flops)),
  }));
  return {
    phase,
    steps: total(runs.map((run) => 1 + (run.operations.at(-1)?.step ?? 0))),
    tokens: total(runs.map(({ tokens }) => tokens)),
    duration: total(runs.map(({ duration }) => duration)),
    operations: operations.toSorted((a, b) => b.duration - a.duration),
  };
}

function total(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}

/** Expected times of steps of models on NVIDIA GPUs. */
import type { SyntheticType } from "../../src/bench/synthetic/shapes.ts";
import { StepPace } from "../../src/engine/schedule/ahead.ts";
import { deviceSources } from "../../test/emulator/nvrtc.ts";
import type { CompiledKernel, KernelCompiler } from "./compiled_kernels.ts";
import { flashShare } from "./flash_model.ts";
import { type KernelMeasures, measureKernel } from "./kernel_measures.ts";
import { type Boundary, launchBoundary, type LaunchTime, launchTime } from "./kernel_times.ts";
import { type Launch, type Libraries, planSteps } from "./launches.ts";
import { type ModelledModel, type Step, STEPS } from "./models.ts";
import { COSTS, type NvidiaGpu } from "./nvidia.ts";

/** The subject of a prediction. */
export type Workload = "prefill" | "decode" | "decode_attention" | "sampling";

/** A prediction, as in the JSON report. */
export interface Prediction {
  readonly device: string;
  readonly model: string;
  /** Type of the weights. */
  readonly type: string;
  readonly workload: Workload;
  /** Sequences that are computed together. */
  readonly batch: number;
  /** Positions of each sequence before the step, or tokens of the prompt. */
  readonly depth: number;
  readonly time_us: number;
  /** Time at the nominal bandwidth or the peak of the tensor cores. */
  readonly limit_us: number;
  /** Limit over time. */
  readonly share: number;
}

/** A launch with its expected time. */
export interface TimedLaunch extends Launch, LaunchTime {}

/** A step with the times of its launches. */
export interface PredictedStep {
  readonly step: Step;
  readonly launches: readonly TimedLaunch[];
  readonly predictions: readonly Prediction[];
}

/** GPUs that divide every layer of a model. */
export interface Division {
  readonly ranks: number;
  /** Returns the microseconds in which they add up this many bytes of each. */
  readonly allReduceTime: (bytes: number) => number;
}

/** Sums of values over the GPUs that divide a model. */
export function isAllReduce({ kernel }: Launch): boolean {
  return kernel === "ncclAllReduce";
}

/**
 * Predicts the steps of a model.
 *
 * @param stepsOfRun returns the number of steps that the host starts together, given the time of
 * one
 * @param division the launches are those of one of its GPUs
 * @param boundaryOf returns the way to a launch from the one before
 * @throws {ForgeError} as {@linkcode planSteps}
 */
export async function predictSteps(
  compiler: KernelCompiler,
  gpu: NvidiaGpu,
  model: ModelledModel,
  type: SyntheticType,
  libraries: Libraries,
  steps: readonly Step[] = STEPS,
  stepsOfRun: (milliseconds: number) => number = pacedSteps,
  { ranks, allReduceTime }: Division = { ranks: 1, allReduceTime: () => 0 },
  boundaryOf: (launch: Launch) => Boundary = () => launchBoundary(gpu),
): Promise<PredictedStep[]> {
  const headDim = Number(model.config.head_dim);
  const planned = await planSteps(model, type, gpu, steps, libraries, ranks);
  const names = new Set(planned.flatMap(({ launches }) => launches.map(({ kernel }) => kernel)));
  const compiled = await compileNamed(compiler, names, gpu);
  const known = new Map<string, KernelMeasures>();
  const measuresOf = (launch: Launch, { residentBlocks }: Boundary) => {
    const kernel = compiled.get(launch.kernel);
    if (kernel === undefined) return undefined;
    const { threads, shared, tiling } = launch;
    const key = `${launch.kernel} ${threads} ${shared} ${tiling?.stages} ${residentBlocks}`;
    const limits = {
      ...{ threads, dynamicShared: shared, blocks: residentBlocks },
      stages: tiling?.stages,
    };
    const measures = known.get(key) ?? measureKernel(kernel, gpu, limits);
    known.set(key, measures);
    return measures;
  };
  return await Promise.all(steps.map(async (step, i) => {
    const { launches, batch } = planned[i]!;
    const flash = step.tokens > 1 ? await flashShare(gpu, headDim, step.tokens) : undefined;
    const timeOf = (launch: Launch): LaunchTime => {
      const boundary = boundaryOf(launch);
      const measures = measuresOf(launch, boundary);
      if (isAllReduce(launch)) {
        // Its bytes are those that it reads and those that it writes.
        const microseconds = allReduceTime(launch.bytes / 2);
        return { microseconds, limit: 0, bound: "launch", intensity: 0 };
      }
      const { before } = launch;
      // A library's launch, such as a sum over GPUs, has few blocks.
      const leavesRoom = before !== undefined && before.blocks < gpu.multiprocessors;
      const waited = leavesRoom ? timeOf(before).microseconds : 0;
      return launchTime(launch, measures, gpu, flash, waited, boundary);
    };
    const timed = launches.map((launch): TimedLaunch => ({ ...launch, ...timeOf(launch) }));
    const labels = { device: gpu.name, model: model.name, type, batch };
    return { step, launches: timed, predictions: summarize(step, timed, labels, stepsOfRun) };
  }));
}

/** Returns the number of steps that the engine starts together. */
function pacedSteps(milliseconds: number): number {
  const pace = new StepPace();
  pace.measure(1, milliseconds);
  return pace.steps(1);
}

/** Compiles the kernels of a plan; libraries are none. */
async function compileNamed(
  compiler: KernelCompiler,
  names: ReadonlySet<string>,
  gpu: NvidiaGpu,
): Promise<Map<string, CompiledKernel>> {
  const kernels = deviceSources().flatMap(({ name, instances }) =>
    instances.filter((instance) => names.has(instance)).map((instance) => ({
      file: name,
      instance,
    }))
  );
  return await compiler.compile(kernels, gpu.architecture.name);
}

/** Sums up a step and its parts of interest. */
function summarize(
  { tokens, depth }: Step,
  launches: readonly TimedLaunch[],
  labels: Pick<Prediction, "device" | "model" | "type" | "batch">,
  stepsOfRun: (milliseconds: number) => number,
): Prediction[] {
  const prediction = (
    workload: Workload,
    part: readonly TimedLaunch[],
    extra: number,
  ): Prediction => {
    const time_us = extra + sum(part.map(({ microseconds, count }) => microseconds * count));
    const limit_us = sum(part.map(({ limit, count }) => limit * count));
    const length = workload === "prefill" ? tokens : depth;
    return { ...labels, workload, depth: length, time_us, limit_us, share: limit_us / time_us };
  };
  if (tokens > 1) return [prediction("prefill", launches, COSTS.run)];
  const alone = prediction("decode", launches, 0).time_us;
  const together = stepsOfRun(alone / 1e3);
  const between = together > 1 ? COSTS.nextStep : 0;
  const of = (operation: string) => launches.filter((launch) => launch.operation === operation);
  return [
    prediction("decode", launches, COSTS.run / together + between),
    prediction("decode_attention", of("attention"), 0),
    prediction("sampling", of("sample"), 0),
  ];
}

function sum(values: readonly number[]): number {
  return values.reduce((a, b) => a + b, 0);
}

/**
 * Expected times of decoding by the kernel that computes a whole step (csrc/cuda/step_kernel.cpp),
 * compared with those of the launches that it replaces.
 *
 * Its blocks do the work of the same kernels, one operation after the other. Between two of them
 * they wait for all blocks, instead of for the end of a launch. Products request their first
 * weights before they wait, also on GPUs without programmatic dependent launch. A multiprocessor
 * holds as many of its blocks as the source asks for: fewer than of products alone, which then have
 * fewer bytes in flight. The size of its machine code is left out.
 */
import { fitsShape, type ModelShape, SHAPES } from "../../src/bench/synthetic/shapes.ts";
import type { KernelCompiler } from "./compiled_kernels.ts";
import { type Boundary, launchBoundary } from "./kernel_times.ts";
import type { Launch, Libraries } from "./launches.ts";
import { modelledLlama, type Step, TYPES } from "./models.ts";
import { A100, COSTS, H100, type NvidiaGpu } from "./nvidia.ts";
import { type PredictedStep, predictSteps } from "./predictions.ts";
import { type StepKernel, stepKernel } from "./step_kernel.ts";

/** Models small enough that launches are a large part of a step. */
export const PERSISTENT_MODELS: readonly { readonly name: string; readonly shape: ModelShape }[] = [
  { name: "135M", shape: SHAPES["smollm2-135m"]! },
  { name: "0.6B", shape: SHAPES["qwen3-0.6b"]! },
  { name: "1B", shape: SHAPES["llama-3.2-1b"]! },
  { name: "3B", shape: SHAPES["llama-3.2-3b"]! },
];

/** GPUs without and with programmatic dependent launch. */
export const PERSISTENT_GPUS: readonly NvidiaGpu[] = [A100, H100];

/** Expected times of a decoding step in microseconds. */
export interface PersistentPrediction {
  readonly device: string;
  readonly model: string;
  readonly type: string;
  readonly batch: number;
  readonly launches: number;
  readonly launched_us: number;
  /** By the kernel, whose blocks wait for counters of arrivals; the least that waiting can cost. */
  readonly counted_us: number;
  /** By the same kernel with barriers of cooperative groups. */
  readonly barrier_us: number;
}

/** A decoded token; steps of several keep their launches. */
const STEP: Step = { batch: 1, tokens: 1, depth: 512 };

/** Predicts the steps of a model on a GPU, in every type that its rows fit. */
export async function predictPersistent(
  compiler: KernelCompiler,
  libraries: Libraries,
  gpu: NvidiaGpu,
  { name, shape }: typeof PERSISTENT_MODELS[number],
  types: readonly (typeof TYPES)[number][] = TYPES,
): Promise<PersistentPrediction[]> {
  const model = modelledLlama(name, shape);
  const result: PersistentPrediction[] = [];
  for (const type of types.filter((one) => fitsShape(one, shape))) {
    const kernel = await stepKernel(model, type, gpu, [STEP]);
    const predict = async (boundaryOf: (launch: Launch) => Boundary) => {
      const optional = [undefined, undefined, boundaryOf] as const;
      const [step] = await predictSteps(compiler, gpu, model, type, libraries, [STEP], ...optional);
      return step!;
    };
    const timeOf = ({ predictions }: PredictedStep) => predictions[0]!.time_us;
    const launched = await predict(() => launchBoundary(gpu));
    result.push({
      ...{ device: gpu.name, model: name, type, batch: STEP.batch },
      launches: launched.launches.reduce((sum, { count }) => sum + count, 0),
      launched_us: timeOf(launched),
      counted_us: timeOf(await predict(boundariesOf(kernel, gpu, COSTS.arrival))),
      barrier_us: timeOf(await predict(boundariesOf(kernel, gpu, COSTS.gridBarrier))),
    });
  }
  return result;
}

/**
 * Returns the boundaries of operations of a kernel, and of launches that are none of them.
 *
 * @param onH100 microseconds of a wait between two operations there
 */
function boundariesOf(
  { operations, blocks }: StepKernel,
  gpu: NvidiaGpu,
  onH100: number,
): (launch: Launch) => Boundary {
  const l2 = (one: NvidiaGpu) => one.latencies.l2 / one.clock / 1e3;
  // The counter is in L2.
  const gap = onH100 * l2(gpu) / l2(H100);
  return ({ kernel }) =>
    operations.has(kernel) ? { gap, isCrossed: true, residentBlocks: blocks } : launchBoundary(gpu);
}

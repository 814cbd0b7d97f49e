/**
 * Expected decoding speed on Apple's GPUs: reads of weights, slow operations that unpack them, and
 * launches. No Mac has confirmed it; `bench/metal_check.ts` measures the same on one.
 */
import type { SyntheticType } from "../../src/bench/synthetic/shapes.ts";
import { type ModelShape, SHAPES } from "../../src/bench/synthetic/shapes.ts";
import { StepPace } from "../../src/engine/schedule/ahead.ts";
import { TENSOR_TYPES } from "../../src/formats/tensor_info.ts";
import type { Prediction } from "./predictions.ts";

/** A GPU of Apple. */
interface AppleGpu {
  readonly name: string;
  readonly cores: number;
  /** 10^9 per second. */
  readonly clock: number;
  /** Nominal bandwidth, in 10^9 bytes per second. */
  readonly bandwidth: number;
  /** Share of the nominal bandwidth that a kernel that only reads reaches. */
  readonly readable: number;
}

/*
 * Cores and bandwidth: Apple's technical specifications. Clocks: P. Turner's "metal-benchmarks" and
 * measurements by others. Readable: STREAM-like kernels read 101 of 120 GB/s on an M4 (Hübner et
 * al., "Apple vs. Oranges", 2025); larger chips are taken as 86%.
 */
export const APPLE_GPUS: readonly AppleGpu[] = [
  { name: "M1", cores: 8, clock: 1.278, bandwidth: 68, readable: 0.88 },
  { name: "M4", cores: 10, clock: 1.47, bandwidth: 120, readable: 0.84 },
  { name: "M4 Pro", cores: 20, clock: 1.578, bandwidth: 273, readable: 0.86 },
  { name: "M4 Max", cores: 40, clock: 1.578, bandwidth: 546, readable: 0.86 },
  { name: "M3 Ultra", cores: 80, clock: 1.38, bandwidth: 819, readable: 0.86 },
];

/**
 * Most operations for each weight at a quarter of the rate of others, 32 a clock and core (P.
 * Turner): conversions of integers and shifts. test/emulator/metal/instructions_test.ts counts
 * them.
 */
const SLOW_OPERATIONS = { F16: 0, Q8_0: 0.35, Q4_0: 0.2, Q4_K: 0.75, Q6_K: 0.8 } as const;
const SLOW_PER_CLOCK = 32;

/**
 * Launches of a layer and of the rest of a greedy step (test/metal/models_test.ts), with the one
 * that passes its token on.
 */
const LAYER_LAUNCHES = 5, OTHER_LAUNCHES = 8;

/**
 * Microseconds of a launch in a serial encoder, and of a run on the host: llama.cpp's and MLX's. A
 * run has several steps, and a launch is encoded faster than the GPU starts one.
 */
const LAUNCH = 1.3, HOST = 350;

/** Joins terms that overlap imperfectly, as for NVIDIA's GPUs (nvidia.ts). */
const NORM = 4;

const MODELS = ["smollm2-135m", "llama-3.2-1b", "llama-3.1-8b"] as const;
const TYPES = ["F16", "Q8_0", "Q4_0", "Q4_K"] as const satisfies readonly SyntheticType[];

/** Goals: shares of a measured read for 8B, and the time of a token of SmolLM on an M4. */
const LARGE_GOAL = 0.92, SMALL_GOAL_US = 1e6 / 600;

/** A prediction with its goal as a share of the nominal bandwidth. */
export interface ApplePrediction extends Prediction {
  readonly goal?: number;
}

/** Predicts a decoded token of each model on each GPU, with an empty cache. */
export function predictApple(): ApplePrediction[] {
  return APPLE_GPUS.flatMap((gpu) =>
    MODELS.flatMap((model) =>
      TYPES.filter((type) => fits(SHAPES[model]!, type)).map((type) => predict(gpu, model, type))
    )
  );
}

function fits(shape: ModelShape, type: typeof TYPES[number]): boolean {
  return shape.hiddenSize % TENSOR_TYPES[type].blockElements === 0;
}

function predict(
  gpu: AppleGpu,
  model: typeof MODELS[number],
  type: typeof TYPES[number],
): ApplePrediction {
  const shape = SHAPES[model]!;
  const { blockBytes, blockElements } = TENSOR_TYPES[type];
  const weights = decodedWeights(shape);
  const bytes = weights * blockBytes / blockElements;
  const limit_us = bytes / gpu.bandwidth / 1e3;
  const read = limit_us / gpu.readable;
  const unpack = weights * SLOW_OPERATIONS[type] / (SLOW_PER_CLOCK * gpu.cores * gpu.clock) / 1e3;
  const launches = LAYER_LAUNCHES * shape.nLayers + OTHER_LAUNCHES;
  const step_us = (read ** NORM + unpack ** NORM) ** (1 / NORM) + launches * LAUNCH;
  const pace = new StepPace();
  pace.measure(1, step_us / 1e3);
  const time_us = step_us + HOST / pace.steps(1);
  const goal = model === "llama-3.1-8b"
    ? LARGE_GOAL * gpu.readable
    : model === "smollm2-135m" && type === "Q4_0" && gpu.name === "M4"
    ? limit_us / SMALL_GOAL_US
    : undefined;
  const labels = { device: gpu.name, model, type, workload: "decode", batch: 1, depth: 0 } as const;
  return { ...labels, time_us, limit_us, share: limit_us / time_us, ...(goal && { goal }) };
}

/** Weights that a token is multiplied with. */
function decodedWeights(shape: ModelShape): number {
  const { nLayers, hiddenSize, intermediateSize, nHeads, nKvHeads, headDim, vocabSize } = shape;
  const attention = (2 * nHeads + 2 * nKvHeads) * headDim * hiddenSize;
  return nLayers * (attention + 3 * intermediateSize * hiddenSize) + vocabSize * hiddenSize;
}

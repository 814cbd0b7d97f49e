/**
 * Expected speed on Apple's GPUs. Decoding: reads of weights and caches, slow operations that
 * unpack weights, and launches. Prompts: products of matrices and what shares their pipe, and
 * passes over activations. No Mac has confirmed it; `bench/metal_check.ts` measures the same on
 * one.
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
  /** Share of the peak of its lanes at which llama.cpp computes prompts of 8B, where published. */
  readonly llama?: number;
}

/*
 * Cores and bandwidth: Apple's technical specifications. Clocks: P. Turner's "metal-benchmarks"
 * and measurements by others. Readable: STREAM-like kernels read 101 of 120 GB/s on an M4 (Hübner
 * et al., "Apple vs. Oranges", 2025); larger chips are taken as 86%. llama.cpp: 512 tokens of an
 * 8B model in Q4_K a second, 224.8 on an M4 and 499.6 on an M1 Max (brand-o/normiebench, issues 3
 * and 40), of 13.96 GFLOP each; other chips of a family are taken to reach the same share.
 */
export const APPLE_GPUS: readonly AppleGpu[] = [
  { name: "M1", cores: 8, clock: 1.278, bandwidth: 68, readable: 0.88, llama: 0.66 },
  { name: "M4", cores: 10, clock: 1.47, bandwidth: 120, readable: 0.84, llama: 0.83 },
  { name: "M4 Pro", cores: 20, clock: 1.578, bandwidth: 273, readable: 0.86, llama: 0.83 },
  { name: "M4 Max", cores: 40, clock: 1.578, bandwidth: 546, readable: 0.86, llama: 0.83 },
  { name: "M3 Ultra", cores: 80, clock: 1.38, bandwidth: 819, readable: 0.86 },
];

/** Floats that a core multiplies and adds in a clock; products of matrices use the same lanes. */
const LANES = 128;

/**
 * Most operations for each weight of matvec at a quarter of the rate of others, 32 a clock and
 * core (P. Turner): conversions of integers and shifts. test/emulator/metal/instructions_test.ts
 * counts them, and the numbers of {@linkcode GEMM}.
 */
export const SLOW_OPERATIONS = { F16: 0, Q8_0: 0.35, Q4_0: 0.2, Q4_K: 0.75, Q6_K: 0.8 } as const;
const SLOW_PER_CLOCK = 32;

/** Products of prompts (kernels/metal/gemm.h). */
export const GEMM = {
  /** Tokens for which a weight is unpacked once. */
  tokens: 64,
  /** Loads of matrices for each product of two, which takes a SIMD group 16 clocks. */
  loads: 0.5,
  /** Clocks of a lane to unpack a weight, copy it and the numbers of x that it meets. */
  unpackSlots: { F16: 4.2, Q8_0: 6.7, Q4_0: 6.4, Q4_K: 7.7 },
} as const;
const MATRIX_CLOCKS = 16;

/** Share of the lanes that attention of prompts uses; exponentials and masks take the rest. */
const ATTENTION_SHARE = 0.5;

/**
 * Launches of a layer and of the rest of a greedy step (test/metal/models_test.ts), with the one
 * that passes its token on; of a layer whose attention has several splits; of a prompt's layer.
 */
const LAYER_LAUNCHES = 5, OTHER_LAUNCHES = 7, SPLIT_LAYER_LAUNCHES = 6, PROMPT_LAUNCHES = 12;

/**
 * Microseconds of a launch in a serial encoder, and of a run on the host: llama.cpp's and MLX's. A
 * run has several steps, and a launch is encoded faster than the GPU starts one.
 */
const LAUNCH = 1.3, HOST = 350;

/** Joins terms that overlap imperfectly, as for NVIDIA's GPUs (nvidia.ts). */
const NORM = 4;

const MODELS = ["smollm2-135m", "llama-3.2-1b", "llama-3.1-8b"] as const;
const TYPES = ["F16", "Q8_0", "Q4_0", "Q4_K"] as const satisfies readonly SyntheticType[];

/** Depth at which attention of decoded tokens is predicted, and tokens of a prompt. */
const DEPTH = 4096, PROMPT = 512;

/**
 * Goals: shares of a measured read for 8B and for its attention, the time of a token of SmolLM on
 * an M4, and prompts of 8B as a multiple of llama.cpp's speed.
 */
const LARGE_GOAL = 0.92, ATTENTION_GOAL = 0.85, SMALL_GOAL_US = 1e6 / 600, PROMPT_GOAL = 1.2;

/** A prediction with its goal, a share like `share`. */
export interface ApplePrediction extends Prediction {
  readonly goal?: number;
}

/**
 * Predicts, for each model on each GPU, a decoded token with an empty cache, the attention of one
 * at a depth of 4,096, and a prompt of 512 tokens.
 */
export function predictApple(): ApplePrediction[] {
  return APPLE_GPUS.flatMap((gpu) =>
    MODELS.flatMap((model) =>
      TYPES.filter((type) => fits(SHAPES[model]!, type)).flatMap((type) => [
        predictToken(gpu, model, type),
        ...(type === "Q4_0" ? [predictAttention(gpu, model, type)] : []),
        predictPrompt(gpu, model, type),
      ])
    )
  );
}

/**
 * Returns the tokens a second that the model expects of a synthetic model, such as
 * `llama-3.1-8b:Q4_0`, on a GPU that macOS names `Apple M4`; undefined for others.
 */
export function expectedSpeed(
  gpu: string,
  synthetic: string,
  workload: "decode" | "prefill",
): number | undefined {
  const found = predictApple().find(({ device, model, type, ...other }) =>
    `Apple ${device}` === gpu && `${model}:${type}` === synthetic && other.workload === workload
  );
  return found && 1e6 * (workload === "prefill" ? PROMPT : 1) / found.time_us;
}

function fits(shape: ModelShape, type: typeof TYPES[number]): boolean {
  return shape.hiddenSize % TENSOR_TYPES[type].blockElements === 0;
}

function predictToken(
  gpu: AppleGpu,
  model: typeof MODELS[number],
  type: typeof TYPES[number],
): ApplePrediction {
  const shape = SHAPES[model]!;
  const { blockBytes, blockElements } = TENSOR_TYPES[type];
  const weights = layerWeights(shape) + shape.vocabSize * shape.hiddenSize;
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
  return prediction(gpu, { model, type, workload: "decode", depth: 0, time_us, limit_us }, goal);
}

/** Attention of all layers, with caches in F16. */
function predictAttention(
  gpu: AppleGpu,
  model: typeof MODELS[number],
  type: typeof TYPES[number],
): ApplePrediction {
  const { nLayers, nKvHeads, headDim } = SHAPES[model]!;
  const bytes = nLayers * 2 * nKvHeads * headDim * DEPTH * 2;
  const limit_us = bytes / gpu.bandwidth / 1e3;
  const launches = nLayers * (SPLIT_LAYER_LAUNCHES - LAYER_LAUNCHES + 1);
  const time_us = limit_us / gpu.readable + launches * LAUNCH;
  const goal = model === "llama-3.1-8b" ? ATTENTION_GOAL * gpu.readable : undefined;
  const workload = "decode_attention";
  return prediction(gpu, { model, type, workload, depth: DEPTH, time_us, limit_us }, goal);
}

function predictPrompt(
  gpu: AppleGpu,
  model: typeof MODELS[number],
  type: typeof TYPES[number],
): ApplePrediction {
  const shape = SHAPES[model]!;
  const { nLayers, hiddenSize, intermediateSize, nHeads, nKvHeads, headDim } = shape;
  /** Products and sums a microsecond. */
  const peak = LANES * gpu.cores * gpu.clock * 1e3;
  const weights = layerWeights(shape);
  const pairs = PROMPT * (PROMPT + 1) / 2;
  const attention = 2 * nLayers * nHeads * headDim * pairs;
  const slots = GEMM.tokens * (1 + GEMM.loads / MATRIX_CLOCKS) + GEMM.unpackSlots[type];
  const products = weights * PROMPT / GEMM.tokens * slots / peak;
  const q = nHeads * headDim, qkv = q + 2 * nKvHeads * headDim;
  // Numbers that norms, rounding, products, rotation and attention read and write in F32, and those
  // that rounding writes in F16.
  const floats = 6 * hiddenSize + 2 * hiddenSize + q + intermediateSize + 2 * qkv + qkv + 2 * q +
    intermediateSize;
  const halves = 2 * hiddenSize + q + intermediateSize;
  const passes = nLayers * PROMPT * (4 * floats + 2 * halves) / (gpu.bandwidth * gpu.readable) /
    1e3;
  const launches = nLayers * PROMPT_LAUNCHES + OTHER_LAUNCHES;
  const time_us = products + attention / ATTENTION_SHARE / peak + passes + launches * LAUNCH + HOST;
  const limit_us = (weights * PROMPT + attention) / peak;
  const goal = model === "llama-3.1-8b" && gpu.llama !== undefined
    ? PROMPT_GOAL * gpu.llama
    : undefined;
  return prediction(
    gpu,
    { model, type, workload: "prefill", depth: PROMPT, time_us, limit_us },
    goal,
  );
}

function prediction(
  { name }: AppleGpu,
  times: Omit<Prediction, "device" | "batch" | "share">,
  goal: number | undefined,
): ApplePrediction {
  const share = times.limit_us / times.time_us;
  return { device: name, batch: 1, ...times, share, ...(goal !== undefined && { goal }) };
}

/** Weights of all layers, with each of which every token is multiplied. */
function layerWeights(shape: ModelShape): number {
  const { nLayers, hiddenSize, intermediateSize, nHeads, nKvHeads, headDim } = shape;
  const attention = (2 * nHeads + 2 * nKvHeads) * headDim * hiddenSize;
  return nLayers * (attention + 3 * intermediateSize * hiddenSize);
}

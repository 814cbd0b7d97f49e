/**
 * Limits of the kernels that stream weights or keys and values, measured from their machine code
 * for an H100. `test/cuda/speed_gates_test.ts` fails when a kernel falls below its limit.
 */
import type { KernelName } from "./compiled_kernels.ts";
import { type KernelMeasures, streamCaps } from "./kernel_measures.ts";
import { H100, type NvidiaGpu } from "./nvidia.ts";

/** The limited measures of a kernel. */
export interface SpeedMeasures {
  /** Bandwidth that the busiest pipe allows, in TB/s. */
  readonly pipe: number;
  /** Bytes in flight per multiprocessor, in KB. */
  readonly inFlight: number;
  /** Loads that must complete one after another before the first streamed load. */
  readonly hops: number;
  /** Waits per global load, in the worst loop with at least {@linkcode FEWEST_LOADS}. */
  readonly waits: number;
}

/** A measure's goal for every kernel, and its reason. */
export interface Goal {
  readonly measure: keyof SpeedMeasures;
  readonly unit: string;
  /** True if larger is better. */
  readonly atLeast: boolean;
  readonly goal: number;
  readonly reason: string;
}

export const GOALS: readonly Goal[] = [
  {
    measure: "pipe",
    unit: "TB/s",
    atLeast: true,
    goal: 4.35,
    reason: "1.3 times an H100's bandwidth: about 75% of the slots are used in practice",
  },
  {
    measure: "inFlight",
    unit: "KB",
    atLeast: true,
    goal: 18.5,
    reason:
      "Little's law: 1.3 times 3.35 TB/s over 132 multiprocessors for a loaded latency of 560 ns",
  },
  {
    measure: "hops",
    unit: "loads",
    atLeast: false,
    goal: 1,
    reason: "each exposes 280 clocks of L2 latency in every launch",
  },
  {
    measure: "waits",
    unit: "waits a load",
    atLeast: false,
    goal: 0.35,
    reason: "loads after a branch on another load wait in turn",
  },
];

/** Loads of a loop whose waits count; shorter loops are remainders. */
const FEWEST_LOADS = 4;

/** A kernel with the limits it must keep: goals, unless an entry allows less today. */
export interface SpeedLimit extends KernelName {
  /** Dynamic shared memory of a launch, and the stages of its block's ring. */
  readonly shared?: number;
  readonly stages?: number;
  /** Measured values that are below the goal, to be raised with each improvement. */
  readonly today: Partial<SpeedMeasures>;
}

/**
 * Shared memory of a block of batched_decode_attention with head_dim 128, with head_dim 64, and
 * over a Q4_0 cache (plan_attention.cpp).
 */
const ATTENTION_SHARED = 73984;
const NARROW_ATTENTION_SHARED = 76032;
const FOUR_BIT_ATTENTION_SHARED = 63744;

/**
 * Shared memory of decode_gemm with rings of eight warps, sums and a row of x of 14,336 columns,
 * and with a ring of the block of five stages, of which those of tokens count as well
 * (plan_products.cpp).
 */
const ONE_TOKEN_SHARED = 8 * 9216 + 4096 + 2 * 14336;
const BLOCK_RING = [200 * 1024, 5] as const;

/** Measures without an entry meet their goal. */
export const SPEED_LIMITS: readonly SpeedLimit[] = [
  row("matvec.cu", "matvec<1>", { hops: 2 }),
  row("decode_gemm.cu", "decode_gemm<FormatBF16, bf16, 0>", {}, ONE_TOKEN_SHARED),
  row("decode_gemm.cu", "decode_gemm<FormatQ8_0, f16, 0>", {}, ONE_TOKEN_SHARED),
  row("decode_gemm.cu", "decode_gemm<FormatQ6_K, f16, 0>", {}, ONE_TOKEN_SHARED),
  row("decode_gemm.cu", "decode_gemm<FormatQ4_0, f16, 0>", {}, ONE_TOKEN_SHARED),
  row("decode_gemm.cu", "decode_gemm<FormatQ4_K, f16, 0>", {}, ONE_TOKEN_SHARED),
  ...["BF16, bf16, 1", "Q4_0, f16, 1", "Q4_K, f16, 1", "BF16, bf16, 4", "Q8_0, f16, 4"]
    .concat(["Q4_0, f16, 4", "Q4_K, f16, 4", "Q6_K, f16, 4", "BF16, bf16, 8"])
    .map((format) => row("decode_gemm.cu", `decode_gemm<Format${format}>`, {}, ...BLOCK_RING)),
  // The tensor cores: 64 tokens with each weight of 4 bits.
  row("decode_gemm.cu", "decode_gemm<FormatQ4_0, f16, 8>", { pipe: 3.88 }, ...BLOCK_RING),
  row("gated_decode_gemm.cu", "gated_decode_gemm<FormatQ4_K, f16, 0>", {}, ONE_TOKEN_SHARED),
  ...["BF16, bf16, 4", "Q4_0, f16, 4", "Q4_K, f16, 4"].map((format) =>
    row("gated_decode_gemm.cu", `gated_decode_gemm<Format${format}>`, {}, ...BLOCK_RING)
  ),
  row(
    "grouped_decode_gemm.cu",
    "grouped_decode_gemm<FormatQ4_K, f16, 0>",
    {},
    ONE_TOKEN_SHARED,
  ),
  row(
    "grouped_decode_gemm.cu",
    "gated_grouped_decode_gemm<FormatQ4_K, f16>",
    {},
    ONE_TOKEN_SHARED,
  ),
  row("dequantize.cu", "dequantize<FormatQ4_K, f16>", {}),
  // The hops of attention are an entry of work, a page, and the first key.
  row(
    "batched_decode_attention.cu",
    "batched_decode_attention<f16, 128>",
    { hops: 3 },
    ATTENTION_SHARED,
  ),
  row("batched_decode_attention.cu", "batched_decode_attention<q8, 128>", {
    pipe: 4.2,
    hops: 3,
  }, ATTENTION_SHARED),
  row(
    "batched_decode_attention.cu",
    "batched_decode_attention<q4, 128>",
    { pipe: 2.49, hops: 3 },
    FOUR_BIT_ATTENTION_SHARED,
  ),
  row(
    "batched_decode_attention.cu",
    "rope_decode_attention<bf16, 64>",
    { hops: 3 },
    NARROW_ATTENTION_SHARED,
  ),
  row(
    "batched_decode_attention.cu",
    "rope_decode_attention<f16, 128>",
    { hops: 3 },
    ATTENTION_SHARED,
  ),
  row("batched_decode_attention.cu", "rope_decode_attention<q8, 128>", {
    pipe: 4.2,
    hops: 3,
  }, ATTENTION_SHARED),
  row("batched_decode_attention.cu", "merge_attention_splits", {}),
];

function row(
  file: string,
  instance: string,
  today: Partial<SpeedMeasures>,
  shared?: number,
  stages?: number,
): SpeedLimit {
  return {
    ...{ file, instance, today },
    ...(shared !== undefined && { shared }),
    ...(stages !== undefined && { stages }),
  };
}

/** Returns the limited measures of a kernel; those of a stream are missing without one. */
export function speedMeasures(
  kernel: KernelMeasures,
  gpu: NvidiaGpu = H100,
): Partial<SpeedMeasures> {
  const { stream, start } = kernel;
  const waits = Math.max(
    0,
    ...kernel.loops.map(({ loads, roundTrips }) => loads < FEWEST_LOADS ? 0 : roundTrips / loads),
  );
  if (stream === undefined || start === undefined) return { waits };
  const { pipe, inFlight } = streamCaps(stream, kernel.warps, gpu);
  return { pipe: pipe / 1e3, inFlight: inFlight / 1024, hops: start.hops, waits };
}

/** Returns what a kernel misses of its limits, one sentence each. */
export function missedLimits(
  name: string,
  measured: Partial<SpeedMeasures>,
  today: Partial<SpeedMeasures> = {},
): string[] {
  return GOALS.flatMap(({ measure, unit, atLeast, goal, reason }) => {
    const value = measured[measure], limit = today[measure] ?? goal;
    if (value === undefined || (atLeast ? value >= limit : value <= limit)) return [];
    const bound = `${atLeast ? "at least" : "at most"} ${limit}`;
    return [
      `${name}: ${measure} ${value.toFixed(2)} ${unit}, limit ${bound} (goal ${goal}: ${reason})`,
    ];
  });
}

/** Launches of a decoded token: what is planned today, and the goal. */
export interface LaunchBudget {
  readonly model: string;
  readonly today: number;
  readonly goal: number;
}

/**
 * Each launch costs about 2 us: the gap to the previous kernel, and the time until its first bytes
 * arrive. Goals: 5 a dense layer (product of q, k and v with the norm, attention with rotation,
 * product with the residual, and two of the feed-forward network), 9 with experts, 8 for the rest.
 */
export const LAUNCH_BUDGETS: readonly LaunchBudget[] = [
  { model: "1B", today: 85, goal: 85 },
  { model: "8B", today: 165, goal: 165 },
  { model: "30B-A3B", today: 437, goal: 437 },
];

/** Launches with work that may have fewer blocks than an H100 has multiprocessors, with reasons. */
export const SMALL_GRIDS: readonly (readonly [launch: RegExp, reason: string])[] = [
  [/^rope_decode_attention/, "short sequences have few splits"],
  [/^decode_gemm<\w+, \w+, 0> 2048 x /, "128 tiles of 16 rows, with 9 MB in flight"],
  [/ 128 x 2048 F32$/, "the router's matrix has 1 MB: 0.3 us of reading"],
];

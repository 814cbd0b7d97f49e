/** Expected times of launches whose machine code is short and known. */
import { assert, assertAlmostEquals, assertThrows } from "@std/assert";
import { measureKernel } from "../../../bench/gpu_model/kernel_measures.ts";
import { launchTime } from "../../../bench/gpu_model/kernel_times.ts";
import type { Launch } from "../../../bench/gpu_model/launches.ts";
import { H100 } from "../../../bench/gpu_model/nvidia.ts";

const STREAM = "LDG.E.NA.128.CONSTANT";
/** A product of 2,048 multiply-adds. */
const PRODUCT = "HMMA.16816.F32 R12, R16, R20, R12";

/** Returns the expected time of a launch of a kernel with these instructions. */
function timeOf(launch: Launch, ...lines: readonly string[]) {
  const code = lines.map((line, i) =>
    line.startsWith(".L") ? line : `  /*${(16 * i).toString(16).padStart(4, "0")}*/  ${line} ;`
  ).join("\n");
  const { kernel: instance, threads } = launch;
  const sizes = { registers: 64, spillBytes: 0, sharedBytes: 0, threads };
  const kernel = { instance, symbol: "", ...sizes, code, remarks: "" };
  return launchTime(launch, measureKernel(kernel, H100, { threads }), H100);
}

/** Returns a product of `tokens` tokens with 4,096 x 4,096 weights of `bits` bits. */
function product(kernel: string, type: string, bits: number, tokens: number, blocks: number) {
  return {
    ...{ kernel, operation: "matmul", matrix: `4096 x 4096 ${type}`, blocks, threads: 256 },
    ...{ bytes: 4096 * 4096 * bits / 8, flops: 2 * 4096 * 4096 * tokens },
    ...{ shared: 0, count: 1 },
  } as Launch;
}

/** Products of 128 rows by 64 tokens a block, of 4,096 tokens. */
const PROMPT = product("gemm<FormatQ4_K, f16>", "Q4_K", 4.5, 4096, 32 * 64);
/** Two loads of weights and the products of a step, unless the warp has no tokens. */
const STEP = [
  ".L_x_0:",
  `${STREAM} R4, desc[UR6][R2.64]`,
  `${STREAM} R8, desc[UR6][R2.64+0x10]`,
  "STS.128 [R24], R4",
  "STS.128 [R24+0x10], R8",
  "@P1 BRA `(.L_x_1)",
  ...Array<string>(32).fill(PRODUCT),
  ".L_x_1:",
  "@P0 BRA `(.L_x_0)",
  "EXIT",
];

Deno.test("kernel times: warps that skip products without tokens do not hide those of the others", () => {
  const { microseconds, limit, bound } = timeOf(PROMPT, ...STEP);
  // The tensor cores need 62% of wgmma's rate, whose limit is the peak.
  assert(microseconds > limit / 0.7 && microseconds < 4 * limit, `${microseconds} of ${limit} us`);
  const straight = STEP.filter((line) => !/L_x_1/.test(line));
  const without = timeOf(PROMPT, ...straight);
  assertAlmostEquals(microseconds, without.microseconds, 0.05 * microseconds);
  assert(bound === without.bound, bound);
});

Deno.test("kernel times: a product on tensor cores whose loop multiplies nothing is an error", () => {
  const loop = STEP.filter((line) => line !== PRODUCT);
  assertThrows(() => timeOf(PROMPT, ...loop), Error, "gemm<FormatQ4_K, f16> has no products");
});

Deno.test("kernel times: weights that many blocks read again come from L2", () => {
  // A load a step, waited for in turn.
  const loop = [
    ".L_x_0:",
    `${STREAM} R4, desc[UR6][R2.64]`,
    "FFMA R12, R4, R8, R12",
    "@P0 BRA `(.L_x_0)",
    "EXIT",
  ];
  const blocks = 4 * H100.multiprocessors;
  const time = (tokens: number) =>
    timeOf(product("matvec<8>", "F32", 32, tokens, blocks), ...loop).microseconds;
  const once = time(8), often = time(8 * 64);
  const { memory, l2 } = H100.latencies;
  // 64 times the work takes less than 64 times as long, but no less than the latency of L2 allows.
  assert(often < 64 * once * 0.6, `${often} and ${once} us`);
  assert(often > 64 * once * 0.9 * l2 / memory, `${often} and ${once} us`);
});

Deno.test("kernel times: each block of matvec reads its tokens from L2 once", () => {
  const loop = [
    ".L_x_0:",
    `${STREAM} R4, desc[UR6][R2.64]`,
    "LDG.E.128.CONSTANT R8, desc[UR6][R10.64]",
    "FFMA R12, R4, R8, R12",
    "@P0 BRA `(.L_x_0)",
    "EXIT",
  ];
  // Four rows a block, so that x is twice as many bytes as the weights.
  const launch = product("matvec<8>", "F32", 32, 4096, 512 * 1024);
  const { microseconds } = timeOf(launch, ...loop);
  const { l2BytesPerClock, clock } = H100;
  // 8 tokens of 4,096 columns for each block, and all weights for each 8 tokens.
  const bytes = launch.blocks * 8 * 4096 * 4 + 512 * launch.bytes;
  const least = bytes / l2BytesPerClock / clock / 1e3;
  assert(microseconds > least && microseconds < 1.5 * least, `${microseconds} and ${least} us`);
});

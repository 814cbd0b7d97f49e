/**
 * Limits on the speed of kernels, from their machine code (bench/gpu_model/limits.ts). They need
 * NVIDIA's compiler, but no GPU.
 */
import { assert, assertEquals } from "@std/assert";
import { KernelCompiler, type KernelName } from "../../bench/gpu_model/compiled_kernels.ts";
import { measureKernel } from "../../bench/gpu_model/kernel_measures.ts";
import {
  GOALS,
  missedLimits,
  SPEED_LIMITS,
  type SpeedMeasures,
  speedMeasures,
} from "../../bench/gpu_model/limits.ts";
import { modelledLlama } from "../../bench/gpu_model/models.ts";
import { A100, H100 } from "../../bench/gpu_model/nvidia.ts";
import { measureWaits, stepKernel } from "../../bench/gpu_model/step_kernel.ts";
import { SHAPES } from "../../src/bench/synthetic/shapes.ts";
import { deviceSources } from "../emulator/nvrtc.ts";
import { drawn } from "../support/thorough.ts";
import { emulatedGpuUnavailable } from "./emulated_gpu.ts";

const problem = await (async () => {
  const compiler = await KernelCompiler.open();
  if (typeof compiler === "string") return compiler;
  compiler[Symbol.dispose]();
})();
if (problem !== undefined) console.error(`skipping: ${problem}`);

async function opened(sources?: Parameters<typeof KernelCompiler.open>[0]) {
  const compiler = await KernelCompiler.open(sources);
  if (typeof compiler === "string") throw new Error(compiler);
  return compiler;
}

Deno.test({
  name: "speed gates: kernels that stream keep their limits",
  ignore: problem !== undefined,
  fn: async () => {
    using compiler = await opened();
    const compiled = await compiler.compile(SPEED_LIMITS, H100.architecture.name);
    const missed = SPEED_LIMITS.flatMap(({ instance, today, shared, stages }) => {
      const launch = { dynamicShared: shared ?? 0, stages };
      const kernel = measureKernel(compiled.get(instance)!, H100, launch);
      const local = kernel.stream?.mix.filter(([name]) => /^(LDL|STL)$/.test(name)) ?? [];
      return [
        ...missedLimits(instance, speedMeasures(kernel), today),
        ...local.map(([name, count]) => `${instance}: ${count} ${name} in the loop that streams`),
      ];
    });
    assertEquals(missed, []);
  },
});

/**
 * Products of decoded tokens, and whether their weights are known before the previous kernel ends.
 */
const FIRST_REQUESTS: readonly (KernelName & {
  readonly early: boolean;
  readonly stages?: number;
})[] = [
  { file: "decode_gemm.cu", instance: "decode_gemm<FormatBF16, bf16, 0>", early: true },
  { file: "decode_gemm.cu", instance: "decode_gemm<FormatQ6_K, f16, 0>", early: true },
  { file: "gated_decode_gemm.cu", instance: "gated_decode_gemm<FormatQ4_K, f16, 0>", early: true },
  { file: "decode_gemm.cu", instance: "decode_gemm<FormatQ4_K, f16, 1>", early: true, stages: 5 },
  { file: "decode_gemm.cu", instance: "decode_gemm<FormatQ4_0, f16, 8>", early: true, stages: 5 },
  {
    ...{ file: "gated_decode_gemm.cu", instance: "gated_decode_gemm<FormatQ4_0, f16, 4>" },
    ...{ early: true, stages: 5 },
  },
  // The route chooses them.
  {
    file: "grouped_decode_gemm.cu",
    instance: "grouped_decode_gemm<FormatBF16, bf16, 0>",
    early: false,
  },
];

Deno.test({
  name: "speed gates: products request weights before they wait for the previous kernel",
  ignore: problem !== undefined,
  fn: async () => {
    using compiler = await opened();
    const compiled = await compiler.compile(FIRST_REQUESTS, H100.architecture.name);
    for (const { instance, early, stages } of FIRST_REQUESTS) {
      const { start, threads } = measureKernel(compiled.get(instance)!, H100, { stages });
      const requested = start!.early * threads / 32;
      // Little's law (GOALS): 14 KB a multiprocessor keep memory busy. A ring is filled, but for
      // one stage.
      assert(early ? requested >= 36 * 1024 : requested === 0, `${instance}: ${requested} bytes`);
    }
  },
});

/**
 * Kernels whose rows exist before their number is known, and the loads that then precede the exit
 * of a block without a row: of a row its first columns and the number of rows. Those of
 * `rope_append` precede the first wait: the loop that copies the numbers of heads, four angles and
 * four numbers of the token.
 */
const FIRST_LOADS: readonly (KernelName & {
  readonly row: RegExp;
  readonly least: number;
  readonly wait?: RegExp;
})[] = [
  ...["decode_gemm<FormatBF16, bf16, 0>", "decode_gemm<FormatQ4_0, f16, 0>"].map((instance) => ({
    ...{ file: "decode_gemm.cu", instance, row: /\bLDG\.E\.128 /, least: 2 },
  })),
  {
    ...{ file: "gated_decode_gemm.cu", instance: "gated_decode_gemm<FormatQ4_K, f16, 0>" },
    ...{ row: /\bLDG\.E\.128 /, least: 2 },
  },
  {
    ...{ file: "rope_append.cu", instance: "rope_append<f16>" },
    ...{ row: /\bLDGSTS\b|\bLDG\.E\.STRONG\.SYS\b/, least: 9, wait: /\bDEPBAR\b/ },
  },
];

Deno.test({
  name: "speed gates: rows and the number of rows are requested at once",
  ignore: problem !== undefined,
  fn: async () => {
    using compiler = await opened();
    for (const gpu of [H100, A100]) {
      const compiled = await compiler.compile(FIRST_LOADS, gpu.architecture.name);
      for (const { instance, row, least, wait } of FIRST_LOADS) {
        const { code } = compiled.get(instance)!;
        const begin = gpu === H100 ? code.indexOf("ACQBULK") : 0;
        const start = code.slice(begin, code.indexOf("BAR.SYNC", begin)).split("\n");
        const exit = wait === undefined
          ? start.findLastIndex((line) => /\bEXIT\b/.test(line))
          : start.findIndex((line) => wait.test(line));
        const loads = start.slice(0, exit).filter((line) => row.test(line)).length;
        assert(exit > 0 && loads >= least, `${instance} on ${gpu.name}: ${loads} loads`);
      }
    }
  },
});

/** Kernels of whole steps: with heads of 64 and of 128. */
const STEP_KERNELS = [
  { gpu: A100, shape: "smollm2-135m", type: "BF16" },
  { gpu: A100, shape: "qwen3-0.6b", type: "Q4_K" },
  { gpu: H100, shape: "llama-3.2-3b", type: "Q4_0" },
] as const;

Deno.test({
  name: "speed gates: kernels of whole steps spill nothing, and wait before they read activations",
  ignore: problem !== undefined || emulatedGpuUnavailable() !== undefined,
  fn: async (t) => {
    for (const { gpu, shape, type } of drawn("kernels of whole steps", STEP_KERNELS, 1 / 3)) {
      await t.step(`${shape} ${type} on ${gpu.name}`, async () => {
        const model = modelledLlama(shape, SHAPES[shape]!);
        const planned = await stepKernel(model, type, gpu, [{ batch: 1, tokens: 1, depth: 512 }]);
        const { sources, operations, threads, blocks } = planned;
        assertEquals(sources.length, 1);
        using compiler = await opened(sources);
        const name = { file: "step_kernel.cu", instance: "step_kernel" };
        const kernel = (await compiler.compile([name], gpu.architecture.name)).get("step_kernel")!;
        assertEquals(kernel.spillBytes, 0);
        assertEquals(kernel.threads, threads);
        // A cooperative launch needs the planned blocks on each multiprocessor at once.
        assert(measureKernel(kernel, gpu).blocks >= blocks, `${kernel.registers} registers`);
        const { waits, unordered, unfenced } = measureWaits(kernel.code);
        assertEquals(waits.length, operations.size);
        assertEquals(waits.flatMap(({ early }) => early), []);
        assertEquals(unordered, []);
        assertEquals(unfenced, 0);
        // Products fill their rings with weights before they wait.
        const products = [...operations].filter((one) => /decode_gemm</.test(one));
        assert(products.length >= 2);
        assertEquals(waits.filter(({ copies }) => copies > 0).length, products.length);
        // Activations are F32: such loads of constants are only of a table of the sine.
        const constants = kernel.code.match(/\bLDG\.E\.CONSTANT\b/g) ?? [];
        assert(constants.length <= 2, `${constants.length} loads of 4 bytes as constants`);
      });
    }
  },
});

Deno.test("speed gates: an entry allows less than a goal, never more", () => {
  for (const { instance, today } of SPEED_LIMITS) {
    for (const { measure, atLeast, goal } of GOALS) {
      const value = today[measure];
      if (value === undefined) continue;
      assert(atLeast ? value < goal : value > goal, `${instance} meets the goal for ${measure}`);
    }
  }
});

/** A kernel that adds up 16-byte loads, eight at a time, and slow variants of it. */
const STREAM = (seed: {
  readonly ahead?: number;
  readonly arithmetic?: string;
  readonly first?: string;
  readonly early?: string;
}) => `
#include "prelude.cuh"
#include "ptx.cuh"
__global__ void __launch_bounds__(256)
    stream(float* out, const uint4* in, u32 n, const u32* index) {
  wait_for_previous_kernel();
  float sum = 0;
  u32 i = ${seed.first ?? "blockIdx.x * blockDim.x + threadIdx.x"};
  ${seed.early ?? ""}
  for (; i < n; i += ${seed.ahead ?? 8} * blockDim.x) {
    uint4 v[${seed.ahead ?? 8}];
#pragma unroll
    for (u32 k = 0; k < ${seed.ahead ?? 8}; ++k) v[k] = load_streaming(in + i + k * blockDim.x);
#pragma unroll
    for (u32 k = 0; k < ${seed.ahead ?? 8}; ++k) {
      const u32 words[4] = {v[k].x, v[k].y, v[k].z, v[k].w};
#pragma unroll
      for (u32 j = 0; j < 4; ++j) ${seed.arithmetic ?? "sum += __uint_as_float(words[j])"};
    }
  }
  out[threadIdx.x] = sum;
}
INSTANCE(stream)
`;

const BYTES = `{
#pragma unroll
        for (u32 b = 0; b < 4; ++b) sum += float(i8(words[j] >> 8 * b));
      }`;

/** Shared memory that leaves room for two blocks on a multiprocessor. */
const TWO_BLOCKS = { dynamicShared: 100_000 };

/** Slow variants, each with the gate that catches it. */
const SEEDS: readonly (readonly [seed: string, text: string, caughtBy?: keyof SpeedMeasures])[] = [
  ["none", STREAM({})],
  ["conversions of single bytes", STREAM({ arithmetic: BYTES }), "pipe"],
  ["one load at a time", STREAM({ ahead: 1 }), "inFlight"],
  [
    "an index that is loaded through two others",
    STREAM({ first: "index[index[index[blockIdx.x]]] + threadIdx.x" }),
    "hops",
  ],
  [
    "a list in which each entry is the index of the next",
    STREAM({
      early: `
  u32 at = 0;
#pragma unroll 4
  for (u32 k = 0; k < 4 * n; ++k) at = index[at];
  sum += at;`,
    }),
    "waits",
  ],
];

Deno.test({
  name: "speed gates: each catches its kind of slowness",
  ignore: problem !== undefined,
  fn: async () => {
    const headers = deviceSources()[0]!.headers;
    for (const [seed, text, caughtBy] of SEEDS) {
      const source = { name: "stream.cu", text, headers };
      using compiler = await opened([source]);
      const compiled = await compiler.compile(
        [{ file: "stream.cu", instance: "stream" }],
        H100.architecture.name,
      );
      const missed = missedLimits(
        seed,
        speedMeasures(measureKernel(compiled.get("stream")!, H100, TWO_BLOCKS)),
      );
      if (caughtBy === undefined) assertEquals(missed, []);
      else assert(missed.some((line) => line.includes(`: ${caughtBy} `)), `${seed}: ${missed}`);
    }
  },
});

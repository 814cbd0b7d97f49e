/**
 * The launches of decoded tokens, as planned for an H100, and the expected times of steps. Plans
 * come from dry runs on the stand-in for the driver; they need no GPU.
 */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { parseBenchOptions } from "../../bench/bench_options.ts";
import { benchGpuModel } from "../../bench/gpu_model/bench_gpu_model.ts";
import { KernelCompiler } from "../../bench/gpu_model/compiled_kernels.ts";
import { planSteps } from "../../bench/gpu_model/launches.ts";
import { LAUNCH_BUDGETS, SMALL_GRIDS } from "../../bench/gpu_model/limits.ts";
import { MODELS } from "../../bench/gpu_model/models.ts";
import { A100, H100, H200 } from "../../bench/gpu_model/nvidia.ts";
import { PERSISTENT_MODELS, predictPersistent } from "../../bench/gpu_model/persistent.ts";
import { type Prediction, predictSteps } from "../../bench/gpu_model/predictions.ts";
import { drawRoofline } from "../../bench/gpu_model/roofline.ts";
import {
  allReduceTime,
  NVLINK,
  PCIE,
  predictDivided,
} from "../../bench/gpu_model/tensor_parallel.ts";
import { SHAPES } from "../../src/bench/synthetic/shapes.ts";
import { isThorough } from "../support/thorough.ts";
import { emulatedGpuUnavailable } from "./emulated_gpu.ts";

const ignore = emulatedGpuUnavailable() !== undefined;
const NO_LIBRARIES = { flash: false, cublaslt: false };
const TOKEN = { batch: 1, tokens: 1, depth: 512 };

for (const { model: name, today, goal } of LAUNCH_BUDGETS) {
  Deno.test({
    name: `a decoded token of ${name} takes at most ${today} launches (goal ${goal})`,
    ignore,
    fn: async () => {
      const model = MODELS.find((one) => one.name === name)!;
      const [step] = await planSteps(model, "Q4_0", H100, [TOKEN], NO_LIBRARIES);
      const launches = step!.launches;
      const count = launches.reduce((sum, launch) => sum + launch.count, 0);
      assert(count <= today, `${count} launches`);
      // Every multiprocessor has work in each launch that reads weights or caches.
      const small = launches.filter(({ flops, blocks }) =>
        flops > 0 && blocks < H100.multiprocessors
      ).map(({ kernel, matrix }) => `${kernel} ${matrix}`)
        .filter((launch) => !SMALL_GRIDS.some(([pattern]) => pattern.test(launch)));
      assertEquals(small, []);
      // Blocks of a product with rings stay on the device and share the tiles.
      const rings = launches.filter(({ kernel }) => /^(gated_)?decode_gemm<.*, 0>$/.test(kernel));
      assert(rings.length >= 3);
      assert(rings.every(({ blocks }) => blocks <= 2 * H100.multiprocessors));
      // Work is attributed: a token reads all weights of a dense layer.
      const bytes = launches.reduce((sum, launch) => sum + launch.count * launch.bytes, 0);
      const least: Record<string, number> = { "1B": 0.6e9, "8B": 4e9, "30B-A3B": 1.5e9 };
      assert(bytes > least[name]!, `${bytes} bytes`);
    },
  });
}

Deno.test({
  name: "decoding multiplies gates on every rank in the launch of their products",
  ignore,
  fn: async () => {
    const model = MODELS.find((one) => one.name === "1B")!;
    const [step] = await planSteps(model, "BF16", H100, [TOKEN], NO_LIBRARIES, 2);
    const products = step!.launches.filter(({ kernel }) => /decode_gemm</.test(kernel));
    // Four of a layer and the logits.
    assertEquals(products.reduce((sum, { count }) => sum + count, 0), 4 * model.nLayers + 1);
    assertEquals(step!.launches.filter(({ kernel }) => kernel === "glu"), []);
  },
});

Deno.test({
  name: "products of prompts in BF16 by cuBLASLt need no second pass",
  ignore,
  fn: async () => {
    const prompt = { batch: 1, tokens: 512, depth: 0 },
      libraries = { flash: false, cublaslt: true };
    const [step] = await planSteps(MODELS[0]!, "BF16", H100, [prompt], libraries);
    const count = (kernel: string) =>
      step!.launches.filter((launch) => launch.kernel === kernel)
        .reduce((sum, launch) => sum + launch.count, 0);
    assertEquals(count("cublasLtMatmul"), 4 * MODELS[0]!.nLayers);
    assertEquals(count("epilogue"), 0);
  },
});

Deno.test({
  name: "products of a prompt without cuBLASLt are expected at 62% of the tensor cores or more",
  ignore,
  fn: async () => {
    const compiler = await KernelCompiler.open();
    if (typeof compiler === "string") return console.error(`skipping: ${compiler}`);
    using _ = compiler;
    const prompt = { batch: 1, tokens: 4096, depth: 0 };
    const model = MODELS.find(({ name }) => name === "8B")!;
    const [step] = await predictSteps(compiler, H100, model, "BF16", NO_LIBRARIES, [prompt]);
    const products = step!.launches.filter(({ kernel }) => kernel.startsWith("wgmma_gemm<"));
    const sum = (value: (launch: typeof products[number]) => number) =>
      products.reduce((total, launch) => total + launch.count * value(launch), 0);
    assertEquals(sum(() => 1), 4 * model.nLayers);
    const share = sum(({ limit }) => limit) / sum(({ microseconds }) => microseconds);
    assert(share > 0.62 && share < 0.8, `${share}`);
    // A block for each multiprocessor.
    assert(products.every(({ blocks }) => blocks === H100.multiprocessors));
  },
});

Deno.test({
  name: "products of a prompt with quantised weights are expected at half of the tensor cores",
  ignore,
  fn: async () => {
    const compiler = await KernelCompiler.open();
    if (typeof compiler === "string") return console.error(`skipping: ${compiler}`);
    using _ = compiler;
    const prompt = { batch: 1, tokens: 4096, depth: 0 };
    for (const [name, least] of [["8B", 0.78], ["30B-A3B", 0.5]] as const) {
      const model = MODELS.find((one) => one.name === name)!;
      const [step] = await predictSteps(compiler, H100, model, "Q4_K", NO_LIBRARIES, [prompt]);
      const products = step!.launches.filter(({ kernel }) => /quantized_gemm</.test(kernel));
      assert(products.length >= 4);
      for (const { kernel, matrix, limit, microseconds } of products) {
        const share = limit / microseconds;
        assert(share > least && share < 0.9, `${kernel} ${matrix}: ${share}`);
      }
    }
  },
});

Deno.test({
  name: "the model predicts steps of 1B: within their limits, and faster with more bandwidth",
  // It compiles all kernels of a step and of a prompt.
  ignore: !isThorough || ignore,
  fn: async () => {
    const compiler = await KernelCompiler.open();
    if (typeof compiler === "string") return console.error(`skipping: ${compiler}`);
    using _ = compiler;
    const predict = (gpu: typeof H100) =>
      predictSteps(compiler, gpu, MODELS[0]!, "Q4_0", NO_LIBRARIES);
    const slow = await predict(H100), fast = await predict(H200);
    assertEquals(
      new Set(slow.flatMap(({ predictions }) => predictions.map(({ workload }) => workload))),
      new Set(["decode", "decode_attention", "sampling", "prefill"]),
    );
    slow.forEach(({ predictions }, i) =>
      predictions.forEach(({ share, time_us, limit_us }, j) => {
        assert(share > 0 && share < 1 && limit_us < time_us, `${share}`);
        assert(fast[i]!.predictions[j]!.time_us <= time_us);
      })
    );
    const picture = drawRoofline(H100, [{ name: "1B <Q4_0>", launches: slow[0]!.launches }]);
    assertStringIncludes(picture, "1B &lt;Q4_0&gt;");
    assert(!/NaN|Infinity/.test(picture));
  },
});

Deno.test({
  name: "the model adds the all-reduces of a model that GPUs divide",
  ignore,
  fn: async () => {
    const compiler = await KernelCompiler.open();
    if (typeof compiler === "string") return console.error(`skipping: ${compiler}`);
    using _ = compiler;
    const shape = SHAPES["smollm2-135m"]!;
    const divided = await predictDivided(compiler, NO_LIBRARIES, { name: "tiny", shape }, [3]);
    assertEquals(divided.map(({ link, batch }) => [link, batch]), [
      ["NVLink", 1],
      ["NVLink", 64],
      ["PCIe", 1],
      ["PCIe", 64],
    ]);
    // Longer sums leave more time for weights to arrive.
    const [fast, , slow] = divided.map((one) => one.time_us - one.all_reduce_us);
    assert(slow! < 1.01 * fast! && slow! > 0.9 * fast!, `${slow} and ${fast}`);
    for (const { time_us, all_reduce_us, share, link } of divided) {
      // 61 of the hidden states, one of the best tokens.
      const least = 62 * allReduceTime(0, 3, link === "PCIe" ? PCIE : NVLINK);
      assert(all_reduce_us > least && all_reduce_us < time_us && share > 0 && share < 1);
    }
  },
});

Deno.test({
  name: "one kernel for a step of a small model is expected to gain, more where no launch is early",
  ignore,
  fn: async () => {
    const compiler = await KernelCompiler.open();
    if (typeof compiler === "string") return console.error(`skipping: ${compiler}`);
    using _ = compiler;
    const gain = async (gpu: typeof H100) => {
      const one = [compiler, NO_LIBRARIES, gpu, PERSISTENT_MODELS[0]!, ["Q8_0"]] as const;
      const [step] = await predictPersistent(...one);
      const { launches, launched_us, counted_us, barrier_us } = step!;
      assert(launches <= 188, `${launches} launches`);
      assert(counted_us < barrier_us);
      return { barriers: 1 - barrier_us / launched_us, counters: 1 - counted_us / launched_us };
    };
    const early = await gain(H100), late = await gain(A100);
    // If kernels of a graph are as far apart as on an H200 (bench/README.md).
    assert(early.barriers > 0 && early.barriers < 0.12, JSON.stringify(early));
    assert(early.counters > 0.1 && early.counters < 0.25, JSON.stringify(early));
    assert(late.barriers > early.counters && late.counters < 0.5, JSON.stringify(late));
  },
});

/** Returns what `deno task bench gpu-model` prints with these options. */
async function printed(...options: readonly string[]): Promise<string> {
  const lines: string[] = [];
  const { log } = console;
  console.log = (line: string) => lines.push(line);
  try {
    await benchGpuModel(parseBenchOptions(["gpu-model", ...options]));
  } finally {
    console.log = log;
  }
  return lines.join("\n");
}

Deno.test("the model reports Apple's GPUs as JSON and as text, and rejects unknown devices", async () => {
  const report = JSON.parse(await printed("--device", "m4", "-o", "json")) as Prediction[];
  assert(report.length >= 8);
  for (const prediction of report) {
    assertEquals(
      Object.keys(prediction),
      ["device", "model", "type", "workload", "batch", "depth", "time_us", "limit_us", "share"],
    );
    assert(prediction.device === "M4" && prediction.share > 0 && prediction.share < 1);
  }
  // A token of SmolLM is to take at most 1/600 s.
  const small = report.find(({ model, type }) => model === "smollm2-135m" && type === "Q4_0");
  assert(small !== undefined && small.time_us < 1e6 / 600);
  assertStringIncludes(await printed("--device", "M4 Max"), "llama-3.1-8b");
  await assertRejects(() => printed("--device", "M9"), Error, "valid are A100, H100, H200, M1, M4");
});

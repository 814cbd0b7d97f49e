/**
 * Products with chosen experts in the shape of Qwen3-30B-A3B, from one token to a chunk of a
 * prompt: `experts.ts [--emulated]`. Prints the lines of `lines.ts`.
 */
import type { Backend, Quantizer, Recorder, Step, Value } from "../../src/backend.ts";
import { Random } from "../../src/bench/random.ts";
import { openBackend } from "../../src/engine/load/open_backend.ts";
import { tensorBytes, type TensorType } from "../../src/formats/tensor_info.ts";
import { repeatedWeight, weightPool } from "./products.ts";
import {
  gigabytes,
  randomStep,
  sayReadLimit,
  saySpeed,
  teraflops,
  timeBeyond,
  tokenInputs,
  tokenLimits,
} from "./timing.ts";

interface Sizes {
  readonly types: readonly TensorType[];
  readonly nExperts: number;
  readonly topK: number;
  /** Rows and columns of an expert. */
  readonly rows: number;
  readonly cols: number;
  readonly tokens: readonly number[];
  /** Choices of experts per step; together their experts exceed the L2 cache. */
  readonly routes: number;
  /** Products per choice: a layer of experts has two. */
  readonly weights: number;
}

const FULL: Sizes = {
  types: ["BF16", "Q8_0", "Q4_K"],
  nExperts: 128,
  topK: 8,
  rows: 1536,
  cols: 2048,
  tokens: [1, 8, 64, 512],
  routes: 8,
  weights: 2,
};

const EMULATED: Sizes = {
  types: ["BF16"],
  nExperts: 4,
  topK: 2,
  rows: 16,
  cols: 64,
  tokens: [1, 17],
  routes: 1,
  weights: 1,
};

async function main(args: readonly string[]): Promise<void> {
  const sizes = args.includes("--emulated") ? EMULATED : FULL;
  for (const type of sizes.types) {
    // Closing the device frees its weights.
    const backend = openBackend("cuda");
    try {
      if (type === sizes.types[0]) sayReadLimit(backend);
      await measure(backend, type, sizes);
    } finally {
      backend.close();
    }
  }
}

async function measure(
  backend: Backend & Quantizer,
  type: TensorType,
  sizes: Sizes,
): Promise<void> {
  const { nExperts, topK, rows, cols, tokens: counts, routes, weights } = sizes;
  const allRows = nExperts * rows;
  const data = repeatedWeight(weightPool(backend, type), type, allRows, cols);
  const most = Math.max(...counts), limits = tokenLimits(most);
  const base = await randomStep(backend, limits, cols, most, (recorder, x) => {
    recordRoutes(backend, recorder, x, sizes);
  });
  let chosen: readonly Value[] = [];
  const step = await randomStep(backend, limits, cols, most, (recorder, x) => {
    const stacked = Array.from(
      { length: weights },
      () => backend.uploadWeight(type, allRows, cols, data),
    );
    chosen = recordRoutes(backend, recorder, x, sizes);
    for (const route of chosen) {
      for (const weight of stacked) recorder.moeMatmul(x, route, weight, nExperts);
    }
  });
  for (const tokens of counts) {
    const microseconds = await timeBeyond(step, base, tokenInputs(tokens)) / (routes * weights);
    // The inputs of the last run.
    const used = chosen.map((route) => expertsOf(step, route, topK, tokens));
    const experts = used.reduce((sum, count) => sum + count, 0) / used.length;
    const bytes = experts * Number(tensorBytes(type, [rows, cols]));
    saySpeed({
      kind: "speed",
      group: "expert product",
      name: `${type} ${topK} of ${nExperts} [${rows}, ${cols}] x ${tokens}`,
      by: "forge",
      microseconds,
      ...(tokens <= 64 ? { gbPerSecond: gigabytes(bytes, microseconds) } : {}),
      ...(tokens > 1
        ? { teraflops: teraflops(2 * tokens * topK * rows * cols, microseconds) }
        : {}),
      of: { tokens },
    });
  }
  step.release();
  base.release();
}

/** Choices of experts by random routers, kept readable. */
function recordRoutes(
  backend: Backend,
  recorder: Recorder,
  x: Value,
  { nExperts, topK, cols, routes }: Sizes,
): Value[] {
  return Array.from({ length: routes }, (_, i) => {
    const random = new Random(i + 1);
    const router = Float32Array.from({ length: nExperts * cols }, () => random.normal(0.02));
    const weight = backend.uploadWeight("F32", nExperts, cols, new Uint8Array(router.buffer));
    const route = recorder.moeRoute(recorder.matmul(x, weight), { topK, normalize: true });
    recorder.keep(route);
    return route;
  });
}

/** Number of experts chosen by some tokens, whose weights are read. */
function expertsOf(step: Step, route: Value, topK: number, tokens: number): number {
  const cols = 2 * topK;
  const choices = step.read(route, cols, 0, tokens);
  return new Set(choices.filter((_, i) => i % cols < topK)).size;
}

if (import.meta.main) await main(Deno.args);

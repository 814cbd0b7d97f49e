/**
 * Products with weights of each type and the shapes of Llama-3.1-8B, from one token to a chunk of a
 * prompt: `products.ts [--emulated]`. Prints the lines of `lines.ts`.
 */
import type { Backend, Quantizer, Step } from "../../src/backend.ts";
import { Random } from "../../src/bench/random.ts";
import { openBackend } from "../../src/engine/load/open_backend.ts";
import { tensorBytes, type TensorType } from "../../src/formats/tensor_info.ts";
import type { SpeedLine } from "./lines.ts";
import {
  gigabytes,
  randomStep,
  sayReadLimit,
  saySpeed,
  teraflops,
  timeRuns,
  tokenInputs,
  tokenLimits,
} from "./timing.ts";

/** A weight `[rows, cols]`. */
interface Shape {
  readonly rows: number;
  readonly cols: number;
}

interface Sizes {
  readonly types: readonly TensorType[];
  readonly shapes: readonly Shape[];
  readonly tokens: readonly number[];
  /** Tokens and types of prompts that are computed with cuBLASLt, if it is present, and without. */
  readonly prompts: readonly number[];
  readonly promptTypes: readonly TensorType[];
  /** Bytes of different weights: several times the L2 cache. */
  readonly rotation: number;
  /** Bytes of weights that a run reads, large enough to hide its start-up. */
  readonly run: number;
}

const FULL: Sizes = {
  types: ["BF16", "Q8_0", "Q4_K", "Q6_K", "Q4_0", "F16", "F32"],
  shapes: [
    { rows: 6144, cols: 4096 },
    { rows: 4096, cols: 4096 },
    { rows: 28672, cols: 4096 },
    { rows: 4096, cols: 14336 },
    { rows: 128256, cols: 4096 },
  ],
  tokens: [1, 8, 16, 64, 512],
  prompts: [512, 4096],
  promptTypes: ["BF16", "F16"],
  rotation: 512e6,
  run: 1.5e9,
};

const EMULATED: Sizes = {
  types: ["BF16", "Q4_K"],
  shapes: [{ rows: 32, cols: 256 }],
  tokens: [1, 17],
  prompts: [33],
  promptTypes: ["BF16"],
  rotation: 1,
  run: 1,
};

/** Maximum number of weights per step, since each records launches. */
const MOST_PRODUCTS = 512;

/** Number of quantized weights; the rest repeat them. */
const POOL = 2 ** 20;

async function main(args: readonly string[]): Promise<void> {
  const sizes = args.includes("--emulated") ? EMULATED : FULL;
  for (const type of sizes.types) await measureType(type, sizes, sizes.tokens, "forge");
  const long = sizes.prompts.filter((tokens) => !sizes.tokens.includes(tokens));
  for (const type of sizes.promptTypes) await measureType(type, sizes, long, "forge");
  // The library is searched when a device is opened.
  Deno.env.set("FORGE_CUBLASLT", "none");
  for (const type of sizes.promptTypes) {
    await measureType(type, sizes, sizes.prompts, "forge, no cuBLASLt");
  }
}

let saidReadLimit = false;
/** Times of steps without products, by columns, limit and number of tokens. */
const baseTimes = new Map<string, number>();

async function measureType(
  type: TensorType,
  sizes: Sizes,
  tokens: readonly number[],
  by: SpeedLine["by"],
): Promise<void> {
  // Closing the device frees its weights.
  const backend = openBackend("cuda");
  try {
    if (!saidReadLimit) sayReadLimit(backend);
    saidReadLimit = true;
    const pool = weightPool(backend, type);
    // Results of a long prompt for a whole vocabulary take gigabytes.
    const shapes = sizes.shapes.filter(({ rows }) => rows * Math.max(...tokens) < 2 ** 28);
    for (const shape of shapes) await measure(backend, type, pool, shape, sizes, tokens, by);
  } finally {
    backend.close();
  }
}

/** Random weights of a type, for {@linkcode repeatedWeight}. */
export function weightPool(quantizer: Quantizer, type: TensorType): Uint8Array {
  const random = new Random(1);
  const values = Float32Array.from({ length: POOL }, () => random.normal(0.02));
  return quantizer.quantize(type, 1, POOL, values);
}

/** A weight `[rows, cols]` that repeats a pool of its type. */
export function repeatedWeight(
  pool: Uint8Array,
  type: TensorType,
  rows: number,
  cols: number,
): Uint8Array<ArrayBuffer> {
  const data = new Uint8Array(Number(tensorBytes(type, [rows, cols])));
  for (let at = 0; at < data.length; at += pool.length) {
    data.set(pool.subarray(0, data.length - at), at);
  }
  return data;
}

async function measure(
  backend: Backend,
  type: TensorType,
  pool: Uint8Array,
  { rows, cols }: Shape,
  { rotation, run }: Sizes,
  counts: readonly number[],
  by: SpeedLine["by"],
): Promise<void> {
  const data = repeatedWeight(pool, type, rows, cols), bytes = data.length;
  const count = Math.max(2, Math.min(MOST_PRODUCTS, Math.ceil(rotation / bytes)));
  const passes = Math.min(Math.floor(MOST_PRODUCTS / count), Math.ceil(run / (count * bytes)));
  const most = Math.max(...counts);
  const limits = tokenLimits(most);
  const base = await randomStep(backend, limits, cols, most, (recorder, x) => recorder.keep(x));
  const step: Step = await randomStep(backend, limits, cols, most, (recorder, x) => {
    const weights = Array.from(
      { length: count },
      () => backend.uploadWeight(type, rows, cols, data),
    );
    for (let pass = 0; pass < passes; pass++) {
      for (const weight of weights) recorder.matmul(x, weight);
    }
  });
  const products = count * passes;
  for (const tokens of counts) {
    const inputs = tokenInputs(tokens);
    const whole = await timeRuns(step, inputs);
    // Embedding the rows takes the same time before products with weights of any type.
    const name = `${cols} ${most} ${tokens}`;
    const rest = baseTimes.get(name) ?? await timeRuns(base, inputs);
    baseTimes.set(name, rest);
    const microseconds = (whole - rest) / products;
    saySpeed({
      kind: "speed",
      group: "product",
      name: `${type} [${rows}, ${cols}] x ${tokens}`,
      by,
      microseconds,
      ...(tokens <= 16 ? { gbPerSecond: gigabytes(bytes, microseconds) } : {}),
      ...(tokens > 1 ? { teraflops: teraflops(2 * tokens * rows * cols, microseconds) } : {}),
      of: { tokens },
    });
  }
  step.release();
  base.release();
}

if (import.meta.main) await main(Deno.args);

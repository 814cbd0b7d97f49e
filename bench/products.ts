/**
 * Products with weights of each type, for one token, a few and many, compared with the machine's
 * limits.
 */
import type { Backend, Step, StepInputs } from "../src/backend.ts";
import { Random } from "../src/bench/random.ts";
import { plural } from "../src/cli/output/format.ts";
import { openBackend } from "../src/engine/load/open_backend.ts";
import { TENSOR_TYPES, tensorBytes, type TensorType } from "../src/formats/tensor_info.ts";
import type { BenchOptions } from "./bench_options.ts";
import type { Limits, Machine } from "./limits.ts";

const TYPES: readonly TensorType[] = [
  ...[
    "F32",
    "F16",
    "BF16",
    "Q8_0",
    "Q6_K",
    "Q5_K",
    "Q5_0",
    "Q5_1",
    "Q4_K",
    "Q4_0",
    "Q4_1",
  ] as const,
  ...["IQ4_NL", "IQ4_XS", "MXFP4", "FP8", "Q3_K", "Q2_K"] as const,
];

const TOKENS = [1, 8, 512] as const;

/** Weights, used in turn; together they are larger than any cache. */
const COUNT = 8, ROWS = 8192, COLS = 2048;

/** Prints a line for each type. */
export async function benchProducts(options: BenchOptions, machine: Machine): Promise<void> {
  const { device, rounds, threads } = options;
  const backend = openBackend(device, threads);
  const title = TOKENS.map((n) => plural(n, "token").padStart(28)).join("");
  console.log(`products of ${COUNT} weights [${ROWS}, ${COLS}], ${plural(threads, "thread")}`);
  console.log(`${"type".padEnd(8)}${title}`);
  for (const type of TYPES) {
    const size = tensorBytes(type, [ROWS, COLS]);
    if (typeof size === "string") throw new Error(size);
    const cells: string[] = [];
    for (const tokens of TOKENS) {
      const seconds = await measure(backend, type, size, tokens, rounds);
      cells.push(cell(type, COUNT * size, tokens, seconds, machine.limits));
    }
    console.log(`${type.padEnd(8)}${cells.map((text) => text.padStart(28)).join("")}`);
  }
}

/** The shortest time of all products, in seconds: other load only adds to it. */
async function measure(
  backend: Backend,
  type: TensorType,
  size: number,
  tokens: number,
  rounds: number,
): Promise<number> {
  const random = new Random(1);
  // Bytes that cannot be the upper byte of a large or NaN float; a piece of them, repeated.
  const piece = Uint8Array.from({ length: 1 << 16 }, () => 32 + random.below(32));
  const bytes = new Uint8Array(size);
  for (let at = 0; at < size; at += piece.length) {
    bytes.set(piece.subarray(0, size - at), at);
  }
  const table = Float32Array.from({ length: tokens * COLS }, () => random.below(255) - 127);
  const limits = { maxTokens: tokens, maxOutputs: 1, maxSequences: 1, maxPages: 1 };
  const recorder = backend.record(limits);
  const x = recorder.embed(
    backend.uploadWeight("F32", tokens, COLS, new Uint8Array(table.buffer)),
  );
  for (let i = 0; i < COUNT; i++) {
    recorder.matmul(x, backend.uploadWeight(type, ROWS, COLS, bytes));
  }
  const step: Step = await recorder.finish();
  const numbers = Int32Array.from({ length: tokens }, (_, i) => i);
  const inputs: StepInputs = {
    tokens: numbers,
    positions: numbers,
    sequences: new Int32Array(tokens),
    pageTables: [[0]],
    outputs: [],
  };
  await step.run(inputs);
  let best = Infinity;
  for (let round = 0; round < rounds; round++) {
    const start = performance.now();
    await step.run(inputs);
    best = Math.min(best, performance.now() - start);
  }
  step.release();
  return best / 1e3;
}

/** Formats bytes read for one token, else operations, each with its share of the limit. */
function cell(
  type: TensorType,
  bytes: number,
  tokens: number,
  seconds: number,
  limits: Limits | undefined,
): string {
  const share = (value: number, limit: number | undefined) =>
    limit === undefined || limit === 0 ? "" : ` (${(value / limit * 100).toFixed(0)}%)`;
  if (tokens === 1) {
    const read = bytes / seconds / 1e9;
    return `${read.toFixed(1)} GB/s${share(read, limits?.read_gb_s)}`;
  }
  const operations = 2 * COUNT * ROWS * COLS * tokens / seconds / 1e9;
  const isInt8 = TENSOR_TYPES[type].blockElements > 1 && type !== "FP8";
  const limit = isInt8 ? limits?.int8_gop_s : limits?.fma_gflop_s;
  return `${operations.toFixed(0)} GOP/s${share(operations, limit)}`;
}

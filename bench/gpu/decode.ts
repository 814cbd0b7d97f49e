/**
 * Whole steps of models with random weights, decoding and prefill: `decode.ts [--emulated]
 * [TYPE...]`, such as `decode.ts llama-3.1-8b:Q4_K`. Prints the lines of `lines.ts`.
 */
import { type BenchModel, openBenchModel } from "../../src/bench/bench_model.ts";
import { measure } from "../../src/bench/measure.ts";
import { median } from "../../src/bench/statistics.ts";
import type { ConfigSpec } from "../../src/bench/synthetic/checkpoint.ts";
import { SyntheticModel } from "../../src/bench/synthetic/model.ts";
import { type ModelShape, SHAPES } from "../../src/bench/synthetic/shapes.ts";
import { parseSyntheticSpec, type SyntheticSpec } from "../../src/bench/synthetic/spec.ts";
import { openBackend } from "../../src/engine/load/open_backend.ts";
import { say } from "./lines.ts";
import { gigabytes, MEASURED_MS, teraflops, WARM_UP_MS } from "./timing.ts";

/** The measurements of a model. */
interface Plan {
  readonly spec: SyntheticSpec;
  /** Numbers of sequences decoded at once. */
  readonly batches: readonly number[];
  readonly prompts: readonly number[];
  /** Tokens in the cache of each decoded sequence. */
  readonly depth: number;
  readonly steps: number;
  readonly repetitions: number;
}

const FULL: readonly (readonly [string, readonly number[], readonly number[]])[] = [
  ["llama-3.1-8b:BF16", [1, 8, 64], [512, 4096, 32768]],
  ["llama-3.2-1b:BF16", [1], [512]],
  ["llama-3.1-8b:Q4_K", [1, 8, 64], [512, 4096]],
  ["llama-3.1-8b:Q8_0", [1, 8, 64], [512]],
];

/** A model that an emulator runs in seconds. */
export const SMALLEST: ConfigSpec = {
  name: "smallest:BF16",
  type: "BF16",
  config: {
    model_type: "llama",
    hidden_size: 64,
    intermediate_size: 128,
    num_hidden_layers: 1,
    num_attention_heads: 2,
    num_key_value_heads: 1,
    head_dim: 32,
    vocab_size: 320,
    max_position_embeddings: 256,
    rms_norm_eps: 1e-5,
    rope_theta: 10000,
    tie_word_embeddings: true,
  },
};

async function main(args: readonly string[]): Promise<void> {
  for (const plan of plans(args)) {
    const quantizer = openBackend("cpu");
    using model = new SyntheticModel(plan.spec, quantizer);
    quantizer.close();
    await measureModel(model.model, plan);
  }
}

/** Returns the measurements that arguments name. @throws {Error} for an unknown name */
export function plans(args: readonly string[]): Plan[] {
  if (args.includes("--emulated")) {
    const sizes = { batches: [2], prompts: [17], depth: 3, steps: 3, repetitions: 1 };
    return [{ spec: SMALLEST, ...sizes }];
  }
  const known = FULL.map(([name]) => name);
  const unknown = args.find((name) => !known.includes(name));
  if (unknown !== undefined) throw new Error(`unknown "${unknown}"; valid are ${known.join(", ")}`);
  return FULL.filter(([name]) => args.length === 0 || args.includes(name)).map(
    ([name, batches, prompts]): Plan => ({
      spec: parseSyntheticSpec(name),
      batches,
      prompts,
      depth: 512,
      steps: 32,
      repetitions: 3,
    }),
  );
}

async function measureModel(
  file: Parameters<typeof openBenchModel>[0],
  { spec: { name }, batches, prompts, depth, steps, repetitions }: Plan,
): Promise<void> {
  const longest = depth + steps + 1;
  const most = Math.max(...batches);
  using model = await openBenchModel(file, {
    name,
    device: "cuda",
    threads: 0,
    contextLength: Math.max(longest, ...prompts) + 1,
    maxSequences: most,
    cacheTokens: Math.max(most * (longest + 64), ...prompts.map((tokens) => tokens + 64)),
    measuresLimits: true,
  });
  const { readBandwidth } = model;
  if (readBandwidth > 0) say({ kind: "limit", name: "read GB/s", value: readBandwidth / 1e9 });
  const shape = SHAPES[name.replace(/:.*/, "")];
  for (const batch of batches) {
    const workload = { nPrompt: 0, nGen: steps, nDepth: depth, nParallel: batch };
    const times = await samples(model, workload, repetitions, "decode");
    const microseconds = median(times) / steps;
    const read = model.summary.decodeBytes + batch * (depth + steps / 2) * cacheBytes(shape);
    say({
      kind: "speed",
      group: "decode step",
      name: stepName(name, batch, depth),
      by: "forge",
      microseconds,
      gbPerSecond: gigabytes(read, microseconds),
      of: { batch, billions: Math.round(model.summary.parameters / 1e9) },
    });
  }
  for (const tokens of prompts) {
    const workload = { nPrompt: tokens, nGen: 0, nDepth: 0 };
    const long = tokens > 8192;
    const times = await samples(model, workload, long ? 1 : repetitions, "prefill");
    const microseconds = median(times);
    say({
      kind: "speed",
      group: "prefill",
      name: promptName(name, tokens),
      by: "forge",
      microseconds,
      ...(shape && { teraflops: teraflops(prefillOperations(shape, tokens), microseconds) }),
      of: { tokens },
    });
  }
}

/** Name of a decode step in the report. */
export function stepName(model: string, batch: number, depth: number): string {
  return `${model}, ${batch} x ${depth}`;
}

/** Name of a prefill in the report. */
export function promptName(model: string, tokens: number): string {
  return `${model}, ${tokens} tokens`;
}

/**
 * Returns the microseconds of repetitions, at least as many as told and MEASURED_MS in all, after
 * the clocks of an idle GPU have risen.
 */
async function samples(
  model: BenchModel,
  workload: Parameters<typeof measure>[1],
  repetitions: number,
  part: "prefill" | "decode",
): Promise<number[]> {
  const times: number[] = [];
  let sum = 0;
  const warmUntil = performance.now() + WARM_UP_MS;
  for await (const sample of measure(model.runner, workload, Infinity)) {
    const start = performance.now() - (sample.prefill + sample.decode) / 1e6;
    if (start < warmUntil) continue;
    times.push(sample[part] / 1e3);
    sum += sample[part] / 1e6;
    if (times.length >= repetitions && sum >= MEASURED_MS) break;
  }
  return times;
}

/** Bytes of the keys and values of one position, in F16. */
function cacheBytes(shape: ModelShape | undefined): number {
  return shape === undefined ? 0 : 4 * shape.nLayers * shape.nKvHeads * shape.headDim;
}

/**
 * Operations of prefill: causal attention, and the products of all tokens except the vocabulary's.
 */
function prefillOperations(shape: ModelShape, tokens: number): number {
  const { nLayers, hiddenSize, intermediateSize, nHeads, nKvHeads, headDim } = shape;
  const attention = (nHeads + nKvHeads) * 2 * headDim * hiddenSize;
  const weights = nLayers * (attention + 3 * intermediateSize * hiddenSize);
  return 2 * tokens * weights + 2 * nLayers * tokens * (tokens + 1) * nHeads * headDim;
}

if (import.meta.main) await main(Deno.args);

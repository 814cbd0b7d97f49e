/**
 * Attention alone: KV caches with the shapes of real models, read from memory, without products.
 */
import type { Backend, KvCache, KvType, Step } from "../src/backend.ts";
import { Random } from "../src/bench/random.ts";
import { median } from "../src/bench/statistics.ts";
import { KV_ELEMENT_BYTES } from "../src/engine/cache/memory.ts";
import { openBackend } from "../src/engine/load/open_backend.ts";
import { PAGE_TOKENS } from "../src/engine/runner.ts";
import type { BenchOptions } from "./bench_options.ts";
import type { Machine } from "./limits.ts";
import { continuedSequences } from "./step_inputs.ts";

/** Attention heads of one model. */
interface HeadShape {
  readonly name: string;
  readonly nLayers: number;
  readonly nHeads: number;
  readonly nKvHeads: number;
  readonly headDim: number;
}

const SHAPES: readonly HeadShape[] = [
  { name: "llama-3.2-1b", nLayers: 16, nHeads: 32, nKvHeads: 8, headDim: 64 },
  { name: "llama-3.1-8b", nLayers: 8, nHeads: 32, nKvHeads: 8, headDim: 128 },
];

/** Tokens of each sequence per run, following the tokens in the cache. */
interface Case {
  readonly sequences: number;
  readonly nTokens: number;
  readonly depth: number;
}

const CASES: readonly Case[] = [
  { sequences: 1, nTokens: 1, depth: 512 },
  { sequences: 1, nTokens: 1, depth: 4096 },
  { sequences: 8, nTokens: 1, depth: 1024 },
  { sequences: 1, nTokens: 512, depth: 0 },
  { sequences: 1, nTokens: 512, depth: 4096 },
];

const CHUNK = 512;
/** Distinct query rows of the steps; steps repeat them. */
const ROWS = 512;

/** Prints a line for each shape, cache type and case. */
export async function benchAttention(options: BenchOptions, machine: Machine): Promise<void> {
  const backend = openBackend(options.device, options.threads);
  try {
    for (const shape of SHAPES) {
      for (const type of ["F16", "Q8_0"] as const) {
        for (const test of CASES) {
          const seconds = await measureCase(backend, shape, type, test, options.rounds);
          console.log(describeCase(shape, type, test, seconds, machine));
        }
      }
    }
  } finally {
    backend.close();
  }
}

/** Seconds of attention in one layer: the time of a run with it minus the time without it. */
async function measureCase(
  backend: Backend,
  shape: HeadShape,
  type: KvType,
  { sequences, nTokens, depth }: Case,
  rounds: number,
): Promise<number> {
  const pagesEach = Math.ceil((depth + nTokens) / PAGE_TOKENS);
  const caches = Array.from({ length: shape.nLayers }, () =>
    backend.createKv({
      type,
      nPages: pagesEach * sequences,
      pageTokens: PAGE_TOKENS,
      nKvHeads: shape.nKvHeads,
      kHeadDim: shape.headDim,
      vHeadDim: shape.headDim,
    }));
  const limits = {
    maxTokens: Math.max(CHUNK, sequences * nTokens),
    maxOutputs: 1,
    maxSequences: sequences,
    maxPages: pagesEach,
  };
  const append = await recordLayers(backend, shape, caches, limits, false);
  const attend = await recordLayers(backend, shape, caches, limits, true);
  const pageTables = Array.from(
    { length: sequences },
    (_, s) => Int32Array.from({ length: pagesEach }, (_, i) => s * pagesEach + i),
  );
  for (let sequence = 0; sequence < sequences; sequence++) {
    for (let at = 0; at < depth; at += CHUNK) {
      await append.run(
        continuedSequences([sequence], Math.min(CHUNK, depth - at), at, pageTables, ROWS),
      );
    }
  }
  const inputs = continuedSequences(pageTables.map((_, s) => s), nTokens, depth, pageTables, ROWS);
  await attend.run(inputs);
  const times: number[] = [];
  for (let round = 0; round < rounds; round++) {
    times.push(await time(() => attend.run(inputs)) - await time(() => append.run(inputs)));
  }
  append.release();
  attend.release();
  return median(times) / shape.nLayers;
}

function recordLayers(
  backend: Backend,
  { nHeads, nKvHeads, headDim }: HeadShape,
  caches: readonly KvCache[],
  limits: Parameters<Backend["record"]>[0],
  attends: boolean,
): Promise<Step> {
  const cols = (nHeads + 2 * nKvHeads) * headDim;
  const random = new Random(cols);
  const rows = Float32Array.from({ length: ROWS * cols }, () => random.normal(1));
  const weight = backend.uploadWeight("F32", ROWS, cols, new Uint8Array(rows.buffer));
  const recorder = backend.record(limits);
  const qkv = recorder.embed(weight);
  for (const kv of caches) {
    const q = recorder.ropeAppend(qkv, kv, { nHeads, eps: 1e-5, ropeLayout: "half" });
    const out = attends ? recorder.attention(q, kv, { nHeads, scale: headDim ** -0.5 }) : q;
    recorder.keep(out);
  }
  return recorder.finish();
}

async function time(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return (performance.now() - start) / 1e3;
}

function describeCase(
  { name, nHeads, nKvHeads, headDim }: HeadShape,
  type: KvType,
  { sequences, nTokens, depth }: Case,
  seconds: number,
  { limits }: Machine,
): string {
  const bytes = sequences * (depth + nTokens) * nKvHeads * headDim * 2 * KV_ELEMENT_BYTES[type];
  const pairs = sequences * nTokens * (depth + (nTokens + 1) / 2);
  const flops = pairs * nHeads * headDim * 4;
  const share = (value: number, limit: number | undefined) =>
    limit === undefined ? "" : ` (${(value / limit * 100).toFixed(0)}%)`;
  const read = bytes / seconds / 1e9, arithmetic = flops / seconds / 1e9;
  return [
    `attention ${name} ${type}`.padEnd(28),
    `${sequences} x ${nTokens} @ d${depth}`.padEnd(16),
    `${(seconds * 1e6).toFixed(1)} us`.padStart(12),
    `KV ${read.toFixed(1)} GB/s${share(read, limits?.read_gb_s)}`.padStart(22),
    `${arithmetic.toFixed(0)} GFLOP/s${share(arithmetic, limits?.fma_gflop_s)}`.padStart(22),
  ].join("  ");
}

/**
 * Attention alone, with the heads of Llama-3.1-8B, over caches of random keys and values:
 * `attention.ts [--emulated]`. Prints the lines of `lines.ts`.
 */
import { NativeBackend } from "../../ffi/native_backend.ts";
import type {
  AttentionKernels,
  Backend,
  KvCache,
  KvType,
  Step,
  StepLimits,
} from "../../src/backend.ts";
import { KV_ELEMENT_BYTES } from "../../src/engine/cache/memory.ts";
import { PAGE_TOKENS } from "../../src/engine/runner.ts";
import { ForgeError } from "../../src/errors.ts";
import { continuedSequences } from "../step_inputs.ts";
import { say, type SpeedLine } from "./lines.ts";
import { gigabytes, randomStep, sayReadLimit, saySpeed, teraflops, timeBeyond } from "./timing.ts";

/** Tokens of each sequence per run, at the end of its cache. */
interface Case {
  readonly batch: number;
  readonly tokens: number;
  readonly length: number;
  readonly type: KvType;
}

interface Heads {
  readonly nHeads: number;
  readonly nKvHeads: number;
  readonly headDim: number;
}

const EIGHT_B: Heads = { nHeads: 32, nKvHeads: 8, headDim: 128 };
const TINY: Heads = { nHeads: 4, nKvHeads: 2, headDim: 32 };

const LENGTHS = [128, 1024, 8192, 32768, 131072];

/** The cases in order of importance: the part may be stopped before the last. */
const FULL: readonly Case[] = [
  ...[1, 8, 64].flatMap((batch) => LENGTHS.map((length) => ({ batch, length }))).map((some) => ({
    ...some,
    tokens: 1,
    type: "F16" as const,
  })),
  ...[512, 4096, 32768].map((length) => ({
    batch: 1,
    tokens: 512,
    length,
    type: "F16" as const,
  })),
  ...[1, 8].map((batch) => ({ batch, tokens: 1, length: 8192, type: "Q8_0" as const })),
];

const EMULATED: readonly Case[] = [
  { batch: 2, tokens: 1, length: 40, type: "F16" },
  { batch: 1, tokens: 20, length: 20, type: "Q8_0" },
];

/** Bytes of the caches of a step: several times the L2 cache. */
const ROTATION = 512e6;
const MOST_LAYERS = 32;
/** Maximum bytes of device memory for caches. */
const MOST_BYTES = 40e9;
/** Positions filled at once. */
const FILL = 4096;
/** Distinct query rows of the steps; steps repeat them. */
const ROWS = 512;

async function main(args: readonly string[]): Promise<void> {
  const emulated = args.includes("--emulated");
  {
    const backend = NativeBackend.open({ kind: "cuda" });
    sayReadLimit(backend);
    backend.close();
  }
  for (const test of emulated ? EMULATED : FULL) {
    // Closing the device frees its caches.
    const backend = NativeBackend.open({ kind: "cuda" });
    try {
      await measure(backend, emulated ? TINY : EIGHT_B, test, emulated);
    } finally {
      backend.close();
    }
  }
}

async function measure(
  backend: NativeBackend,
  heads: Heads,
  test: Case,
  emulated: boolean,
): Promise<void> {
  const { batch, tokens, length, type } = test;
  const bytes = batch * length * cacheBytes(heads, type);
  if (bytes > MOST_BYTES) {
    say({ kind: "note", text: `attention of ${batch} x ${length}: the caches take too much` });
    return;
  }
  const nLayers = emulated ? 1 : Math.min(MOST_LAYERS, Math.max(1, Math.ceil(ROTATION / bytes)));
  const pagesEach = Math.ceil(length / PAGE_TOKENS);
  const caches = Array.from({ length: nLayers }, () =>
    backend.createKv({
      type,
      nPages: pagesEach * batch,
      pageTokens: PAGE_TOKENS,
      nKvHeads: heads.nKvHeads,
      kHeadDim: heads.headDim,
      vHeadDim: heads.headDim,
    }));
  const limits = {
    maxTokens: Math.max(Math.min(FILL, length), batch * tokens),
    maxOutputs: 1,
    maxSequences: batch,
    maxPages: pagesEach,
  };
  const append = await recordLayers(backend, heads, caches, limits, false);
  const pageTables = Array.from(
    { length: batch },
    (_, s) => Int32Array.from({ length: pagesEach }, (_, i) => s * pagesEach + i),
  );
  for (let sequence = 0; sequence < batch; sequence++) {
    for (let at = 0; at < length; at += FILL) {
      await append.run(
        continuedSequences([sequence], Math.min(FILL, length - at), at, pageTables, ROWS),
      );
    }
  }
  const inputs = continuedSequences(
    pageTables.map((_, s) => s),
    tokens,
    length - tokens,
    pageTables,
    ROWS,
  );
  const pairs = batch * tokens * (length - (tokens - 1) / 2);
  const operations = 4 * pairs * heads.nHeads * heads.headDim;
  const measureKernels = async (kernels: AttentionKernels, by: SpeedLine["by"]) => {
    backend.setAttention(kernels);
    const attend = await recordLayers(backend, heads, caches, limits, true);
    const microseconds = await timeBeyond(attend, append, inputs) / nLayers;
    attend.release();
    saySpeed({
      kind: "speed",
      group: tokens === 1 ? "decode attention" : "prefill attention",
      name: tokens === 1
        ? `${type} ${batch} x ${length}`
        : `${type} ${tokens} queries of ${length} positions`,
      by,
      microseconds,
      ...(tokens === 1
        ? { gbPerSecond: gigabytes(bytes, microseconds) }
        : { teraflops: teraflops(operations, microseconds) }),
      of: { batch, tokens, length },
    });
  };
  await measureKernels("auto", "forge");
  // Measure the other choice, too, to check the automatic one.
  const other = tokens === 1 ? "flash" : "tiled";
  try {
    await measureKernels(other, `forge, ${other}`);
  } catch (error) {
    if (!(error instanceof ForgeError && error.code === "unsupported")) throw error;
    say({ kind: "note", text: error.message });
  }
  append.release();
}

/** Bytes of the keys and values of one position. */
function cacheBytes({ nKvHeads, headDim }: Heads, type: KvType): number {
  return 2 * nKvHeads * headDim * KV_ELEMENT_BYTES[type];
}

function recordLayers(
  backend: Backend,
  { nHeads, nKvHeads, headDim }: Heads,
  caches: readonly KvCache[],
  limits: StepLimits,
  attends: boolean,
): Promise<Step> {
  const cols = (nHeads + 2 * nKvHeads) * headDim;
  return randomStep(backend, limits, cols, ROWS, (recorder, qkv) => {
    for (const kv of caches) {
      const q = recorder.ropeAppend(qkv, kv, { nHeads, eps: 1e-5, ropeLayout: "half" });
      if (attends) recorder.attention(q, kv, { nHeads, scale: headDim ** -0.5 });
    }
  });
}

if (import.meta.main) await main(Deno.args);

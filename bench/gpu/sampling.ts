/**
 * Sampling of tokens from a vocabulary of 128k, and a step with almost no other work:
 * `sampling.ts [--emulated]`. Prints the lines of `lines.ts`.
 */
import type { Backend, OutputRequest, SamplingParams, Step, Value } from "../../src/backend.ts";
import { Random } from "../../src/bench/random.ts";
import { openBackend } from "../../src/engine/load/open_backend.ts";
import { UNSAMPLED } from "../../src/engine/runner.ts";
import { say } from "./lines.ts";
import {
  gigabytes,
  randomStep,
  sayReadLimit,
  saySpeed,
  timeBeyond,
  timeRuns,
  tokenInputs,
  tokenLimits,
} from "./timing.ts";

const off = UNSAMPLED.sampling;

/** Common sampling chains. */
const CHAINS: Readonly<Record<string, Partial<SamplingParams>>> = {
  greedy: {},
  "temperature": { temperature: 0.8 },
  "top_k 40": { temperature: 0.8, topK: 40 },
  "top_p 0.95": { temperature: 0.8, topP: 0.95 },
  "top_k 40, top_p 0.95, min_p 0.05, penalties": {
    temperature: 0.8,
    topK: 40,
    topP: 0.95,
    minP: 0.05,
    repeatPenalty: 1.1,
    presencePenalty: 0.1,
  },
};

const HISTORY = 512;

async function main(args: readonly string[]): Promise<void> {
  const emulated = args.includes("--emulated");
  const vocabulary = emulated ? 600 : 128_256;
  const backend = openBackend("cuda");
  try {
    sayReadLimit(backend);
    for (const batch of emulated ? [2] : [1, 64]) {
      for (const shape of ["flat", "peaked"] as const) {
        await measureSampling(backend, vocabulary, batch, shape);
      }
    }
    await measureHost(backend);
  } finally {
    backend.close();
  }
}

/** Flat logits, of which top_p keeps a third of the vocabulary, or peaked ones, as of a model. */
type Shape = "flat" | "peaked";

/** Returns rows of logits: normal numbers, and in peaked rows eight that stand out. */
function logitRows(shape: Shape, rows: number, cols: number): Float32Array<ArrayBuffer> {
  const random = new Random(cols);
  const deviation = shape === "flat" ? 1 : 3;
  // A prime period, so that rows differ.
  const pool = Float32Array.from({ length: 65_521 }, () => random.normal(deviation));
  const logits = Float32Array.from({ length: rows * cols }, (_, i) => pool[i % pool.length]!);
  if (shape === "flat") return logits;
  for (let row = 0; row < rows; row++) {
    for (let i = 0; i < 8; i++) logits[row * cols + random.below(cols)] = 16 + i / 2;
  }
  return logits;
}

async function measureSampling(backend: Backend, vocabulary: number, batch: number, shape: Shape) {
  const limits = tokenLimits(batch);
  const rows = new Uint8Array(logitRows(shape, batch, vocabulary).buffer);
  const record = async (use: (recorder: ReturnType<Backend["record"]>, logits: Value) => void) => {
    const recorder = backend.record(limits);
    const table = backend.uploadWeight("F32", batch, vocabulary, rows);
    use(recorder, recorder.gatherOutputs(recorder.embed(table)));
    return await recorder.finish();
  };
  const base = await record((recorder, logits) => recorder.keep(logits));
  const step = await record((recorder, logits) => void recorder.sample(logits, 0));
  for (const [name, chain] of Object.entries(CHAINS)) {
    const inputs = { ...tokenInputs(batch), outputs: requests(batch, chain, vocabulary) };
    const microseconds = await timeBeyond(step, base, inputs);
    saySpeed({
      kind: "speed",
      group: "sampling",
      name: `${name}, ${shape === "flat" ? "" : "peaked, "}${batch} x ${vocabulary}`,
      by: "forge",
      microseconds,
      gbPerSecond: gigabytes(batch * vocabulary * 4, microseconds),
      of: { batch },
    });
  }
  step.release();
  base.release();
}

function requests(
  batch: number,
  chain: Partial<SamplingParams>,
  vocabulary: number,
): OutputRequest[] {
  const history = Int32Array.from({ length: HISTORY }, (_, i) => i * 31 % vocabulary);
  return Array.from({ length: batch }, (_, row): OutputRequest => ({
    row,
    sampling: { ...off, ...chain, seed: 7n },
    history: chain.repeatPenalty === undefined ? [] : history,
    stream: row,
    position: 1,
    nTop: 0,
  }));
}

/** Measures the overhead of a run: the call, the copies, the graph, the wait. */
async function measureHost(backend: Backend): Promise<void> {
  const step: Step = await randomStep(backend, tokenLimits(1), 64, 1, (recorder, x) => {
    recorder.sample(recorder.gatherOutputs(x), 0);
  });
  const inputs = { ...tokenInputs(1), outputs: requests(1, {}, 64) };
  const microseconds = await timeRuns(step, inputs);
  const inside = step.nativeTime() / 1e3;
  say({ kind: "speed", group: "host", name: "a step of 64 logits", by: "forge", microseconds });
  say({
    kind: "note",
    text: `of a step of 64 logits, ${inside.toFixed(1)} us are spent inside the library`,
  });
  step.release();
}

if (import.meta.main) await main(Deno.args);

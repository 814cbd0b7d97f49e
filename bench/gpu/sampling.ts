/**
 * Sampling of tokens from a vocabulary of 128k, and a step with almost no other work:
 * `sampling.ts [--emulated]`. Prints the lines of `lines.ts`.
 */
import type { Backend, OutputRequest, SamplingParams, Step } from "../../src/backend.ts";
import { openBackend } from "../../src/engine/load/open_backend.ts";
import { UNSAMPLED } from "../../src/engine/runner.ts";
import { say } from "./lines.ts";
import {
  gigabytes,
  randomStep,
  sayCopyLimit,
  saySpeed,
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
    sayCopyLimit(backend);
    for (const batch of emulated ? [2] : [1, 64]) {
      await measureSampling(backend, vocabulary, batch);
    }
    await measureHost(backend);
  } finally {
    backend.close();
  }
}

async function measureSampling(backend: Backend, vocabulary: number, batch: number) {
  const limits = tokenLimits(batch);
  const base = await randomStep(backend, limits, vocabulary, batch, (recorder, x) => {
    recorder.keep(recorder.gatherOutputs(x));
  });
  const step = await randomStep(backend, limits, vocabulary, batch, (recorder, x) => {
    recorder.sample(recorder.gatherOutputs(x), 0);
  });
  for (const [name, chain] of Object.entries(CHAINS)) {
    const inputs = { ...tokenInputs(batch), outputs: requests(batch, chain, vocabulary) };
    const rest = await timeRuns(base, inputs);
    const microseconds = await timeRuns(step, inputs) - rest;
    saySpeed({
      kind: "speed",
      group: "sampling",
      name: `${name}, ${batch} x ${vocabulary}`,
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
  const microseconds = await timeRuns(step, inputs, { most: 200 });
  const inside = step.nativeTime() / 1e3;
  say({ kind: "speed", group: "host", name: "a step of 64 logits", by: "forge", microseconds });
  say({
    kind: "note",
    text: `of a step of 64 logits, ${inside.toFixed(1)} us are spent inside the library`,
  });
  step.release();
}

if (import.meta.main) await main(Deno.args);

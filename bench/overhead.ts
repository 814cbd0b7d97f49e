/** Cost of a decoded token outside of the native library: FFI, engine, text. */
import { openBenchModel } from "../src/bench/bench_model.ts";
import { median } from "../src/bench/statistics.ts";
import { Generation } from "../src/engine/generation/generation.ts";
import { openTokenizer } from "../src/engine/load/tokenizer.ts";
import { type Runner, UNSAMPLED } from "../src/engine/runner.ts";
import { resolveSampling, SAMPLING_DEFAULTS } from "../src/engine/request/sampling.ts";
import { Scheduler, type StepRunner } from "../src/engine/schedule/scheduler.ts";
import { openCheckpoint } from "../src/formats/checkpoint.ts";
import { type BenchOptions, benchSubject, subjectPath } from "./bench_options.ts";

const GREEDY = { ...UNSAMPLED, row: 0, forcedToken: undefined };
const PROMPT = 4;

/** Milliseconds of some tokens: the total, and the part inside of the library. */
interface Times {
  readonly total: number;
  readonly native: number;
}

/** Prints the time per token and the share outside of native code, for each way to decode. */
export async function benchOverhead(options: BenchOptions): Promise<void> {
  using subject = benchSubject(options);
  const { device, threads, nGen, rounds } = options;
  const path = subjectPath(subject);
  const contextLength = PROMPT + nGen + 1;
  using model = await openBenchModel(path, { name: path, device, threads, contextLength });
  const { runner } = model;
  const tokenizer = openTokenizer(openCheckpoint(path));
  const ways: Record<string, () => Promise<Times>> = {
    "a step a run": () => timeSteps(runner, nGen),
    "a generation": () => timeGeneration(runner, tokenizer, nGen),
  };
  const results = new Map<string, Times[]>(Object.keys(ways).map((name) => [name, []]));
  for (const time of Object.values(ways)) await time();
  for (let round = 0; round < rounds; round++) {
    for (const [name, time] of Object.entries(ways)) results.get(name)!.push(await time());
  }
  console.log(`${subject.name}: a decoded token, median of ${rounds} rounds of ${nGen}`);
  for (const [name, times] of results) {
    const microseconds = median(times.map(({ total }) => total)) / nGen * 1e3;
    const share = median(times.map(({ total, native }) => (total - native) / total));
    console.log(
      `  ${name}  ${microseconds.toFixed(0)} µs, ${(share * 100).toFixed(1)}% of it not native`,
    );
  }
}

/** Times runs of one token each, through the FFI alone. */
async function timeSteps(runner: Runner, nGen: number): Promise<Times> {
  using table = runner.newSequence();
  let native = 0;
  const start = performance.now();
  for (let at = 0; at < nGen; at++) {
    await runner.run([{ table, tokens: [300 % runner.vocabSize], start: at, outputs: [GREEDY] }]);
    native += runner.nativeTime() / 1e6;
  }
  return { total: performance.now() - start, native };
}

/** Times tokens received as text through the engine, without the first token of the prompt. */
async function timeGeneration(
  runner: Runner,
  tokenizer: ReturnType<typeof openTokenizer>,
  nGen: number,
): Promise<Times> {
  let native = 0;
  const { limits, pages, slots } = runner;
  const timed: StepRunner = {
    limits,
    pages,
    slots,
    newSequence: () => runner.newSequence(),
    async run(...args) {
      const results = await runner.run(...args);
      native += runner.nativeTime() / 1e6;
      return results;
    },
    embed: (chunks) => runner.embed(chunks),
    cancel: () => runner.cancel(),
    copyPage: (from, to) => runner.copyPage(from, to),
    copySlot: (from, to) => runner.copySlot(from, to),
    readSlot: (slot) => runner.readSlot(slot),
    readLogits: (output) => runner.readLogits(output),
  };
  const scheduler = new Scheduler(timed);
  const pieces = new Generation(tokenizer, {
    prompt: new Int32Array(PROMPT).fill(1),
    sampling: resolveSampling({ seed: 1, temperature: 0 }, SAMPLING_DEFAULTS),
    logitBias: undefined,
    dryBreakers: [],
    stream: 0,
    maxTokens: nGen + 1,
    stop: [],
    endTokens: new Set(),
    logprobs: undefined,
    reasoningLimit: undefined,
    constraint: undefined,
    vocabSize: runner.vocabSize,
    startsText: false,
    shownTokens: new Set(),
    signal: undefined,
    onPrefill: undefined,
  }).run(scheduler);
  let start: number | undefined;
  for await (const { end } of pieces) {
    if (start === undefined) {
      start = performance.now();
      native = 0;
    }
    if (end !== undefined) break;
  }
  const total = performance.now() - start!;
  await scheduler.idle();
  return { total, native };
}

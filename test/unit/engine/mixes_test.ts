/**
 * Tokens do not depend on what else runs. Random mixes of requests go through schedulers of all sizes,
 * join, leave, pause, are stopped and pre-empted, and share prefixes; each must give what a plain loop
 * over single steps gives for it alone.
 */
import { assert, assertEquals } from "@std/assert";
import type { StepOutput } from "../../../src/backend.ts";
import { generate, type GenerationRequest, type Piece } from "../../../src/engine/generate.ts";
import { openBackend } from "../../../src/engine/open_backend.ts";
import { openTokenizer } from "../../../src/engine/open_tokenizer.ts";
import { Runner, type RunnerOptions } from "../../../src/engine/runner.ts";
import { resolveSampling, SAMPLING_DEFAULTS } from "../../../src/engine/sampling.ts";
import { Scheduler } from "../../../src/engine/scheduler.ts";
import { lastLogits, scoreTokens } from "../../../src/engine/score.ts";
import { ForgeError } from "../../../src/errors.ts";
import { openCheckpoint } from "../../../src/formats/checkpoint.ts";
import { loadModel } from "../../../src/models/registry.ts";
import type { Tokenizer } from "../../../src/tokenizer/tokenizer.ts";
import { Random } from "../../support/random.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { EOS, writeRandomLlama } from "../../support/tiny_llama.ts";

const CONTEXT = 400;
const VOCABULARY = 97;

async function withRunner(
  device: string,
  options: Partial<RunnerOptions>,
  fn: (runner: Runner, tokenizer: Tokenizer) => Promise<void>,
): Promise<void> {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, { contextLength: CONTEXT });
  const backend = openBackend(device, 2);
  try {
    const checkpoint = openCheckpoint(folder.path);
    const { lm } = loadModel(backend, checkpoint);
    const runner = await Runner.open(backend, lm, {
      contextLength: CONTEXT,
      kvType: device === "cpu" ? "F16" : "F32",
      ...options,
    });
    await fn(runner, openTokenizer(checkpoint));
  } finally {
    backend.close();
  }
}

/** Prompts that share beginnings of all lengths. */
function randomPrompts(random: Random, count: number): Int32Array[] {
  const stems = [0, 1, 2].map(() => randomTokens(random, 200));
  return Array.from({ length: count }, () => {
    const stem = random.pick(stems).slice(0, random.pick([0, 1, 40, 64, 65, 130, 200]));
    return Int32Array.from([...stem, ...randomTokens(random, random.int(1, 60))]);
  });
}

function randomTokens(random: Random, count: number): number[] {
  return Array.from({ length: count }, () => random.int(2, VOCABULARY - 1));
}

function randomRequest(random: Random, prompt: Int32Array): GenerationRequest {
  const maybe = <T>(value: T, otherwise: T) => random.chance(0.3) ? value : otherwise;
  const sampling = resolveSampling({
    temperature: random.pick([0, 0.7, 1, 2]),
    topK: random.pick([0, 3, 40]),
    topP: random.pick([1, 0.9, 0.3]),
    minP: random.pick([0, 0.05, 0.3]),
    repeatPenalty: maybe(1.3, 1),
    presencePenalty: maybe(0.5, 0),
    frequencyPenalty: maybe(-0.2, 0),
    repeatLastN: random.pick([64, -1, 3, 0]),
    seed: random.int(0, 5),
  }, SAMPLING_DEFAULTS);
  return {
    prompt,
    sampling,
    logitBias: random.chance(0.2) ? new Map([[random.int(2, 96), 3], [5, -Infinity]]) : undefined,
    stream: random.int(0, 2),
    maxTokens: random.int(1, 90),
    stop: [],
    endTokens: new Set([EOS]),
    logprobs: random.chance(0.3) ? random.int(0, 5) : undefined,
    constraint: undefined,
    vocabSize: VOCABULARY,
    startsText: false,
    shownTokens: new Set(),
    signal: undefined,
    onPrefill: undefined,
  };
}

/** What a request gives alone, by the plainest of loops. */
async function generateAlone(runner: Runner, request: GenerationRequest): Promise<StepOutput[]> {
  const { prompt, sampling, maxTokens, stream } = request;
  using table = runner.newSequence();
  const tokens = Array.from(prompt);
  const outputs: StepOutput[] = [];
  const hasPenalties = sampling.repeatPenalty !== 1 || sampling.presencePenalty !== 0 ||
    sampling.frequencyPenalty !== 0;
  const window = sampling.repeatLastN < 0 ? tokens.length + maxTokens : sampling.repeatLastN;
  for (let start = 0; outputs.length < maxTokens; start = tokens.length - 1) {
    const [[output] = []] = await runner.run([{
      table,
      tokens: tokens.slice(start),
      start,
      outputs: [{
        row: tokens.length - start - 1,
        sampling: { ...sampling, seed: BigInt(sampling.seed), bias: request.logitBias },
        history: hasPenalties && window > 0 ? tokens.slice(-window) : [],
        stream,
        position: tokens.length,
        nTop: request.logprobs ?? 0,
      }],
    }]);
    assert(output !== undefined && !(output instanceof ForgeError));
    if (request.endTokens.has(output.token)) break;
    outputs.push(output);
    tokens.push(output.token);
  }
  return outputs;
}

function turns(count: number): Promise<void> {
  return count === 0
    ? Promise.resolve()
    : new Promise((resolve) => setTimeout(resolve, 0)).then(() => turns(count - 1));
}

/** Reads a generation at a random pace; perhaps not to its end. */
async function readAll(random: Random, pieces: AsyncIterable<Piece>, most: number) {
  const outputs: StepOutput[] = [];
  const isSlow = random.chance(0.2);
  for await (const { token, logprob, top } of pieces) {
    if (token === undefined) break;
    assert(logprob !== undefined);
    outputs.push({ token, logprob, top });
    if (outputs.length === most) break;
    if (isSlow) await turns(random.int(0, 3));
  }
  return outputs;
}

/** One mix: all requests at about the same time, some of them cut short. How often one gave way. */
async function checkMix(
  random: Random,
  runner: Runner,
  tokenizer: Tokenizer,
  cases: readonly { request: GenerationRequest; alone: StepOutput[] }[],
): Promise<number> {
  const scheduler = new Scheduler(runner);
  await Promise.all(cases.map(async ({ request, alone }, i) => {
    await turns(random.int(0, 6));
    const controller = new AbortController();
    const most = random.chance(0.15) ? random.int(1, 10) : Infinity;
    const stopAfter = random.chance(0.15) ? random.int(0, 10) : -1;
    const pieces = generate(scheduler, tokenizer, { ...request, signal: controller.signal });
    const reading = readAll(random, pieces, most);
    const stopping = turns(Math.max(0, stopAfter)).then(() => {
      if (stopAfter >= 0) controller.abort();
    });
    const outputs = await reading;
    await stopping;
    const isCut = stopAfter >= 0 || most !== Infinity;
    if (isCut) assert(outputs.length <= alone.length);
    assertEquals(outputs, isCut ? alone.slice(0, outputs.length) : alone, `request ${i}`);
  }));
  await scheduler.idle();
  assertEquals(runner.pages.freePages, runner.pages.nPages, "a page leaked");
  return scheduler.preemptions;
}

const CACHE = 64 * Math.ceil(CONTEXT / 64);

for (
  const [name, device, options, rounds] of [
    ["one at a time", "cpu", { maxSequences: 1 }, 2],
    ["two at a time", "cpu", { maxSequences: 2, cacheTokens: 4 * CACHE }, 2],
    ["with pages for few", "cpu", { maxSequences: 8, cacheTokens: CACHE }, 6],
    ["with pages for some", "cpu", { maxSequences: 8, cacheTokens: 2 * CACHE }, 4],
    ["all at once", "cpu", { maxSequences: 32, cacheTokens: 32 * CACHE }, 4],
    ["on the reference device", "reference", { maxSequences: 5, cacheTokens: CACHE }, 1],
  ] as const
) {
  Deno.test(`a token does not depend on its neighbours: ${name}`, async () => {
    await withRunner(device, options, async (runner, tokenizer) => {
      const random = new Random(`mixes ${name}`);
      let preemptions = 0;
      for (let round = 0; round < rounds; round++) {
        const cases = [];
        for (const prompt of randomPrompts(random, 20)) {
          const request = randomRequest(random, prompt);
          cases.push({ request, alone: await generateAlone(runner, request) });
        }
        preemptions += await checkMix(random, runner, tokenizer, cases);
      }
      if (name === "with pages for few") assert(preemptions > 0, "nobody had to give way");
    });
  });
}

Deno.test("scores and logits come out the same among generations", async () => {
  const options = { maxSequences: 4, cacheTokens: 2 * CACHE };
  await withRunner("cpu", options, async (runner, tokenizer) => {
    const random = new Random("scores among generations");
    const prompts = randomPrompts(random, 12);
    const alone: { scores: Float32Array; logits: Float32Array }[] = [];
    for (const prompt of prompts) {
      const scheduler = new Scheduler(runner);
      alone.push({
        scores: await scoreTokens(scheduler, prompt),
        logits: await lastLogits(scheduler, prompt),
      });
    }
    const scheduler = new Scheduler(runner);
    await Promise.all(prompts.flatMap((prompt, i) => [
      scoreTokens(scheduler, prompt).then((scores) => assertEquals(scores, alone[i]!.scores)),
      lastLogits(scheduler, prompt).then((logits) => assertEquals(logits, alone[i]!.logits)),
      readAll(random, generate(scheduler, tokenizer, randomRequest(random, prompt)), Infinity),
    ]));
    await scheduler.idle();
    assertEquals(runner.pages.freePages, runner.pages.nPages);
  });
});

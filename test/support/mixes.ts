/** Random mixes of requests, each compared with a plain loop over single steps. */
import { assert, assertEquals } from "@std/assert";
import type { StepOutput } from "../../src/backend.ts";
import { Generation } from "../../src/engine/generation/generation.ts";
import type {
  GenerationEnd,
  GenerationRequest,
  Piece,
} from "../../src/engine/generation/request.ts";
import { openBackends } from "../../src/engine/load/open_backend.ts";
import type { LoadOptions } from "../../src/engine/load/options.ts";
import { openTokenizer } from "../../src/engine/load/tokenizer.ts";
import { Runner, type RunnerOptions } from "../../src/engine/runner.ts";
import {
  isSampledOnHost,
  resolveSampling,
  SAMPLING_DEFAULTS,
  type SamplingOptions,
} from "../../src/engine/request/sampling.ts";
import { Scheduler } from "../../src/engine/schedule/scheduler.ts";
import type { Speculator } from "../../src/engine/speculation/speculator.ts";
import { ForgeError } from "../../src/errors.ts";
import { openCheckpoint } from "../../src/formats/checkpoint.ts";
import { loadModel } from "../../src/models/registry.ts";
import type { Tokenizer } from "../../src/tokenizer/tokenizer.ts";
import { PlainHostSampler } from "./plain_host_sampler.ts";
import type { Random } from "./random.ts";
import { TempFolder } from "./temp_folder.ts";
import { isThorough } from "./thorough.ts";
import { EOS, writeRandomLlama } from "./tiny_llama.ts";

const CONTEXT = 400;
/** Cache size that suffices for any sequence of a random mix alone. */
export const CACHE = 64 * Math.ceil(CONTEXT / 64);
const VOCABULARY = 97;

/** Number of random mixes of a test: `rounds` in `deno task thorough`, a third in other runs. */
export function roundsOf(rounds: number): number {
  return isThorough ? rounds : Math.ceil(rounds / 3);
}

/** A request and its result when run alone. */
export interface MixCase {
  readonly request: GenerationRequest;
  readonly alone: StepOutput[];
}

export async function withRunner(
  device: string,
  options: Partial<RunnerOptions>,
  fn: (runner: Runner, tokenizer: Tokenizer) => Promise<void>,
  writeModel: typeof writeRandomLlama = writeRandomLlama,
  division: Pick<LoadOptions, "tensorParallel" | "pipelineParallel"> = {},
): Promise<void> {
  using folder = new TempFolder();
  writeModel(folder.path, { contextLength: CONTEXT });
  const [backend] = openBackends({ device, threads: 2, ...division });
  if (backend === undefined) throw new RangeError("no device");
  try {
    const checkpoint = openCheckpoint(folder.path);
    const { lm } = loadModel(backend, checkpoint, { drafts: true });
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

/** Prompts that share prefixes of all lengths. */
export function randomPrompts(random: Random, count: number): Int32Array[] {
  const stems = [0, 1, 2].map(() => randomTokens(random, 200));
  return Array.from({ length: count }, () => {
    const stem = random.pick(stems).slice(0, random.pick([0, 1, 40, 64, 65, 130, 200]));
    return Int32Array.from([...stem, ...randomTokens(random, random.int(1, 60))]);
  });
}

function randomTokens(random: Random, count: number): number[] {
  return Array.from({ length: count }, () => random.int(2, VOCABULARY - 1));
}

/** @param onHost share of the requests that the host samples */
export function randomRequest(
  random: Random,
  prompt: Int32Array,
  onHost = 0.3,
): GenerationRequest {
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
    ...(random.chance(onHost) ? randomHostSampling(random) : {}),
  }, SAMPLING_DEFAULTS);
  return {
    prompt,
    sampling,
    logitBias: random.chance(0.2) ? new Map([[random.int(2, 96), 3], [5, -Infinity]]) : undefined,
    dryBreakers: [","],
    stream: random.int(0, 2),
    maxTokens: random.int(1, 90),
    stop: [],
    endTokens: new Set([EOS]),
    logprobs: random.chance(0.3) ? random.int(0, 5) : undefined,
    reasoningLimit: undefined,
    constraint: undefined,
    vocabSize: VOCABULARY,
    startsText: false,
    shownTokens: new Set(),
    signal: undefined,
    onPrefill: undefined,
  };
}

/** Options of the samplers that run on the host. */
function randomHostSampling(random: Random): SamplingOptions {
  const maybe = (value: number, otherwise: number) => random.chance(0.4) ? value : otherwise;
  return {
    dryMultiplier: maybe(2, 0),
    dryAllowedLength: random.int(0, 3),
    dryPenaltyLastN: random.pick([-1, 0, 40]),
    topNSigma: maybe(1.5, 0),
    typicalP: maybe(0.8, 1),
    xtcProbability: maybe(0.6, 0),
    xtcThreshold: 0.05,
    dynatempRange: maybe(0.5, 0),
    mirostat: random.chance(0.2) ? 2 : 0,
    mirostatTau: 2,
  };
}

/** Returns the result of a request alone, by a simple loop. */
export async function generateAlone(
  runner: Runner,
  tokenizer: Tokenizer,
  request: GenerationRequest,
): Promise<StepOutput[]> {
  const { prompt, sampling, maxTokens, stream } = request;
  using table = runner.newSequence();
  const tokens = Array.from(prompt);
  const outputs: StepOutput[] = [];
  const host = isSampledOnHost(sampling) ? new PlainHostSampler(request, tokenizer) : undefined;
  const hasPenalties = sampling.repeatPenalty !== 1 || sampling.presencePenalty !== 0 ||
    sampling.frequencyPenalty !== 0;
  const window = sampling.repeatLastN < 0 ? tokens.length + maxTokens : sampling.repeatLastN;
  for (let start = 0; outputs.length < maxTokens; start = tokens.length - 1) {
    const [[chosen] = []] = await runner.run([{
      table,
      tokens: tokens.slice(start),
      start,
      outputs: [{
        row: tokens.length - start - 1,
        sampling: {
          ...sampling,
          temperature: host === undefined ? sampling.temperature : 0,
          seed: BigInt(sampling.seed),
          bias: request.logitBias,
        },
        history: hasPenalties && window > 0 ? tokens.slice(-window) : [],
        stream,
        position: tokens.length,
        nTop: request.logprobs ?? 0,
      }],
    }]);
    assert(chosen !== undefined && !(chosen instanceof ForgeError));
    const output = host?.choose(runner.readLogits(0), chosen, tokens) ?? chosen;
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

/** Reads a generation at a random pace, possibly not to its end. */
export async function readAll(
  random: Random,
  pieces: AsyncIterable<Piece>,
  most: number,
  onEnd: (end: GenerationEnd) => void = () => {},
): Promise<StepOutput[]> {
  const outputs: StepOutput[] = [];
  const isSlow = random.chance(0.2);
  for await (const { token, logprob, top, end } of pieces) {
    if (end !== undefined) onEnd(end);
    if (token === undefined) break;
    assert(logprob !== undefined);
    outputs.push({ token, logprob, top });
    if (outputs.length === most) break;
    if (isSlow) await turns(random.int(0, 3));
  }
  return outputs;
}

/** Events of a mix: preemptions, and draft tokens. */
export interface MixCounts {
  readonly preemptions: number;
  readonly drafted: number;
  readonly accepted: number;
}

/** Runs one mix: all requests at about the same time, some of them cancelled. */
export async function checkMix(
  random: Random,
  runner: Runner,
  tokenizer: Tokenizer,
  cases: readonly MixCase[],
  speculator?: Speculator,
): Promise<MixCounts> {
  const scheduler = new Scheduler(runner, speculator);
  let drafted = 0, accepted = 0;
  const count = ({ timings }: GenerationEnd) => {
    drafted += timings.drafted;
    accepted += timings.accepted;
  };
  await Promise.all(cases.map(async ({ request, alone }, i) => {
    await turns(random.int(0, 6));
    const controller = new AbortController();
    const most = random.chance(0.15) ? random.int(1, 10) : Infinity;
    const stopAfter = random.chance(0.15) ? random.int(0, 10) : -1;
    const pieces = new Generation(tokenizer, { ...request, signal: controller.signal }).run(
      scheduler,
    );
    const reading = readAll(random, pieces, most, count);
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
  assertEquals(runner.slots?.free, runner.slots?.size, "a state slot leaked");
  return { preemptions: scheduler.preemptions, drafted, accepted };
}

/** Random requests, each with its result when run alone. */
export async function randomCases(
  random: Random,
  runner: Runner,
  tokenizer: Tokenizer,
  onHost?: number,
): Promise<MixCase[]> {
  const cases = [];
  for (const prompt of randomPrompts(random, 20)) {
    const request = randomRequest(random, prompt, onHost);
    cases.push({ request, alone: await generateAlone(runner, tokenizer, request) });
  }
  return cases;
}

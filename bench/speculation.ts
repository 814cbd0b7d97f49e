/** Gain of speculative decoding in repetitive text, and its cost elsewhere. */
import { Random } from "../src/bench/random.ts";
import { median } from "../src/bench/statistics.ts";
import { SyntheticModel } from "../src/bench/synthetic/model.ts";
import { parseSyntheticSpec } from "../src/bench/synthetic/spec.ts";
import { Generation } from "../src/engine/generation/generation.ts";
import type { GenerationEnd, GenerationRequest } from "../src/engine/generation/request.ts";
import { openBackend } from "../src/engine/load/open_backend.ts";
import { openTokenizer } from "../src/engine/load/tokenizer.ts";
import { resolveSampling, SAMPLING_DEFAULTS } from "../src/engine/request/sampling.ts";
import { MAX_BRANCHES } from "../src/engine/limits.ts";
import { Runner } from "../src/engine/runner.ts";
import { Scheduler } from "../src/engine/schedule/scheduler.ts";
import type { DraftPath, Prospect } from "../src/engine/speculation/draft.ts";
import { HeadDrafter } from "../src/engine/speculation/head_drafter.ts";
import {
  DraftRates,
  type ModelDrafter,
  type TreeShape,
} from "../src/engine/speculation/model_drafter.ts";
import { Speculator } from "../src/engine/speculation/speculator.ts";
import type { TokenList } from "../src/engine/token_list.ts";
import { openCheckpoint } from "../src/formats/checkpoint.ts";
import { type Completion, type GenerateOptions, load, type Model } from "../src/mod.ts";
import { loadModel } from "../src/models/registry.ts";
import type { Tokenizer } from "../src/tokenizer/tokenizer.ts";
import { type BenchOptions, benchSubject, subjectPath } from "./bench_options.ts";
import { benchTrees, measureCosts } from "./draft_trees.ts";

const AT_ONCE = 8;

/** Always the same token. */
const ALWAYS = { logitBias: { 300: 1e6 } } as const;

/** All tokens almost equally likely, so that no draft token is accepted. */
const ANY = { temperature: 100, topK: 0, topP: 1, minP: 0 } as const;

const RECORDS = [["Socks", "fox", "green"], ["Biscuit", "dog", "red"], ["Luna", "cat", "blue"]]
  .map(([name, animal, colour]) => JSON.stringify({ name, animal, colour }));

interface Case {
  readonly prompt: string;
  readonly options: GenerateOptions;
  readonly atOnce: number;
}

const CASES: Readonly<Record<string, Case>> = {
  "records, in JSON": {
    prompt: `${[...RECORDS, ...RECORDS].join("\n")}\n`,
    options: { temperature: 0 },
    atOnce: 1,
  },
  "a story": { prompt: "Once upon a time", options: {}, atOnce: 1 },
  "one token again and again": { prompt: "Once", options: ALWAYS, atOnce: 1 },
  "random tokens": { prompt: "Once", options: ANY, atOnce: 1 },
  "random tokens, 8 at once": { prompt: "Once", options: ANY, atOnce: AT_ONCE },
  "one token, 8 at once": { prompt: "Once", options: ALWAYS, atOnce: AT_ONCE },
};

/** Prints the gain of draft tokens from the text, and of those by a layer of the model. */
export async function benchSpeculation(options: BenchOptions): Promise<void> {
  await benchLookup(options);
  if (options.synthetic !== undefined) await benchHead(options.synthetic, options);
}

/**
 * Prints the tokens per second of each case without and with draft tokens, over alternating rounds.
 */
async function benchLookup(options: BenchOptions): Promise<void> {
  using subject = benchSubject(options);
  const path = subjectPath(subject);
  const { threads, rounds, nGen } = options;
  const settings = { threads, contextLength: nGen + 384, parallel: AT_ONCE };
  await using plain = await load(path, { ...settings, speculate: "off" });
  await using speculating = await load(path, { ...settings, speculate: "on" });
  console.log(`${subject.name}: decoded tokens/s without and with speculative decoding`);
  for (const [name, each] of Object.entries(CASES)) {
    // The first steps of a case, in which its costs are learned, are not timed.
    for (const model of [plain, speculating]) await measure(model, each, nGen, -1);
    const without: number[] = [], speculative: number[] = [];
    let drafted = 0, accepted = 0;
    for (let round = 0; round < rounds; round++) {
      // Alternate the order, since the second run finds the machine in another state.
      const models = round % 2 === 0 ? [plain, speculating] : [speculating, plain];
      const measured = new Map<Model, Measured>();
      for (const model of models) measured.set(model, await measure(model, each, nGen, round));
      const [expected, actual] = [measured.get(plain)!, measured.get(speculating)!];
      without.push(expected.speed);
      speculative.push(actual.speed);
      if (`${ids(actual.answers)}` !== `${ids(expected.answers)}`) {
        console.log(`  ${name}: DIFFERENT TOKENS`);
      }
      for (const { timings } of actual.answers) {
        drafted += timings.drafted;
        accepted += timings.accepted;
      }
    }
    const [a, b] = [median(without), median(speculative)];
    const share = drafted === 0 ? "none drafted" : `${accepted} of ${drafted} drafted accepted`;
    console.log(
      `  ${name.padEnd(26)} ${a.toFixed(1).padStart(7)} ${b.toFixed(1).padStart(7)} ` +
        `(${(b / a).toFixed(2)}×), ${share}`,
    );
  }
}

function ids(answers: readonly Completion[]) {
  return answers.map(({ tokenIds }) => tokenIds);
}

interface Measured {
  readonly answers: readonly Completion[];
  /** Decoded tokens per second. */
  readonly speed: number;
}

async function measure(
  model: Model,
  { prompt, options, atOnce }: Case,
  nGen: number,
  seed: number,
): Promise<Measured> {
  const answers = await model.completeMany(prompt, atOnce, {
    raw: true,
    maxTokens: nGen,
    ...options,
    seed: seed + 1,
  });
  const tokens = answers.reduce((sum, { completionTokens }) => sum + completionTokens - 1, 0);
  const longest = Math.max(...answers.map(({ timings }) => timings.decodeMs));
  return { answers, speed: tokens / longest * 1000 };
}

/** Acceptance rates that are simulated; the demo model's layer has the second one. */
const SIMULATED = [0.7, 0.86] as const;

/** Share of the wrong draft tokens whose second choice is right; the demo model's layer has it. */
const SECOND = 0.55;

/** Drafts that are compared: chains, trees of two tokens a position, and trees as they pay. */
const DRAFTS = { "chain": 1, "tree of 2": 2, "as it pays": undefined } as const;

/** No drafts from the text. */
const NO_LOOKUP = { propose: () => ({ tokens: [], odds: [] }) };

/**
 * Prints the gain of a layer for multi-token prediction with random weights. It computes its draft
 * tokens, which are then replaced by right ones as often as the simulated rate says.
 */
async function benchHead(
  synthetic: string,
  { threads, rounds, nGen, device }: BenchOptions,
): Promise<void> {
  const spec = parseSyntheticSpec(synthetic);
  if (!("shape" in spec)) return;
  const backend = openBackend(device === "auto" ? "cpu" : device, threads);
  try {
    using file = new SyntheticModel({ ...spec, hasPredictor: true }, backend);
    const checkpoint = openCheckpoint(file.path);
    const contextLength = nGen + 128;
    const [plain, drafting] = await Promise.all([false, true].map(async (drafts) => {
      const { lm } = loadModel(backend, checkpoint, { sessionLength: contextLength, drafts });
      return await Runner.open(backend, lm, {
        contextLength,
        kvType: "F16",
        maxBranches: drafts ? MAX_BRANCHES : 0,
      });
    }));
    const tokenizer = openTokenizer(checkpoint);
    const generate = (runner: Runner, speculator?: Speculator) =>
      generateTokens(runner, tokenizer, nGen, speculator);
    const { tokens } = await generate(plain!);
    console.log(`${spec.name}: a layer for multi-token prediction, one text`);
    const cases = SIMULATED.flatMap((rate) =>
      Object.entries(DRAFTS).map(([name, treeWidth]) => ({ rate, name, treeWidth }))
    );
    for (const { rate, name, treeWidth } of cases) {
      const head = new SimulatedHead(drafting!, tokens, rate);
      const speculator = new Speculator({ model: head, treeWidth, newDrafter: () => NO_LOOKUP });
      await generate(drafting!, speculator);
      head.milliseconds = 0;
      const without: number[] = [], speculative: number[] = [];
      let drafted = 0, accepted = 0;
      for (let round = 0; round < rounds; round++) {
        const expected = await generate(plain!);
        const actual = await generate(drafting!, speculator);
        if (`${actual.tokens}` !== `${expected.tokens}`) console.log("  DIFFERENT TOKENS");
        without.push(expected.end.timings.decodeMs);
        speculative.push(actual.end.timings.decodeMs);
        drafted += actual.end.timings.drafted;
        accepted += actual.end.timings.accepted;
      }
      const [a, b] = [median(without) / nGen, median(speculative) / nGen];
      const perStep = rounds * nGen / (rounds * nGen - accepted);
      console.log(
        `  ${Math.round(100 * rate)}% accepted (simulated), ${name}: ${
          (1000 / a).toFixed(1)
        } and ` +
          `${(1000 / b).toFixed(1)} tokens/s (${(a / b).toFixed(2)}×), ` +
          `${perStep.toFixed(2)} tokens a step; a step ${a.toFixed(2)} ms, ` +
          `a draft token ${(head.milliseconds / Math.max(1, drafted)).toFixed(2)} ms`,
      );
    }
    await benchTrees(await measureCosts(drafting!, 10 * rounds, threads), threads);
  } finally {
    backend.close();
  }
}

/** A head whose draft tokens are replaced by those of a known text, some of them wrong. */
class SimulatedHead implements ModelDrafter {
  /** Time that the head took. */
  milliseconds = 0;
  readonly #head: HeadDrafter;
  readonly #answer: readonly number[];
  readonly #rate: number;
  readonly #rates = new DraftRates();
  readonly #random = new Random(1);

  constructor(runner: Runner, answer: readonly number[], rate: number) {
    this.#head = new HeadDrafter(runner);
    this.#answer = answer;
    this.#rate = rate;
  }

  rate(tokens: TokenList): number {
    return this.#rates.of(tokens);
  }

  cost(texts: number): number {
    return this.#head.cost(texts);
  }

  lag(): number {
    return 0;
  }

  async draft(
    prospects: readonly Prospect[],
    counts: readonly number[],
    tree?: TreeShape,
  ): Promise<void> {
    const start = performance.now();
    await this.#head.draft(prospects, counts, tree);
    this.milliseconds += performance.now() - start;
    for (const [i, prospect] of prospects.entries()) {
      const { tokens, draft } = prospect;
      draft.clear();
      const at = tokens.length - PROMPT.length;
      this.#replace(prospect, this.#answer.slice(at, at + counts[i]!), tree);
      this.#rates.made(tokens, draft.tokens);
    }
  }

  /** Drafts tokens of the answer or others, and in a tree a second choice next to each. */
  #replace({ draft, branch }: Prospect, answer: readonly number[], tree?: TreeShape): void {
    let right: DraftPath | undefined = draft, other: DraftPath | undefined;
    for (const [from, token] of answer.entries()) {
      const isFirst = this.#random.uniform() < this.#rate;
      const isSecond = !isFirst && this.#random.uniform() < SECOND;
      if (right === undefined) {
        if (!draft.add(token ^ 1)) return;
        other?.add(token ^ 1);
        continue;
      }
      const path: DraftPath = right;
      if (!path.add(isFirst ? token : token ^ 1)) return;
      const odds = SECOND * (1 - this.#rate) * this.#rate ** from;
      other = tree?.takeRow(odds) ? branch?.(path, from, isSecond ? token : token ^ 2) : undefined;
      right = isFirst ? path : isSecond ? other : undefined;
    }
  }

  cancel(): void {
    this.#head.cancel();
  }

  forget(): void {}
}

const PROMPT = Int32Array.from({ length: 64 }, (_, i) => 300 + 7 * i);

async function generateTokens(
  runner: Runner,
  tokenizer: Tokenizer,
  maxTokens: number,
  speculator: Speculator | undefined,
): Promise<{ readonly tokens: readonly number[]; readonly end: GenerationEnd }> {
  const request: GenerationRequest = {
    prompt: PROMPT,
    sampling: resolveSampling({ temperature: 0, seed: 1 }, SAMPLING_DEFAULTS),
    logitBias: undefined,
    dryBreakers: [],
    stream: 0,
    maxTokens,
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
  };
  const scheduler = new Scheduler(runner, speculator);
  const tokens: number[] = [];
  for await (const { token, end } of new Generation(tokenizer, request).run(scheduler)) {
    if (token !== undefined) tokens.push(token);
    if (end === undefined) continue;
    await scheduler.idle();
    return { tokens, end };
  }
  throw new Error("the generation has no end");
}

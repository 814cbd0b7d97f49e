/** Tests prefix sharing in models with recurrent state, which cannot be truncated as pages can. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { Generation } from "../../../../src/engine/generation/generation.ts";
import type { GenerationEnd } from "../../../../src/engine/generation/request.ts";
import { KvPages, PageTable } from "../../../../src/engine/cache/kv_pages.ts";
import { PrefixCache, PublishedPrefix } from "../../../../src/engine/cache/prefix_cache.ts";
import { Pool } from "../../../../src/engine/cache/pool.ts";
import { StateSnapshots } from "../../../../src/engine/cache/state_snapshots.ts";
import { sizeCaches } from "../../../../src/engine/cache/memory.ts";
import { TokenList } from "../../../../src/engine/token_list.ts";
import { Scheduler } from "../../../../src/engine/schedule/scheduler.ts";
import { StepPace } from "../../../../src/engine/schedule/ahead.ts";
import { scoreTokens } from "../../../../src/engine/generation/score.ts";
import { ForgeError } from "../../../../src/errors.ts";
import { load, type LoadOptions, type Model } from "../../../../src/mod.ts";
import { Speculator } from "../../../../src/engine/speculation/speculator.ts";
import type { Tokenizer } from "../../../../src/tokenizer/tokenizer.ts";
import {
  FAKE_VOCABULARY,
  fakeAnswer,
  type FakeOptions,
  fakeRequest,
  FakeRunner,
  noTokenizer,
} from "../../../support/fake_runner.ts";
import { OracleDrafter } from "../../../support/oracle_drafter.ts";
import { Random } from "../../../support/random.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { writeRandomHybrid } from "../../../support/tiny_hybrid.ts";
import { EOS, writeRandomLlama } from "../../../support/tiny_llama.ts";

function prompt(length: number, first: number): number[] {
  return Array.from({ length }, (_, i) => first + i);
}

/** A fake model with recurrent state, whose pages hold 4 tokens. */
class Bench {
  readonly runner: FakeRunner;
  readonly scheduler: Scheduler;

  constructor(
    options: Partial<FakeOptions> = {},
    pace: StepPace = new StepPace(1),
    speculator?: Speculator,
  ) {
    this.runner = new FakeRunner({ nPages: 100, nSlots: 8, ...options });
    this.scheduler = new Scheduler(this.runner, speculator, pace);
  }

  /** Generates an answer and checks its tokens; returns them and the end. */
  async generate(
    prompt: readonly number[],
    maxTokens: number,
    signal?: AbortSignal,
  ): Promise<{ tokens: number[]; end: GenerationEnd }> {
    const tokens: number[] = [];
    const request = fakeRequest(prompt, maxTokens, { signal });
    for await (const { token, end } of new Generation(noTokenizer, request).run(this.scheduler)) {
      if (token !== undefined) tokens.push(token);
      if (end === undefined) continue;
      assertEquals(tokens, fakeAnswer(prompt, maxTokens).slice(0, tokens.length));
      return { tokens, end };
    }
    throw new Error("no end");
  }

  async cached(prompt: readonly number[], maxTokens = 1): Promise<number> {
    return (await this.generate(prompt, maxTokens)).end.cachedPromptTokens;
  }

  /** Chunk lengths of each step so far, joined by "+". */
  get steps(): string[] {
    return this.runner.runs.map((chunks) => chunks.map(({ tokens }) => tokens.length).join("+"));
  }

  /** Checks that all pages and slots are released. */
  async end(): Promise<void> {
    await this.scheduler.idle();
    this.runner.checkPages();
    assertEquals(this.runner.slots!.free, this.runner.slots!.size);
  }
}

Deno.test("a page has one snapshot for each number of its tokens", () => {
  const slots = new Pool(3, "state slot");
  const copies: (readonly [from: number, to: number])[] = [];
  const snapshots = new StateSnapshots(slots, (from, to) => copies.push([from, to]));
  const pages = new KvPages(4, 4);
  const states = new Map<number, number>();
  const table = new PageTable(pages, slots);
  table.reserve(1);
  for (let i = 0; i < 2; i++) snapshots.keepCopy(states, 2, table);
  assertEquals([[...states], copies], [[[2, 1]], [[0, 1]]]);
  snapshots.keep(states, 2, table);
  assertEquals([...states], [[2, 1]]);
  snapshots.keep(states, 3, table);
  table.release();
  assertEquals([[...states], slots.free], [[[2, 1], [3, 0]], 3]);
  const found = [1, 2, 3, 4].map((most) => snapshots.longest(states, most)?.slot);
  assertEquals(found, [undefined, 1, 0, 0]);
  assertEquals(snapshots.longest(new Map([[3, 0], [2, 1]]), 4), { count: 3, slot: 0 });
  // While slots are free, a sequence gets a copy; then it gets the snapshot itself.
  using first = new PageTable(pages, slots);
  using second = new PageTable(pages, slots);
  snapshots.attach({ slot: 0, count: 3 }, states, first);
  assertEquals([first.slot, copies.at(-1), [...states]], [2, [0, 2], [[2, 1], [3, 0]]]);
  slots.share(1);
  snapshots.attach({ slot: 0, count: 3 }, states, second);
  assertEquals([second.slot, copies.length, [...states]], [0, 2, [[2, 1]]]);
  slots.release(1);
  snapshots.forget(states);
  assertEquals([states.size, slots.isIdle(1), slots.free], [0, false, 1]);
});

Deno.test("without a free page to copy, a state within a page is not used", () => {
  const pages = new KvPages(2, 4), slots = new Pool(3, "state slot");
  const snapshots = new StateSnapshots(slots, () => {});
  const cache = new PrefixCache(pages, () => {}, snapshots);
  const tokens = new TokenList(prompt(7, 0));
  const table = new PageTable(pages, slots), published = new PublishedPrefix();
  table.reserve(7);
  cache.publish(table, published, tokens, 6, true);
  cache.publishState(table, published, tokens, 6, true);
  const match = cache.match(tokens, 6);
  assertEquals(match.length, 6);
  const other = new PageTable(pages, slots), own = new PublishedPrefix();
  assertEquals(cache.attach(match, other, own), 0);
  assertEquals([other.pages, other.slot, own], [[], undefined, new PublishedPrefix()]);
  table.release();
  assertEquals([pages.freePages, slots.free], [2, 3]);
});

Deno.test("a chat continues from the state at the end of its last turn", async () => {
  const bench = new Bench();
  const first = prompt(6, 0);
  const { tokens } = await bench.generate(first, 9);
  // The last token of the answer was sampled, but not computed.
  assertEquals(await bench.cached([...first, ...tokens, 700, 701, 702]), 14);
  await bench.end();
});

Deno.test("a prompt that differs near its end continues from the last whole page", async () => {
  const bench = new Bench();
  const shared = prompt(11, 0);
  await bench.generate(shared, 6);
  assertEquals(bench.steps.slice(0, 2), ["8", "3"]);
  assertEquals(await bench.cached([...shared.slice(0, 10), 500, 501]), 8);
  // More of its pages are cached, but no state is.
  assertEquals(await bench.cached([...shared.slice(0, 7), 500, 501]), 0);
  // Two pages are cached, and the only state is that after the first one.
  const other = prompt(7, 700);
  const { tokens } = await bench.generate(other, 6);
  assertEquals(await bench.cached([...other, tokens[0]!, 500, 501]), 4);
  await bench.end();
});

Deno.test("completions of one prompt share everything before its last page", async () => {
  const bench = new Bench();
  const answers = await Promise.all([0, 1, 2].map(() => bench.generate(prompt(43, 0), 3)));
  assertEquals(answers.map(({ end }) => end.cachedPromptTokens), [0, 40, 40]);
  assertEquals(bench.steps, ["16", "16", "8", "3+3+3", "1+1+1", "1+1+1"]);
  await bench.end();
});

Deno.test("sequences wait for a free slot", async () => {
  const bench = new Bench({ nSlots: 2 });
  await Promise.all([1, 2, 3, 4, 5].map((i) => bench.generate(prompt(9, 100 * i), 4)));
  assert(bench.runner.runs.every((chunks) => chunks.length <= 2), String(bench.steps));
  await bench.end();
});

Deno.test("one slot suffices, and its last state is continued", async () => {
  const bench = new Bench({ nSlots: 1 });
  const first = prompt(6, 0);
  const { tokens } = await bench.generate(first, 5);
  const next = [...first, ...tokens, 700];
  assertEquals(await bench.cached(next), 10);
  assertEquals(bench.runner.stateCopies, 0);
  // The state was moved, not copied.
  assertEquals(await bench.cached([...first, ...tokens, 800]), 0);
  await bench.end();
});

Deno.test("the least recently used state is evicted first", async () => {
  const bench = new Bench({ nSlots: 4 });
  const chats = [0, 100, 200].map((first) => prompt(3, first));
  const answers: number[][] = [];
  for (const chat of chats) answers.push([...chat, ...(await bench.generate(chat, 3)).tokens, 900]);
  assertEquals(await bench.cached(answers[0]!), 5);
  await bench.generate(prompt(3, 300), 1);
  assertEquals([await bench.cached(answers[2]!), await bench.cached(answers[1]!)], [5, 0]);
  await bench.end();
});

Deno.test("a stopped run publishes no state", async () => {
  const bench = new Bench();
  const first = prompt(6, 0);
  const { tokens } = await bench.generate(first, 2);
  const controller = new AbortController();
  const next = [...first, ...tokens, 700, 701];
  bench.runner.onRun = () => {
    controller.abort();
    return new Promise(() => {});
  };
  await bench.generate(next, 5, controller.signal);
  assertEquals(bench.runner.cancels, 1);
  bench.runner.onRun = () => Promise.resolve(undefined);
  // Continues from the previous turn, whose state was copied.
  assertEquals(await bench.cached([...next, 800]), 7);
  await bench.end();
});

for (const [how, error] of [["is stopped", undefined], ["fails", new Error("no power")]] as const) {
  Deno.test(`the state of a run that ${how} in the middle of a prompt is not reused`, async () => {
    const bench = new Bench();
    // The prompt takes three runs; the second one leaves an undefined state in the slot.
    const long = prompt(40, 0);
    const controller = new AbortController();
    bench.runner.onRun = () => {
      if (bench.runner.runs.length === 0) return Promise.resolve(undefined);
      if (error !== undefined) return Promise.reject(error);
      controller.abort();
      return new Promise(() => {});
    };
    const answers = bench.generate(long, 5, controller.signal);
    if (error === undefined) await answers;
    else await assertRejects(() => answers, Error, error.message);
    bench.runner.onRun = () => Promise.resolve(undefined);
    // The fake model checks the state at the start of each run.
    assertEquals(await bench.cached([...long.slice(0, 16), 800, 801]), 0);
    await bench.end();
  });
}

/** Tokenizer that spells each token of the fake model as `<id>`. */
const spellingTokenizer = {
  vocabSize: FAKE_VOCABULARY,
  tokenBytes: (id: number) => new TextEncoder().encode(`<${id}>`),
  isSpecial: () => false,
} as unknown as Tokenizer;

Deno.test("a state that includes tokens after a stop string is not reused", async () => {
  class EightSteps extends StepPace {
    override steps(): number {
      return 8;
    }
  }
  const bench = new Bench({}, new EightSteps());
  const first = prompt(6, 0);
  const answer = fakeAnswer(first, 12);
  const request = fakeRequest(first, 12, { stop: [`<${answer[4]}>`] });
  let reason: string | undefined;
  for await (const { end } of new Generation(spellingTokenizer, request).run(bench.scheduler)) {
    reason = end?.finishReason ?? reason;
  }
  assertEquals(reason, "stop");
  // The run continued to the eighth token, so the state includes tokens after the stop string.
  assert(bench.runner.nSteps > 5, String(bench.runner.nSteps));
  for (const length of [3, 4, 5, 6, 7, 8]) {
    await bench.cached([...first, ...answer.slice(0, length), 900]);
  }
  await bench.end();
});

Deno.test("a state is evicted with its pages", async () => {
  const bench = new Bench({ nPages: 6 });
  const first = prompt(6, 0);
  const { tokens } = await bench.generate(first, 3);
  await bench.generate(prompt(20, 100), 3);
  assertEquals(await bench.cached([...first, ...tokens, 700]), 0);
  await bench.end();
});

Deno.test("scores neither use nor publish states", async () => {
  const bench = new Bench();
  await bench.generate(prompt(10, 0), 2);
  await scoreTokens(bench.scheduler, prompt(10, 0));
  await scoreTokens(bench.scheduler, prompt(10, 300));
  assertEquals(await bench.cached([...prompt(9, 300), 900]), 0);
  await bench.end();
});

Deno.test("slots: two or three per sequence of a step, in at most half of the memory", () => {
  const stateLayers = [{ rows: 3, cols: 100 }, { rows: 64, cols: 50 }];
  const bytes = 4 * (300 + 3200);
  const shape = { contextLength: 64, kvType: "F16", kvLayers: [] } as const;
  const slots = (maxSequences: number, layers: typeof stateLayers, budget: number) =>
    sizeCaches({ ...shape, maxSequences, stateLayers: layers }, budget).nSlots;
  assertEquals(slots(8, stateLayers, 1e9), 16);
  assertEquals(slots(8, stateLayers, 2 * 5 * bytes), 5);
  assertEquals(slots(8, stateLayers, 0), 2);
  assertEquals(slots(1, [], 1e9), 2);
  const saving = { ...shape, maxSequences: 8, stateLayers, savesStates: true };
  assertEquals([1e9, 0].map((budget) => sizeCaches(saving, budget).nSlots), [24, 3]);
});

const PROMPT = Int32Array.from({ length: 200 }, (_, i) => 2 + (i * i + 3 * i) % 90);
const OPTIONS = { seed: 3, maxTokens: 20, logprobs: 2, logitBias: { [EOS]: -Infinity } };

async function withModel<T>(folder: TempFolder, fn: (model: Model) => Promise<T>): Promise<T> {
  await using model = await load(folder.path, { device: "cpu" });
  return await fn(model);
}

Deno.test("a model with recurrent state takes draft tokens, but drafts none", async () => {
  using hybrid = new TempFolder();
  using plain = new TempFolder();
  writeRandomHybrid(hybrid.path, { contextLength: 400 });
  writeRandomLlama(plain.path, { contextLength: 400 });
  const answer = async (options: LoadOptions) => {
    await using model = await load(hybrid.path, { device: "cpu", ...options });
    const first = await model.complete(PROMPT, { ...OPTIONS, temperature: 0.3 });
    // Continues from the state at the end of the first answer.
    const next = await model.complete(Int32Array.from([...PROMPT, ...first.tokenIds, 5]), OPTIONS);
    const drafted = first.timings.drafted + next.timings.drafted;
    return { drafted, tokens: [first.tokenIds, next.tokenIds], logprobs: next.logprobs };
  };
  const { drafted: none, ...expected } = await answer({ speculate: "off" });
  assertEquals(none, 0);
  for (const options of [{ speculate: 3 }, { speculate: 12, draftModel: plain.path }]) {
    const { drafted, ...tokens } = await answer(options);
    assert(drafted > 20, `only ${drafted} draft tokens`);
    assertEquals(tokens, expected);
  }
  await assertRejects(
    () => load(plain.path, { device: "cpu", draftModel: hybrid.path }),
    ForgeError,
    "recurrent",
  );
});

Deno.test("a state is that before rejected draft tokens, and a chat continues from it", async () => {
  const random = new Random("rejected draft tokens");
  const first = prompt(6, 0);
  const newDrafter = () =>
    new OracleDrafter({
      random,
      answer: ({ length }, most) => fakeAnswer(first, length + most).slice(length - first.length),
      hitRate: 0.6,
      vocabSize: FAKE_VOCABULARY,
    });
  const bench = new Bench({}, new StepPace(1), new Speculator({ length: 3, newDrafter }));
  const { tokens, end: { timings } } = await bench.generate(first, 40);
  assert(timings.accepted > 5 && timings.accepted < timings.drafted, JSON.stringify(timings));
  // Sequences that are computed again grow until a step takes no draft tokens.
  assert(bench.steps.every((count) => Number(count) <= 12), String(bench.steps));
  assert(await bench.cached([...first, ...tokens, 700]) >= 36);
  await bench.end();
});

Deno.test("a saved prompt carries its state, and changes nothing", async () => {
  using folder = new TempFolder();
  writeRandomHybrid(folder.path, { contextLength: 400 });
  const path = folder.at("prompt.kv");
  const longer = Int32Array.from([...PROMPT, 5, 6, 7]);
  const expected = await withModel(folder, async (model) => {
    await model.savePrompt(path, PROMPT);
    return [await model.complete(PROMPT, OPTIONS), await model.complete(longer, OPTIONS)];
  });
  await withModel(folder, async (model) => {
    // The last token is computed in any case.
    assertEquals(await model.loadPrompt(path), PROMPT.slice(0, -1));
    for (const [i, prompt] of [PROMPT, longer].entries()) {
      const answers = await model.complete(prompt, OPTIONS);
      assertEquals(answers.cachedPromptTokens, 199);
      assertEquals([answers.tokenIds, answers.logprobs], [
        expected[i]!.tokenIds,
        expected[i]!.logprobs,
      ]);
    }
    assert(model.memory.states > 0);
    const short = () => model.savePrompt(folder.at("short.kv"), PROMPT.slice(0, 1));
    await assertRejects(short, ForgeError, "a prompt of 1 token leaves nothing to save");
    await model.savePrompt(folder.at("short.kv"), PROMPT.slice(0, 2));
  });
  // The last bytes before the checksum belong to the state.
  const bytes = Deno.readFileSync(path);
  bytes[bytes.length - 40]! ^= 1;
  Deno.writeFileSync(path, bytes);
  await withModel(folder, async (model) => {
    const error = await model.loadPrompt(path).catch((error) => error);
    assert(error instanceof ForgeError && /checksum is wrong/.test(error.message), String(error));
  });
});

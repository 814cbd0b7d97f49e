/**
 * Tests the KV cache under random use: sequences start, grow, share prefixes, pause, are preempted,
 * stop or fail, and pages are evicted. The fake runner checks at every step that no page leaks, is
 * freed twice or is written while shared, and that each sequence reads its own numbers.
 */
import { assert, assertEquals } from "@std/assert";
import { Generation } from "../../../../src/engine/generation/generation.ts";
import { KvPages, PageTable } from "../../../../src/engine/cache/kv_pages.ts";
import { PrefixCache, PublishedPrefix } from "../../../../src/engine/cache/prefix_cache.ts";
import { Scheduler } from "../../../../src/engine/schedule/scheduler.ts";
import { scoreTokens } from "../../../../src/engine/generation/score.ts";
import { TokenList } from "../../../../src/engine/token_list.ts";
import { ForgeError } from "../../../../src/errors.ts";
import { Speculator } from "../../../../src/engine/speculation/speculator.ts";
import {
  FAKE_VOCABULARY,
  fakeAnswer,
  fakeRequest,
  FakeRunner,
  noTokenizer,
} from "../../../support/fake_runner.ts";
import { OracleDrafter } from "../../../support/oracle_drafter.ts";
import { Random } from "../../../support/random.ts";

function turn(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

/** Random prompts with shared prefixes; some prompts are prefixes of others. */
function randomPrompt(random: Random): number[] {
  const stem = Array.from({ length: random.int(0, 30) }, (_, i) => i);
  const branch = random.int(0, 2);
  return [...stem, ...Array.from({ length: random.int(1, 20) }, (_, i) => 100 + 40 * branch + i)];
}

async function runOne(random: Random, scheduler: Scheduler, longest: number): Promise<void> {
  const prompt = randomPrompt(random).slice(0, longest - 1);
  if (random.chance(0.1)) {
    await scoreTokens(scheduler, prompt).catch((error) => assert(error instanceof ForgeError));
    return;
  }
  const maxTokens = Math.min(random.int(1, 60), longest - prompt.length);
  const controller = new AbortController();
  const tokens: number[] = [];
  const request = fakeRequest(prompt, maxTokens, { signal: controller.signal });
  const leavesAfter = random.chance(0.2) ? random.int(1, 10) : Infinity;
  const stopsAfter = random.chance(0.2) ? random.int(0, 20) : Infinity;
  const isSlow = random.chance(0.2);
  let reason: string | undefined;
  try {
    for await (const { token, end } of new Generation(noTokenizer, request).run(scheduler)) {
      reason = end?.finishReason;
      if (token !== undefined) tokens.push(token);
      if (tokens.length === leavesAfter) break;
      if (tokens.length === stopsAfter) controller.abort();
      if (isSlow) await turn();
    }
  } catch (error) {
    assert(error instanceof ForgeError && error.message === "a fault", String(error));
  }
  const expected = fakeAnswer(prompt, maxTokens);
  assertEquals(tokens, expected.slice(0, tokens.length));
  if (reason === "length") assertEquals(tokens.length, maxTokens);
}

/** Returns a random scheduler, with or without draft tokens of random accuracy. */
function randomSpeculator(random: Random): Speculator | undefined {
  if (random.chance(0.3)) return undefined;
  const options = {
    random,
    answer: (text: Int32Array, most: number) => fakeAnswer(Array.from(text), most),
    hitRate: random.pick([0, 0.5, 0.9, 1]),
    vocabSize: FAKE_VOCABULARY,
  };
  const length = random.int(1, 12);
  return new Speculator({ length, newDrafter: () => new OracleDrafter(options) });
}

Deno.test("no page leaks, is freed twice or is written while shared", async () => {
  const random = new Random("page accounting");
  let preemptions = 0;
  for (let round = 0; round < 60; round++) {
    const pageTokens = random.int(1, 8);
    const nPages = Math.ceil(random.int(60, 250) / pageTokens);
    const runner = new FakeRunner({
      nPages,
      pageTokens,
      maxTokens: random.int(8, 40),
      maxSequences: random.int(1, 8),
      nSlots: random.chance(0.5) ? random.int(1, 12) : undefined,
    });
    const faults = random.chance(0.3) ? 0.03 : 0;
    runner.onRun = async () => {
      for (let i = random.int(0, 4); i > 0; i--) await Promise.resolve();
      if (random.chance(0.05)) await turn();
      if (random.chance(faults)) throw new ForgeError("device", "a fault");
      return random.chance(faults / 3) ? new ForgeError("bad_model", "a fault") : undefined;
    };
    // A state cannot be rolled back after a rejected draft token.
    const speculator = runner.slots === undefined ? randomSpeculator(random) : undefined;
    const scheduler = new Scheduler(runner, speculator);
    const most = nPages * pageTokens;
    // Prompts that are loaded or saved, which hold pages meanwhile; requests wait for them.
    const nHolders = random.pick([0, 0, 3]);
    await Promise.all(Array.from({ length: 16 + nHolders }, async (_, i) => {
      for (let i = random.int(0, 10); i > 0; i--) await Promise.resolve();
      if (random.chance(0.3)) await turn();
      if (i < 16) return await runOne(random, scheduler, most);
      using table = runner.newSequence();
      table.reserve(random.int(1, most));
      for (let i = random.int(0, 20); i > 0; i--) await Promise.resolve();
      for (let i = random.int(0, 3); i > 0; i--) await turn();
    }));
    await scheduler.idle();
    runner.checkPages();
    assertEquals(runner.pages.freePages, nPages, "a page leaked");
    assertEquals(runner.slots?.free, runner.slots?.size, "a state slot leaked");
    preemptions += scheduler.preemptions;
  }
  assert(preemptions > 20, `only ${preemptions} pre-emptions`);
});

const PAGE = 4;

/** Returns a page pool without a device, and a function that adds a sequence to it. */
function cacheOf(nPages: number, hash?: (tokens: Int32Array) => number) {
  const pool = new KvPages(nPages, PAGE);
  const copies: [number, number][] = [];
  const cache = new PrefixCache(pool, (from, to) => copies.push([from, to]), undefined, hash);
  const enter = (ids: readonly number[], limit = ids.length - 1) => {
    const tokens = new TokenList(ids);
    const table = new PageTable(pool);
    const published = new PublishedPrefix();
    const cached = cache.attach(cache.match(tokens, limit), table, published);
    table.reserve(ids.length);
    const publish = (computed: number, withTail: boolean) =>
      cache.publish(table, published, tokens, computed, withTail);
    return { table, cached, publish, tokens };
  };
  return { pool, cache, copies, enter };
}

const IDS = Array.from({ length: 11 }, (_, i) => 10 + i);

Deno.test("whole pages are shared, a partial page is copied", () => {
  const { cache, enter, copies } = cacheOf(10);
  const first = enter(IDS);
  assertEquals([first.cached, first.table.pages], [0, [0, 1, 2]]);
  first.publish(8, false);
  const second = enter(IDS);
  assertEquals([second.cached, second.table.pages, copies], [8, [0, 1, 3], []]);
  first.publish(11, false);
  assertEquals(cache.match(first.tokens, 10).length, 8);
  first.publish(11, true);
  // The last token must be computed for its logits.
  const third = enter(IDS);
  assertEquals([third.cached, third.table.pages, copies], [10, [0, 1, 4], [[2, 4]]]);
  const parts = enter([...IDS.slice(0, 6), 99, 98]);
  assertEquals([parts.cached, parts.table.pages, copies.slice(1)], [6, [0, 5], [[1, 5]]]);
});

Deno.test("a sequence needs the pages that it does not share, and idle ones", () => {
  const { pool, cache, enter } = cacheOf(3);
  const first = enter(IDS);
  first.publish(11, true);
  const needed = (length: number) => {
    const match = cache.match(first.tokens, 10);
    return [match.length, cache.pagesNeeded(match, length)];
  };
  assertEquals([needed(11), needed(13)], [[10, 1], [10, 2]]);
  // Without a free page for the copy, the whole pages are shared.
  const second = enter(IDS);
  assertEquals([second.cached, second.table.pages, pool.freePages], [8, [0, 1], 0]);
  for (const { table } of [first, second]) table.release();
  assertEquals([needed(11), pool.freePages], [[10, 3], 3]);
});

Deno.test("identical pages are kept once", () => {
  const { pool, enter } = cacheOf(10);
  const [first, second] = [enter(IDS), enter(IDS)];
  assertEquals(second.table.pages, [3, 4, 5]);
  first.publish(8, false);
  second.publish(8, false);
  assertEquals([second.table.pages, pool.freePages], [[0, 1, 5], 6]);
  // Also if the duplicate was published while partly filled: its page is then freed.
  const third = enter([...IDS.slice(0, 4), 99, 98, 97, 96], 4);
  const fourth = enter([...IDS.slice(0, 4), 99, 98, 97, 96], 4);
  const [, page] = fourth.table.pages;
  third.publish(8, false);
  fourth.publish(6, true);
  fourth.publish(8, false);
  assertEquals(fourth.table.pages, third.table.pages);
  assertEquals(pool.isIdle(page!), false);
});

Deno.test("a page is evicted after the pages that continue it", () => {
  const { pool, enter } = cacheOf(3);
  const first = enter(IDS);
  first.publish(11, true);
  first.table.release();
  assertEquals(pool.freePages, 3);
  for (const cached of [8, 4, 0]) {
    // Each evicted page is the last of the chain.
    pool.allocate();
    const table = enter([...IDS.slice(0, 8), 99], 8);
    assertEquals(table.cached, cached);
    table.table.release();
  }
});

Deno.test("two pages with the same hash are distinguished", () => {
  const { enter } = cacheOf(20, () => 7);
  const first = enter(IDS);
  first.publish(11, true);
  const second = enter(IDS.map((id) => id + 100));
  assertEquals(second.cached, 0);
  // A hash identifies one page: the second sequence is neither kept nor found.
  const { pages } = second.table, before = [...pages];
  second.publish(11, true);
  assertEquals(pages, before);
  second.table.release();
  assertEquals(enter(IDS.map((id) => id + 100)).cached, 0);
  assertEquals(enter(IDS).cached, 10);
});

Deno.test("a partly filled page is found up to its published length", () => {
  const { enter } = cacheOf(20);
  const first = enter(IDS.slice(0, 6));
  first.publish(6, true);
  for (const id of IDS.slice(6)) first.tokens.push(id);
  assertEquals(enter(IDS).cached, 6);
  first.publish(7, true);
  assertEquals(enter(IDS).cached, 7);
  // A full page is found whole.
  first.publish(8, false);
  assertEquals(enter(IDS).cached, 8);
});

Deno.test("the page that shares the most tokens is copied", () => {
  const { enter } = cacheOf(20);
  const whole = IDS.slice(0, 4);
  for (const rest of [[1, 9, 9, 9], [1, 2, 3, 4], [1, 2, 9, 9]]) {
    enter([...whole, ...rest, 5]).publish(8, false);
  }
  assertEquals(enter([...whole, 1, 2, 3, 7]).cached, 7);
  assertEquals(enter([...whole, 1, 2, 9, 7]).cached, 7);
});

Deno.test("pages of other adapters are not found, and are kept", () => {
  const { pool, cache } = cacheOf(20);
  const listOf = (key: string | undefined) =>
    new TokenList(IDS, key === undefined ? undefined : { scales: Float32Array.of(1), key });
  const found = () =>
    [undefined, "0.5", "1"].map((key) => cache.match(listOf(key), IDS.length).length);
  const publish = (key: string | undefined) => {
    using table = new PageTable(pool);
    table.reserve(IDS.length);
    cache.publish(table, new PublishedPrefix(), listOf(key), IDS.length, true);
  };
  publish("1");
  assertEquals(found(), [0, 0, 11]);
  publish(undefined);
  assertEquals(found(), [11, 0, 11]);
  publish("0.5");
  assertEquals(found(), [11, 11, 11]);
});

/** Tests prefixes kept in a folder: found by a later process, bounded, and safe from bad files. */
import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { KvPages, PageTable } from "../../../../src/engine/cache/kv_pages.ts";
import { Pool } from "../../../../src/engine/cache/pool.ts";
import { PrefixCache, PublishedPrefix } from "../../../../src/engine/cache/prefix_cache.ts";
import { PrefixStore } from "../../../../src/engine/cache/prefix_store.ts";
import { StateSnapshots } from "../../../../src/engine/cache/state_snapshots.ts";
import type { Runner } from "../../../../src/engine/runner.ts";
import type { Scheduler } from "../../../../src/engine/schedule/scheduler.ts";
import { TokenList } from "../../../../src/engine/token_list.ts";
import { ForgeError, load, type LoadOptions, type Model } from "../../../../src/mod.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { writeRandomLlama } from "../../../support/tiny_llama.ts";
import { writeRandomHybrid } from "../../../support/tiny_hybrid.ts";
import { until } from "../../../support/wait.ts";

const PROMPT = Int32Array.from({ length: 200 }, (_, i) => 2 + (i * i + 3 * i) % 90);
const OPTIONS = { seed: 3, maxTokens: 20, logprobs: 2 };

/** A model, and the folder of its prompts. */
class Stored {
  readonly #folder = new TempFolder();
  readonly prompts: string;
  readonly warnings: string[] = [];

  constructor() {
    this.prompts = this.#folder.at("prompts");
    this.write(1);
  }

  write(seed: number): void {
    writeRandomLlama(this.#folder.path, { contextLength: 400 }, seed);
  }

  async with<T>(fn: (model: Model) => Promise<T>, options: LoadOptions = {}): Promise<T> {
    const onWarning = (line: string) => this.warnings.push(line);
    const given = { device: "cpu", kvDir: this.prompts, onWarning, ...options };
    await using model = await load(this.#folder.path, given);
    return await fn(model);
  }

  names(): string[] {
    return [...Deno.readDirSync(this.prompts)].map(({ name }) => name).sort();
  }

  at(name: string): string {
    return `${this.prompts}/${name}`;
  }

  [Symbol.dispose](): void {
    this.#folder[Symbol.dispose]();
  }
}

Deno.test("a later process finds the prompts of an earlier one, and gives the same answer", async () => {
  using stored = new Stored();
  const plain = await stored.with((model) => model.complete(PROMPT, OPTIONS), { kvDir: undefined });
  const first = await stored.with((model) => model.complete(PROMPT, OPTIONS));
  assertEquals([first.cachedPromptTokens, stored.names().length], [0, 1]);
  const later = await stored.with((model) => model.complete(PROMPT, OPTIONS));
  assertEquals(later.cachedPromptTokens, 192);
  for (const answer of [first, later]) {
    assertEquals([answer.tokenIds, answer.logprobs], [plain.tokenIds, plain.logprobs]);
  }
  // A conversation that goes on replaces its beginning; another prompt that shares pages reuses
  // them.
  const longer = Int32Array.from([...PROMPT, ...first.tokenIds, ...PROMPT.subarray(0, 60)]);
  const before = stored.names();
  await stored.with(async (model) => {
    assertEquals((await model.complete(longer, OPTIONS)).cachedPromptTokens, 192);
  });
  assertEquals(stored.names().length, 1);
  assert(stored.names()[0] !== before[0]);
  await stored.with(async (model) => {
    const [a, b] = await Promise.all([
      model.complete(PROMPT.with(150, 7), OPTIONS),
      model.complete(PROMPT, OPTIONS),
    ]);
    assertEquals([a.cachedPromptTokens, b.cachedPromptTokens], [150, 199]);
  });
  // Another model, or type of cache, has files of its own.
  await stored.with(async (model) => {
    assertEquals((await model.complete(PROMPT, OPTIONS)).cachedPromptTokens, 0);
  }, { kvType: "F32" });
  stored.write(2);
  await stored.with(async (model) => {
    assertEquals((await model.complete(PROMPT, OPTIONS)).cachedPromptTokens, 0);
  });
  assertEquals(stored.warnings, []);
});

Deno.test("damaged, truncated and foreign files are removed with one line each", async () => {
  using stored = new Stored();
  await stored.with((model) => model.complete(PROMPT, OPTIONS));
  const [name] = stored.names() as [string];
  const good = Deno.readFileSync(stored.at(name));
  const [key] = name.split("-") as [string];
  const damages: [(bytes: Uint8Array<ArrayBuffer>) => Uint8Array, RegExp][] = [
    [(bytes) => bytes.with(bytes.length - 5000, bytes.at(-5000)! ^ 1), /its checksum is wrong/],
    [(bytes) => bytes.subarray(0, -100), /bytes instead of/],
    [(bytes) => bytes.subarray(0, 10), /is not a prompt cache/],
    [() => new Uint8Array(0), /is empty/],
    [() => new TextEncoder().encode("something else entirely"), /is not a prompt cache/],
    [
      (bytes) => {
        const text = new TextDecoder("latin1").decode(bytes).replace(
          '"kv_type":"F16"',
          '"kv_type":"F17"',
        );
        return Uint8Array.from(text, (letter) => letter.charCodeAt(0));
      },
      /another KV type/,
    ],
  ];
  Deno.writeTextFileSync(stored.at("notes.txt"), "mine");
  for (const [damage, message] of damages) {
    stored.warnings.length = 0;
    Deno.writeFileSync(stored.at(name), damage(good));
    const answer = await stored.with((model) =>
      model.complete(PROMPT, { ...OPTIONS, maxTokens: 1 })
    );
    assertEquals([answer.cachedPromptTokens, stored.warnings.length], [0, 1], String(message));
    assertMatch(stored.warnings[0]!, message);
    assert(stored.warnings[0]!.includes(name) && !stored.warnings[0]!.includes("\n"));
    // The prompt was computed and written again.
    assertEquals(stored.names().length, 2);
    for (const one of stored.names()) if (one.startsWith(key)) Deno.removeSync(stored.at(one));
  }
  assertEquals(Deno.readTextFileSync(stored.at("notes.txt")), "mine");
});

Deno.test("a folder that cannot be used is an error; one that is lost, a warning", async () => {
  using stored = new Stored();
  using folder = new TempFolder();
  const kvDir = folder.write("file", "mine");
  const refused = () => stored.with(() => Promise.resolve(), { kvDir });
  const error = await assertRejects(refused, ForgeError, `cannot use the folder "${kvDir}": `);
  assertEquals(error.code, "usage");
  await stored.with(async (model) => {
    Deno.removeSync(stored.prompts, { recursive: true });
    const answer = await model.complete(PROMPT, OPTIONS);
    assertEquals((await model.complete(PROMPT, OPTIONS)).tokenIds, answer.tokenIds);
  });
  assertEquals(stored.warnings.length, 1, `${stored.warnings}`);
  assertMatch(stored.warnings[0]!, /^prompts are no longer kept on disk: [^\n]*$/);
});

Deno.test("the least recently used files go when the folder is full", async () => {
  using stored = new Stored();
  const prompts = [1, 2, 3].map((first) => PROMPT.with(0, first + 10));
  await stored.with((model) => model.complete(prompts[0]!, OPTIONS));
  const [first] = stored.names() as [string];
  const { size } = Deno.statSync(stored.at(first));
  const abandoned = `${first.slice(0, 33)}.forge-kv.0123abcd.part`;
  Deno.writeTextFileSync(stored.at(abandoned), "");
  for (const [file, age] of [[first, 1e5], [abandoned, 1e7]] as const) {
    const time = new Date(Date.now() - age);
    Deno.utimeSync(stored.at(file), time, time);
  }
  const options = { kvDirSize: Math.ceil(2.5 * size) };
  await stored.with((model) => model.complete(prompts[1]!, OPTIONS), options);
  const [second] = stored.names().filter((name) => name !== first) as [string];
  assertEquals(stored.names().length, 2);
  const time = new Date(Date.now() - 1e4);
  Deno.utimeSync(stored.at(second), time, time);
  // The first is used, so that the second is now the older one.
  await stored.with(async (model) => {
    assertEquals((await model.complete(prompts[0]!, OPTIONS)).cachedPromptTokens, 192);
    await model.complete(prompts[2]!, OPTIONS);
  }, options);
  assertEquals(stored.names().length, 2);
  assert(stored.names().includes(first) && !stored.names().includes(second));
  assertEquals(stored.warnings, []);
});

Deno.test("several models share a folder at the same time", async () => {
  using stored = new Stored();
  const prompts = Array.from({ length: 6 }, (_, i) => PROMPT.with(3, i + 5));
  const answer = (model: Model) =>
    Promise.all(prompts.map((prompt) => model.complete(prompt, OPTIONS)));
  const expected = await stored.with(answer, { kvDir: undefined });
  const small = { kvDirSize: 200_000 };
  for (let round = 0; round < 2; round++) {
    const all = await Promise.all([1, 2, 3].map(() => stored.with(answer, small)));
    for (const answers of all) {
      assertEquals(
        answers.map(({ tokenIds }) => tokenIds),
        expected.map(({ tokenIds }) => tokenIds),
      );
    }
  }
  assertEquals(stored.warnings, []);
  assert(stored.names().every((name) => name.endsWith(".forge-kv")));
});

Deno.test("a recurrent state is kept with its prompt, and with the answer", async () => {
  using folder = new TempFolder();
  writeRandomHybrid(folder.path, { contextLength: 400 });
  const options = { device: "cpu", kvDir: folder.at("prompts") };
  const complete = async (prompt: Int32Array) => {
    await using model = await load(folder.path, options);
    return await model.complete(prompt, OPTIONS);
  };
  const first = await complete(PROMPT);
  const again = await complete(PROMPT);
  assertEquals([again.tokenIds, again.cachedPromptTokens], [first.tokenIds, 192]);
  const next = await complete(Int32Array.from([...PROMPT, ...first.tokenIds, 5, 6, 7]));
  assert(next.cachedPromptTokens >= PROMPT.length, `${next.cachedPromptTokens} tokens`);
});

const PAGE = 4;
const PAGE_BYTES = 100;

interface ProcessOptions {
  readonly hasStates?: boolean;
  readonly model?: string | undefined;
  readonly maxBytes?: number | undefined;
  readonly delayMs?: number;
}

/** A process without a model, whose pages hold 4 tokens, and bytes that nobody reads. */
class Process {
  readonly store: PrefixStore;
  readonly warnings: string[] = [];
  /** Number of pages and states that were loaded. */
  loaded = 0;
  isClosed = false;
  readonly #pages = new KvPages(100, PAGE);
  readonly #slots: Pool | undefined;
  readonly #cache: PrefixCache;

  constructor(folder: TempFolder, options: ProcessOptions = {}) {
    const { hasStates = false, model = "a model" } = options;
    const slots = this.#slots = hasStates ? new Pool(8, "slot") : undefined;
    const snapshots = slots && new StateSnapshots(slots, () => {});
    this.#cache = new PrefixCache(this.#pages, () => {}, snapshots);
    const key = {
      ...{ model, device: "cpu", kv_type: "F16", page_tokens: PAGE, page_bytes: [PAGE_BYTES] },
      ...{ state_bytes: hasStates ? [50] : [], context_length: null },
    };
    const load = () => void this.loaded++;
    const runner = {
      pages: this.#pages,
      newSequence: () => new PageTable(this.#pages, slots),
      readPage: () => [new Uint8Array(PAGE_BYTES)],
      writePage: load,
      readSlot: () => hasStates ? [new Uint8Array(50)] : [],
      writeSlot: load,
    } as unknown as Runner;
    const scheduler = {
      cache: this.#cache,
      betweenSteps: async (action: () => unknown) => {
        if (this.isClosed) throw new ForgeError("device", "the model is closed");
        return await action();
      },
    } as unknown as Scheduler;
    const onWarning = (line: string) => void this.warnings.push(line);
    const path = folder.at("prompts");
    this.store = new PrefixStore(path, { key, runner, scheduler }, { ...options, onWarning });
  }

  /** Puts tokens, and the state after them, into the cache. */
  compute(tokens: readonly number[]): void {
    const list = new TokenList(tokens);
    const published = new PublishedPrefix();
    using table = new PageTable(this.#pages, this.#slots);
    assert(table.reserve(tokens.length));
    this.#cache.publish(table, published, list, tokens.length, true);
    this.#cache.publishState(table, published, list, tokens.length, false);
  }

  /** Computes and offers tokens. */
  offer(tokens: readonly number[], promptLength = tokens.length): void {
    this.compute(tokens);
    this.store.offer(Int32Array.from(tokens), promptLength);
  }

  async keep(...prompts: readonly (readonly number[])[]): Promise<void> {
    for (const tokens of prompts) this.offer(tokens);
    await this.store.flush();
  }

  /** Fetches what is stored of a prompt; returns how many of its tokens are cached then. */
  async fetch(tokens: readonly number[]): Promise<number> {
    await this.store.fetch(Int32Array.from(tokens));
    return this.#cache.match(new TokenList(tokens), tokens.length - 1).length;
  }
}

const range = (first: number, end: number) =>
  Array.from({ length: end - first }, (_, i) => first + i);
const upTo = (end: number) => range(0, end);

const namesIn = (folder: TempFolder) =>
  Array.from(Deno.readDirSync(folder.at("prompts")), ({ name }) => name);

/** Numbers of tokens of the files of a folder, as their headers have them. */
function lengths(folder: TempFolder): number[] {
  return namesIn(folder).map((name) => {
    const text = new TextDecoder().decode(Deno.readFileSync(folder.at("prompts", name)));
    return Number(/"tokens":(\d+)\}/.exec(text)![1]);
  }).sort((a, b) => a - b);
}

Deno.test("the file that a prompt shares the most tokens with is loaded, if they suffice", async () => {
  using folder = new TempFolder();
  await new Process(folder).keep(
    ...[upTo(16), [...upTo(8), ...range(100, 132)]],
    ...[300, 400].map((end) => [...range(200, 208), ...range(end, end + 4)]),
  );
  assertEquals(lengths(folder), [12, 12, 16, 40]);
  const cases: [prompt: number[], cached: number, loaded: number][] = [
    [upTo(17), 16, 4],
    [upTo(16), 15, 4],
    [upTo(9), 8, 4],
    // A quarter of a file is enough; fewer tokens than a page are not.
    [[...upTo(5), 90, 91], 5, 4],
    [[...upTo(4), 90, 91], 4, 4],
    [[...upTo(3), 90, 91, 92], 0, 0],
    [upTo(4), 0, 0],
    [[...upTo(8), ...range(100, 104)], 11, 10],
    [[...upTo(8), ...range(100, 101)], 8, 4],
    [range(100, 120), 0, 0],
    // One token more decides, in whichever order the files are listed.
    [[...range(200, 208), 300, 90], 9, 3],
    [[...range(200, 208), 400, 90], 9, 3],
  ];
  for (const [prompt, cached, loaded] of cases) {
    const process = new Process(folder);
    assertEquals([await process.fetch(prompt), process.loaded], [cached, loaded], `${prompt}`);
  }
  // A file is not loaded for less than a page more than the cache has, nor twice at a time.
  for (const [known, cached, loaded] of [[12, 16, 4], [13, 13, 0], [16, 16, 0]] as const) {
    const process = new Process(folder);
    process.compute(upTo(known));
    assertEquals([await process.fetch(upTo(17)), process.loaded], [cached, loaded]);
  }
  const process = new Process(folder);
  await Promise.all([process.fetch(upTo(17)), process.fetch(upTo(18))]);
  assertEquals(process.loaded, 4);
  assertEquals(await new Process(folder, { model: "other" }).fetch(upTo(17)), 0);
});

Deno.test("a file replaces its beginnings, whichever process wrote them", async () => {
  using folder = new TempFolder();
  const [first, second] = [new Process(folder), new Process(folder)];
  await first.keep(upTo(4));
  assertEquals(lengths(folder), []);
  await first.keep(upTo(5));
  assertEquals(lengths(folder), [4]);
  await first.keep(upTo(10));
  assertEquals(lengths(folder), [8]);
  await first.keep(upTo(7));
  assertEquals(lengths(folder), [8]);
  await second.keep([...upTo(11), 90], upTo(21));
  assertEquals(lengths(folder), [12, 20]);
  // The second process has removed a file that the first one knows, and a file may disappear
  // between its listing and its use, like the target of this link.
  const gone = namesIn(folder)[0]!.replace(/-.{16}/, `-${"0".repeat(16)}`);
  Deno.symlinkSync("gone", folder.at("prompts", gone));
  assertEquals(await first.fetch(upTo(22)), 20);
  assertEquals([first.warnings, second.warnings], [[], []]);
});

Deno.test("a state has a file for each number of tokens that it has seen", async () => {
  using folder = new TempFolder();
  const process = new Process(folder, { hasStates: true });
  for (const length of [7, 8]) process.compute(upTo(length));
  process.offer(upTo(10), 8);
  process.offer(upTo(14), 12);
  await process.store.flush();
  assertEquals(lengths(folder), [7, 10, 14]);
  for (const [length, cached] of [[7, 0], [8, 7], [10, 7], [11, 10], [14, 10], [15, 14]] as const) {
    const later = new Process(folder, { hasStates: true });
    assertEquals(await later.fetch(upTo(length)), cached, `${length} tokens`);
    assertEquals(later.loaded, cached === 0 ? 0 : Math.ceil(cached / PAGE) + 1);
  }
});

Deno.test("a file has at most the pages that fit the folder", async () => {
  for (const [maxBytes, expected] of [[199, []], [200, [4]], [399, [8]], [400, [12]]] as const) {
    using folder = new TempFolder();
    await new Process(folder, { maxBytes }).keep(upTo(17));
    assertEquals(lengths(folder), [...expected], `${maxBytes} bytes`);
  }
});

Deno.test("the oldest files go when those of all models exceed the limit, but never the newest", async () => {
  using folder = new TempFolder();
  const at = (name: string) => folder.at("prompts", name);
  const write = async (first: number, maxBytes?: number, model?: string) => {
    const before = new Set(namesIn(folder));
    await new Process(folder, { model, maxBytes }).keep(range(first, first + 9));
    return namesIn(folder).find((name) => !before.has(name))!;
  };
  const touch = (name: string, age: number) =>
    Deno.utimeSync(at(name), new Date(Date.now() - age), new Date(Date.now() - age));
  Deno.mkdirSync(folder.at("prompts"));
  const old = await write(10, undefined, "b model"), older = await write(20);
  touch(old, 2e7);
  touch(older, 3e7);
  const part = (letter: string) => old.replace(/$/, `.${letter.repeat(8)}.part`);
  for (const [name, age] of [[part("a"), 3.5e6], [part("b"), 3.7e6], ["mine", 9e7]] as const) {
    Deno.writeTextFileSync(at(name), "x".repeat(9999));
    touch(name, age);
  }
  const { size } = Deno.statSync(at(old));
  const third = await write(30, 3 * size);
  assertEquals(namesIn(folder).sort(), [old, older, third, part("a"), "mine"].sort());
  const fourth = await write(40, 3 * size);
  assertEquals(namesIn(folder).sort(), [old, third, fourth, part("a"), "mine"].sort());
  for (const name of [old, third, fourth]) touch(name, -1e6);
  const last = await write(50, size);
  assertEquals(namesIn(folder).sort(), [last, part("a"), "mine"].sort());
  // The default is 8 GiB: here almost all of it is the oldest file, most of which is a hole.
  const large = at(old);
  for (const [rest, isKept] of [[2 * size, true], [2 * size - 1, false]] as const) {
    Deno.writeTextFileSync(large, "");
    Deno.truncateSync(large, 8 * 2 ** 30 - rest);
    touch(old, 9e7);
    const newest = await write(60);
    assertEquals(namesIn(folder).includes(old), isKept);
    Deno.removeSync(at(newest));
  }
});

Deno.test("prompts are written by themselves, until the folder is lost or the model closed", async () => {
  using folder = new TempFolder();
  const process = new Process(folder, { delayMs: 0 });
  for (const [i, first] of [10, 20].entries()) {
    process.offer(range(first, first + 9));
    await until(() => namesIn(folder).filter((name) => name.endsWith("kv")).length > i);
  }
  Deno.removeSync(folder.at("prompts"), { recursive: true });
  await process.keep(range(30, 39), range(40, 49));
  assertEquals(process.warnings.length, 1);
  assertMatch(process.warnings[0]!, /^prompts are no longer kept on disk: [^\n]*$/);
  const other = new Process(folder);
  await process.keep(range(50, 59));
  assertEquals([namesIn(folder), process.warnings.length], [[], 1]);
  other.isClosed = true;
  await other.keep(range(50, 59));
  assertEquals([namesIn(folder), other.warnings], [[], []]);
});

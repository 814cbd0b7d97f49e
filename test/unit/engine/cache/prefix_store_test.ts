/** Tests prefixes kept in a folder: found by a later process, bounded, and safe from bad files. */
import { assert, assertEquals, assertMatch, assertRejects } from "@std/assert";
import { ForgeError, load, type LoadOptions, type Model } from "../../../../src/mod.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { writeRandomLlama } from "../../../support/tiny_llama.ts";
import { writeRandomHybrid } from "../../../support/tiny_hybrid.ts";

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
    // After a second the prompt would be written.
    for (let i = 0; i < 60 && stored.warnings.length === 0; i++) {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
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

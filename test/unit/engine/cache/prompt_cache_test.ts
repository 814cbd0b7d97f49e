/** Tests saved prompts: reuse with the same model, and rejection of files that do not match. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import {
  ForgeError,
  type GenerateOptions,
  load,
  type LoadOptions,
  type Model,
} from "../../../../src/mod.ts";
import { writePrompt } from "../../../../src/engine/cache/prompt_cache.ts";
import type { Runner } from "../../../../src/engine/runner.ts";
import type { Scheduler } from "../../../../src/engine/schedule/scheduler.ts";
import { modelIdentity } from "../../../../src/engine/cache/prompt_cache_key.ts";
import type { Checkpoint } from "../../../../src/formats/checkpoint.ts";
import type { GgufValue } from "../../../../src/formats/gguf/types.ts";
import type { JsonObject } from "../../../../src/formats/json.ts";
import type { TensorInfo } from "../../../../src/formats/tensor_info.ts";
import { Random } from "../../../support/random.ts";
import { heldFiles, TempFolder } from "../../../support/temp_folder.ts";
import { type TinyLlamaOptions, writeRandomLlama } from "../../../support/tiny_llama.ts";

const CONTEXT = 400;
const PROMPT = Int32Array.from({ length: 200 }, (_, i) => 2 + (i * i + 3 * i) % 90);
const OPTIONS: GenerateOptions = { seed: 3, maxTokens: 20, logprobs: 2 };

async function withModel<T>(
  folder: TempFolder,
  fn: (model: Model) => Promise<T>,
  options: LoadOptions = {},
): Promise<T> {
  await using model = await load(folder.path, { device: "cpu", ...options });
  return await fn(model);
}

function writeModel(folder: TempFolder, options: TinyLlamaOptions = {}, seed = 1): void {
  writeRandomLlama(folder.path, { contextLength: CONTEXT, ...options }, seed);
}

for (const device of ["cpu", "reference"]) {
  Deno.test(`a saved prompt is not recomputed and changes no token on ${device}`, async () => {
    using folder = new TempFolder();
    writeModel(folder);
    const path = folder.at("prompt.kv");
    const expected = await withModel(folder, async (model) => {
      const answer = await model.complete(PROMPT, OPTIONS);
      await model.savePrompt(path, PROMPT);
      return answer;
    }, { device });
    await withModel(folder, async (model) => {
      assertEquals(await model.loadPrompt(path), PROMPT);
      // Loading it a second time changes nothing.
      assertEquals(await model.loadPrompt(path), PROMPT);
      const answer = await model.complete(PROMPT, OPTIONS);
      assertEquals(answer.cachedPromptTokens, PROMPT.length - 1);
      assertEquals([answer.tokenIds, answer.logprobs], [expected.tokenIds, expected.logprobs]);
      // Prompts with a shared prefix reuse that prefix.
      const other = PROMPT.with(150, 7);
      assertEquals((await model.complete(other, OPTIONS)).cachedPromptTokens, 150);
    }, { device });
    assertEquals([...Deno.readDirSync(folder.path)].filter(({ name }) => /part/.test(name)), []);
  });
}

Deno.test("a prompt can be computed and saved during a generation", async () => {
  using folder = new TempFolder();
  writeModel(folder);
  const path = folder.at("prompt.kv");
  const [expected, again] = await withModel(folder, async (model) => {
    const alone = await model.complete(PROMPT.slice(5), OPTIONS);
    const [together] = await Promise.all([
      model.complete(PROMPT.slice(5), { ...OPTIONS, maxTokens: 40 }),
      model.savePrompt(path, PROMPT),
    ]);
    assertEquals(together.tokenIds.slice(0, 20), alone.tokenIds);
    return [await model.complete(PROMPT, OPTIONS), alone];
  });
  await withModel(folder, async (model) => {
    const generating = model.complete(PROMPT.slice(5), OPTIONS);
    await model.loadPrompt(path);
    assertEquals((await generating).tokenIds, again.tokenIds);
    const answer = await model.complete(PROMPT, OPTIONS);
    assertEquals([answer.tokenIds, answer.cachedPromptTokens], [expected.tokenIds, 199]);
  });
});

/** Writes a model and a prompt that it saved. Returns the prompt's path. */
async function saved(folder: TempFolder): Promise<string> {
  writeModel(folder);
  const path = folder.at("prompt.kv");
  await withModel(folder, (model) => model.savePrompt(path, PROMPT));
  return path;
}

async function assertRefused(folder: TempFolder, path: string, why: string, options?: LoadOptions) {
  await withModel(folder, async (model) => {
    const error = await assertRejects(() => model.loadPrompt(path), ForgeError, why);
    assert(error.message.includes(JSON.stringify(path)), error.message);
    assertEquals(error.code, "bad_input");
    // No part of the file is used.
    assertEquals((await model.complete(PROMPT, OPTIONS)).cachedPromptTokens, 0);
  }, options);
}

Deno.test("a file of another model or option is rejected, naming the difference", async () => {
  using folder = new TempFolder();
  const path = await saved(folder);
  await assertRefused(folder, path, "another KV type (F16 instead of F32)", { kvType: "F32" });
  await assertRefused(folder, path, "another device (cpu:", { device: "reference", kvType: "F16" });
  writeModel(folder, {}, 2);
  await assertRefused(folder, path, "another model; delete it");
  writeModel(folder, { config: { rope_theta: 5000 } });
  await assertRefused(folder, path, "another model; delete it");
  // Another context length is accepted: the positions are the same.
  writeModel(folder);
  await withModel(folder, async (model) => {
    assertEquals((await model.loadPrompt(path)).length, PROMPT.length);
  }, { contextLength: 300 });
});

Deno.test("a file depends on the context length if positions do", async () => {
  using folder = new TempFolder();
  const rope_scaling = {
    type: "longrope",
    attention_factor: 1,
    short_factor: Array(8).fill(1),
    long_factor: Array(8).fill(4),
  };
  writeModel(folder, { config: { rope_scaling, original_max_position_embeddings: 300 } });
  const path = folder.at("prompt.kv");
  const short = { contextLength: 300 };
  await withModel(folder, (model) => model.savePrompt(path, PROMPT), short);
  await assertRefused(folder, path, "another context length (300 instead of 400)");
  await withModel(folder, (model) => model.loadPrompt(path), short);
});

Deno.test("every property that the keys and values depend on changes the identity", () => {
  using folder = new TempFolder();
  const bytes = Uint8Array.from({ length: 400 }, (_, i) => i);
  const file = folder.write("a", bytes);
  // Samples are the 64 bytes in the middle of a tensor.
  const changed = (at: number) => folder.write(`b${at}`, bytes.with(at, 255));
  type Tensor = Pick<TensorInfo, "name" | "type" | "shape" | "file" | "offset" | "bytes">;
  const x: Tensor = { name: "x", type: "F32", shape: [5, 10], file, offset: 100, bytes: 200 };
  const y: Tensor = { name: "y", type: "F16", shape: [3], file, offset: 300, bytes: 6 };
  const base = {
    tensors: [x, y],
    modelType: "llama",
    config: { rope_theta: 5 } as JsonObject | undefined,
    metadata: undefined as Map<string, GgufValue> | undefined,
  };
  const identity = (changes: Partial<typeof base> = {}) => {
    const { tensors, ...others } = { ...base, ...changes };
    const named = new Map(tensors.map((tensor) => [tensor.name, tensor as TensorInfo]));
    return modelIdentity({ ...others, tensors: named } as unknown as Checkpoint);
  };
  const metadata = (entries: [string, GgufValue][]) => ({ metadata: new Map(entries) });
  const all: readonly Partial<typeof base>[] = [
    {},
    { modelType: "qwen3" },
    { config: undefined },
    { config: { rope_theta: 6 } },
    metadata([["llama.rope.freq_base", 5]]),
    metadata([["llama.rope.freq_base", 6]]),
    metadata([["llama.rope.freq_base", 6n]]),
    { tensors: [x] },
    { tensors: [x, { ...y, name: "z" }] },
    { tensors: [x, { ...y, type: "BF16" }] },
    { tensors: [x, { ...y, shape: [1, 3] }] },
    { tensors: [{ ...x, file: changed(168) }, y] },
    { tensors: [{ ...x, file: changed(231) }, y] },
    { tensors: [x, { ...y, file: changed(300) }] },
    { tensors: [x, { ...y, file: changed(305) }] },
  ];
  assertEquals(new Set(all.map(identity)).size, all.length);
  const same: readonly Partial<typeof base>[] = [
    { tensors: [y, x] },
    { tensors: [{ ...x, file: changed(167) }, y] },
    { tensors: [{ ...x, file: changed(232) }, y] },
    metadata([["tokenizer.ggml.model", "gpt2"]]),
  ];
  for (const changes of same) assertEquals(identity(changes), identity());
  assertEquals(heldFiles(folder.path), []);
});

Deno.test("a damaged file is rejected wherever the damage is", async () => {
  using folder = new TempFolder();
  const path = await saved(folder);
  const good = Deno.readFileSync(path);
  const random = new Random("damaged prompt cache");
  await withModel(folder, async (model) => {
    const refused = async (bytes: Uint8Array, what: string) => {
      Deno.writeFileSync(path, bytes);
      const error = await assertRejects(() => model.loadPrompt(path), ForgeError);
      assert(["bad_input", "bad_model"].includes(error.code), `${what}: ${error.message}`);
      assert(error.message.includes(JSON.stringify(path)), error.message);
    };
    for (const cut of [0, 5, 15, 16, 100, 300, 1000, good.length - 40, good.length - 1]) {
      await refused(good.slice(0, cut), `cut to ${cut} bytes`);
    }
    await refused(Uint8Array.from([...good, 0]), "a byte more");
    for (let i = 0; i < 60; i++) {
      const at = i < 30 ? random.int(0, 600) : random.int(0, good.length - 1);
      const bytes = good.slice();
      bytes[at]! ^= 1 << random.int(0, 7);
      await refused(bytes, `byte ${at}`);
    }
    await refused(random.bytes(5000), "noise");
    const free = await model.complete(PROMPT, OPTIONS);
    assertEquals(free.cachedPromptTokens, 0);
    Deno.writeFileSync(path, good);
    await model.loadPrompt(path);
  });
});

Deno.test("a header of another version, or with a value of the wrong kind, is rejected", async () => {
  using folder = new TempFolder();
  const path = await saved(folder);
  const good = Deno.readFileSync(path);
  const length = new DataView(good.buffer).getUint32(12, true);
  const header = JSON.parse(new TextDecoder().decode(good.subarray(16, 16 + length)));
  const withHeader = (text: string, version = 0): Uint8Array<ArrayBuffer> => {
    const bytes = new TextEncoder().encode(text);
    const start = good.slice(0, 16), view = new DataView(start.buffer);
    view.setUint32(8, view.getUint32(8, true) + version, true);
    view.setUint32(12, bytes.length, true);
    return Uint8Array.from([...start, ...bytes, ...good.subarray(16 + length)]);
  };
  await withModel(folder, async (model) => {
    const refused = async (bytes: Uint8Array, reason: string, what: string) => {
      Deno.writeFileSync(path, bytes);
      const error = await assertRejects(() => model.loadPrompt(path), ForgeError, reason);
      assertEquals(error.code, "bad_input", what);
    };
    await refused(withHeader(JSON.stringify(header), 1), "this forge reads", "version");
    const kinds: [string[], unknown[]][] = [
      [["model", "device", "kv_type"], [1, null, undefined, []]],
      [["page_tokens", "tokens"], [0, -1, 1.5, 2 ** 31, "1", null, undefined]],
      [["page_bytes", "state_bytes"], [1, [0], ["1"], null, undefined]],
      [["context_length"], [0, 1.5, "1", undefined]],
      [["adapters"], [1, null, []]],
    ];
    for (const [keys, values] of kinds) {
      for (const key of keys) {
        for (const value of values) {
          const what = JSON.stringify({ ...header, [key]: value });
          await refused(withHeader(what), "its header is not one", what);
        }
      }
    }
    for (const text of ["[]", "null", "{", ""]) {
      await refused(withHeader(text), "its header is not one", text);
    }
    Deno.writeFileSync(path, withHeader(JSON.stringify(header)));
    await model.loadPrompt(path);
  });
});

Deno.test("a file with a huge token count causes no huge allocation", async () => {
  using folder = new TempFolder();
  const path = await saved(folder);
  const text = new TextDecoder("latin1").decode(Deno.readFileSync(path));
  for (const count of ["999", "2147483647", "-1", "1e3", '"x"', "null"]) {
    const header = text.slice(16, text.indexOf("}") + 1).replace(
      /"tokens":200/,
      `"tokens":${count}`,
    );
    const bytes = new Uint8Array(16 + header.length);
    bytes.set(Deno.readFileSync(path).subarray(0, 16));
    new DataView(bytes.buffer).setUint32(12, header.length, true);
    bytes.set(new TextEncoder().encode(header), 16);
    Deno.writeFileSync(path, bytes);
    await assertRefused(folder, path, "is damaged");
    await saved(folder);
  }
});

Deno.test("a prompt that is stopped between two pages leaves no file", async () => {
  using folder = new TempFolder();
  const controller = new AbortController();
  let nRead = 0;
  const runner = { readPage: () => [new Uint8Array(4)] } as unknown as Runner;
  const scheduler = {
    betweenSteps: (action: () => unknown) => {
      if (++nRead === 2) controller.abort();
      return Promise.resolve(action());
    },
  } as unknown as Scheduler;
  const key = {
    ...{ model: "m", device: "cpu", kv_type: "F16", page_tokens: 4, page_bytes: [4] },
    ...{ state_bytes: [], context_length: null },
  };
  const content = { tokens: new Int32Array(12), pages: [0, 1, 2], state: [] };
  const path = folder.at("prompt.kv");
  const stopped = () => writePrompt(path, key, content, runner, scheduler, controller.signal);
  assertEquals((await assertRejects(stopped, ForgeError)).code, "cancelled");
  assertEquals([nRead, [...Deno.readDirSync(folder.path)]], [2, []]);
  await writePrompt(path, key, content, runner, scheduler);
  assertEquals(nRead, 5);
});

Deno.test("a file larger than the cache is rejected", async () => {
  using folder = new TempFolder();
  const path = await saved(folder);
  const small = { contextLength: 100, parallel: 1 };
  await withModel(folder, async (model) => {
    const error = await assertRejects(() => model.loadPrompt(path), ForgeError, "no room");
    assertEquals(error.code, "bad_input");
  }, small);
});

Deno.test("a file that cannot be written or found is named in the error", async () => {
  using folder = new TempFolder();
  writeModel(folder);
  await withModel(folder, async (model) => {
    const path = folder.at("no such folder/prompt.kv");
    for (const use of [() => model.savePrompt(path, PROMPT), () => model.loadPrompt(path)]) {
      const error = await assertRejects(use, ForgeError, JSON.stringify(path));
      assertEquals(error.code, "not_found");
    }
    const signal = AbortSignal.abort();
    const stopped = () => model.savePrompt(folder.at("prompt.kv"), PROMPT, { signal });
    assertEquals((await assertRejects(stopped, ForgeError)).code, "cancelled");
    assertEquals((await model.complete(PROMPT, OPTIONS)).completionTokens, 20);
    // Stopped after any number of turns of the event loop, of which the last ones write the file.
    let nStopped = 0;
    for (let nTurns = 0; nTurns < 24; nTurns++) {
      const stop = new AbortController();
      const saved = model.savePrompt(folder.at("prompt.kv"), PROMPT, { signal: stop.signal })
        .then(() => "saved", (error) => error instanceof ForgeError ? error.code : `${error}`);
      for (let i = 0; i < nTurns; i++) await new Promise((resolve) => setTimeout(resolve, 0));
      stop.abort();
      const end = await saved;
      if (end === "cancelled") nStopped++;
      else assertEquals(end, "saved");
      assertEquals(
        Array.from(Deno.readDirSync(folder.path), ({ name }) => name).filter((name) =>
          /kv/.test(name)
        ),
        end === "saved" ? ["prompt.kv"] : [],
      );
      if (end === "saved") Deno.removeSync(folder.at("prompt.kv"));
    }
    assert(nStopped > 0);
  });
  assertEquals([...Deno.readDirSync(folder.path)].filter(({ name }) => /kv/.test(name)), []);
});

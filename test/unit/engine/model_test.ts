/** Tests the accepted and rejected input of loading and calling a model. */
import { assert, assertAlmostEquals, assertEquals, assertRejects } from "@std/assert";
import { DEFAULT_CONTEXT } from "../../../src/engine/limits.ts";
import {
  ForgeError,
  type GenerateOptions,
  load,
  type LoadOptions,
  type Model,
} from "../../../src/mod.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import {
  BOS,
  type TinyLlamaOptions,
  writeRandomLlama,
  writeScriptedLlama,
} from "../../support/tiny_llama.ts";

/** BOS, EOS and 95 characters. */
const VOCABULARY = 97;

async function withModel<T>(
  fn: (model: Model) => Promise<T>,
  written: TinyLlamaOptions = {},
  options: LoadOptions = {},
): Promise<T> {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, written);
  await using model = await load(folder.path, { device: "reference", ...options });
  return await fn(model);
}

async function assertRefused(work: () => Promise<unknown>, code: string, message: string) {
  const error = await assertRejects(work, ForgeError);
  assertEquals([error.code, error.message], [code, message]);
}

Deno.test("the context length defaults to the model's own", async () => {
  const contextOf = (written: number, contextLength?: number) =>
    withModel((model) => Promise.resolve(model.contextLength), { contextLength: written }, {
      contextLength,
    });
  assertEquals(await contextOf(256), 256);
  assertEquals(await contextOf(256, 100), 100);
  assertEquals(await contextOf(256, 256), 256);
  assertEquals(await contextOf(DEFAULT_CONTEXT + 1), DEFAULT_CONTEXT);
  for (const asked of [0, -1, 1.5, NaN, 257]) {
    await assertRefused(
      () => contextOf(256, asked),
      "usage",
      `the context length is ${asked}; valid for this model is 1 to 256`,
    );
  }
});

Deno.test("the context length selects LongRoPE's short or long factors", async () => {
  const prompt = Int32Array.of(BOS, 10, 11, 12);
  const logits = (config: Record<string, unknown>, contextLength?: number) =>
    withModel((model) => model.logits(prompt), { config, contextLength: 2 * DEFAULT_CONTEXT }, {
      contextLength,
    });
  const longrope = {
    original_max_position_embeddings: DEFAULT_CONTEXT,
    rope_scaling: {
      type: "longrope",
      attention_factor: 1,
      short_factor: Array(8).fill(1),
      long_factor: Array(8).fill(4),
    },
  };
  const plain = await logits({});
  const divided = await logits({ rope_scaling: { type: "linear", factor: 4 } });
  // The default context equals the original one, though the model supports a longer one.
  assertEquals(await logits(longrope), plain);
  assertEquals(await logits(longrope, 100), plain);
  assertEquals(await logits(longrope, DEFAULT_CONTEXT + 1), divided);
});

Deno.test("a broken chat template fails conversations alone", async () => {
  await withModel(async (model) => {
    const options = { maxTokens: 1 };
    await model.complete(Int32Array.of(BOS, 10), options);
    await model.complete("a", { ...options, raw: true });
    const chat = () => model.complete("a", options);
    assertEquals((await assertRejects(chat, ForgeError)).code, "bad_model");
  }, { chatTemplate: "{% if %}" });
});

Deno.test("the number of sequences is checked", async () => {
  for (const parallel of [0, -1, 1.5, NaN, 257]) {
    await assertRefused(
      () => withModel(() => Promise.resolve(), {}, { parallel }),
      "usage",
      `parallel is ${parallel}; valid is a whole number from 1 to 256`,
    );
  }
});

Deno.test("the device and the number of threads are checked", async () => {
  for (const threads of [-1, 1.5, NaN, 1025]) {
    await assertRefused(
      () => withModel(() => Promise.resolve(), {}, { threads }),
      "usage",
      `threads is ${threads}; valid is a whole number from 0 (one per core) to 1024`,
    );
  }
  const choices: [LoadOptions, string][] = [
    [{ attention: "fast" as "auto" }, 'attention is "fast"; valid are auto, flash, tiled, naive'],
    [{ products: "f16" as "f32" }, 'products is "f16"; valid are auto, f32, bf16'],
    [{ numa: "on" as "off" }, 'numa is "on"; valid are auto, off or a number of nodes'],
    [{ numa: 0 }, "numa is 0; valid is a whole number from 1 to 64"],
    [{ numa: 1e6 }, "numa is 1000000; valid is a whole number from 1 to 64"],
    [{ numa: 1.5 }, "numa is 1.5; valid is a whole number from 1 to 64"],
  ];
  for (const [options, message] of choices) {
    await assertRefused(() => withModel(() => Promise.resolve(), {}, options), "usage", message);
  }
  const lacking: [LoadOptions, string][] = [
    [{ device: "cpu", attention: "flash" }, "has one kind of attention; a choice is for cuda"],
    [{ device: "reference", attention: "naive" }, "has one kind of attention"],
    [{ device: "reference", products: "bf16" }, "has one kind of products; a choice is for cpu"],
    [{ device: "reference", numa: 2 }, "has no NUMA nodes; --numa is for cpu"],
    [{ device: "reference", memory: 1e9 }, "has no bound of memory; --memory is for cpu"],
  ];
  for (const [options, message] of lacking) {
    const use = () => withModel(() => Promise.resolve(), {}, options);
    const error = await assertRejects(use, ForgeError, `${options.device} device ${message}`);
    assertEquals(error.code, "unsupported");
  }
  const threads = await withModel((model) => Promise.resolve(model.device.threads), {}, {
    device: "cpu",
    threads: 3,
  });
  assertEquals(threads, 3);
  await assertRefused(
    () => withModel(() => Promise.resolve(), {}, { device: "gpu" }),
    "usage",
    `unknown device "gpu"; valid are auto, cpu, cpu:VARIANT, cuda, cuda:N, metal or reference`,
  );
  const device = await assertRejects(
    () => withModel(() => Promise.resolve(), {}, { device: "cpu:quantum" }),
    ForgeError,
    "quantum",
  );
  assertEquals(device.code, "device");
});

Deno.test("a prompt that does not fit the context is rejected, not truncated", async () => {
  await withModel(async (model) => {
    const tokens = (count: number) => new Int32Array(count).fill(10);
    await assertRefused(
      () => model.complete(tokens(64)),
      "bad_input",
      "the prompt has 64 tokens; the context of 64 has room for 63 and an answer",
    );
    await assertRefused(
      () => model.complete("x".repeat(100), { raw: true }),
      "bad_input",
      "the prompt has 101 tokens; the context of 64 has room for 63 and an answer",
    );
    assertEquals((await model.complete(tokens(63))).completionTokens, 1);
    for (const ask of [() => model.logits(tokens(65)), () => model.score(tokens(65))]) {
      await assertRefused(ask, "bad_input", "the prompt has 65 tokens; the context holds 64");
    }
    assertEquals((await model.logits(tokens(64))).length, VOCABULARY);
    assertEquals((await model.score(tokens(64))).length, 63);
  }, { contextLength: 64 });
});

Deno.test("a prompt without tokens is rejected", async () => {
  await withModel(async (model) => {
    for (
      const ask of [() => model.complete(new Int32Array()), () => model.logits(new Int32Array())]
    ) {
      await assertRefused(ask, "bad_input", "the prompt is empty");
    }
    assertEquals((await model.logits("")).length, VOCABULARY);
  });
});

Deno.test("an out-of-range token id is rejected", async () => {
  await withModel(async (model) => {
    for (const id of [-1, VOCABULARY, 2 ** 31 - 1]) {
      const prompt = Int32Array.of(BOS, id);
      for (
        const ask of [
          () => model.complete(prompt),
          () => model.logits(prompt),
          () => model.score(prompt),
        ]
      ) {
        await assertRefused(
          ask,
          "bad_input",
          `token 1 of the prompt is ${id}; valid ids are 0 to ${VOCABULARY - 1}`,
        );
      }
    }
  });
});

Deno.test("tokens of the tokenizer that the model lacks are rejected", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  const tokenizer = JSON.parse(Deno.readTextFileSync(folder.at("tokenizer.json")));
  tokenizer.added_tokens.push({ id: VOCABULARY, content: "<image>", special: true });
  folder.write("tokenizer.json", tokenizer);
  await using model = await load(folder.path, { device: "reference" });
  assertEquals((await model.complete("a", { raw: true, maxTokens: 1 })).promptTokens, 2);
  await assertRefused(
    () => model.complete("a<image>", { raw: true }),
    "bad_input",
    `token 2 of the prompt is ${VOCABULARY}; valid ids are 0 to ${VOCABULARY - 1}`,
  );
});

Deno.test("out-of-range options are rejected before anything runs", async () => {
  await withModel(async (model) => {
    const bad: [GenerateOptions, string][] = [
      [{ maxTokens: -1 }, "maxTokens is -1; valid is a whole number from 0 to 9007199254740991"],
      [{ maxTokens: 1.5 }, "maxTokens is 1.5; valid is a whole number from 0 to 9007199254740991"],
      [{ logprobs: 21 }, "logprobs is 21; valid is a whole number from 0 to 20"],
      [{ temperature: -1 }, "temperature is -1; valid is a number from 0 to 100"],
      [{ topP: 2 }, "topP is 2; valid is a number from 0 to 1"],
      [{ seed: 0.5 }, "seed is 0.5; valid is a whole number from 0 to 9007199254740991"],
    ];
    for (const [options, message] of bad) {
      await assertRefused(() => model.complete("a", options), "usage", message);
    }
  });
});

Deno.test("log-probabilities come from the model's own distribution", async () => {
  await withModel(async (model) => {
    const prompt = Int32Array.of(BOS, 10, 20);
    const logits = await model.logits(prompt);
    const largest = Math.max(...logits);
    const total = Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - largest), 0));
    // Sampling options do not change them.
    const options = { maxTokens: 3, logprobs: 4, temperature: 3, topK: 50, seed: 3 } as const;
    const { logprobs = [], tokenIds } = await model.complete(prompt, options);
    assertEquals(logprobs.map(({ token }) => token), tokenIds);
    const [first] = logprobs;
    assert(first !== undefined);
    assertAlmostEquals(first.logprob, logits[first.token]! - largest - total, 1e-4);
    const ranked = [...logits.keys()].sort((a, b) => logits[b]! - logits[a]!);
    assertEquals(first.top.map(({ token }) => token), ranked.slice(0, 4));
    for (const { logprob, top } of logprobs) {
      assertEquals(top.length, 4);
      assert(top.every((other, i) => i === 0 || top[i - 1]!.logprob >= other.logprob));
      assert(top[0]!.logprob >= logprob && top[0]!.logprob <= 0);
    }
  });
});

Deno.test("log-probabilities are reported on request", async () => {
  await withModel(async (model) => {
    const options = { raw: true, maxTokens: 2, temperature: 0 } as const;
    assertEquals("logprobs" in (await model.complete("a", options)), false);
    const none = await model.complete("a", { ...options, logprobs: 0 });
    assertEquals(none.logprobs?.map(({ top }) => top), [[], []]);
    const most = await model.complete("a", { ...options, logprobs: 20 });
    assertEquals(most.logprobs?.map(({ top }) => top.length), [20, 20]);
  });
});

Deno.test("a single token is text, a name or a part of a character", async () => {
  using folder = new TempFolder();
  writeScriptedLlama(folder.path, ["Once", " upon", Uint8Array.of(0xc3)]);
  await using model = await load(folder.path, { device: "reference" });
  const options = { raw: true, temperature: 0, logprobs: 20 } as const;
  const { logprobs = [] } = await model.complete("", options);
  assertEquals(logprobs.map(({ text }) => text), ["Once", " upon", "\ufffd"]);
  const named = logprobs.flatMap(({ top }) => top).find(({ token }) => token === BOS);
  assertEquals(named?.text, "<s>");
});

Deno.test("a small vocabulary limits the number of alternatives", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, {
    config: { vocab_size: 5 },
    change: (tensors) =>
      tensors.map((tensor) => {
        if (!/embed_tokens|lm_head/.test(tensor.name)) return tensor;
        assert(tensor.data instanceof Uint8Array);
        return { ...tensor, shape: [5, 64], data: tensor.data.subarray(0, 5 * 64 * 4) };
      }),
  });
  await using model = await load(folder.path, { device: "reference" });
  const { logprobs } = await model.complete(Int32Array.of(2), { maxTokens: 1, logprobs: 20 });
  assertEquals(logprobs?.[0]?.top.length, 5);
});

Deno.test("penalties keep a model from repeating itself", async () => {
  await withModel(async (model) => {
    const ask = (options: GenerateOptions) =>
      model.complete("abc", { raw: true, temperature: 0, maxTokens: 60, ...options });
    const { tokenIds } = await ask({ presencePenalty: 100, repeatLastN: -1 });
    assertEquals(new Set(tokenIds).size, tokenIds.length);
    // The tokens of the prompt are penalised too.
    const prompt = model.tokenizer.encode("abc");
    assertEquals(tokenIds.filter((token) => prompt.includes(token)), []);
    const plain = (await ask({})).tokenIds;
    assert(new Set(plain).size < plain.length);
  });
});

Deno.test("a logit bias bans or forces a token", async () => {
  await withModel(async (model) => {
    const ask = (logitBias: Record<string, number>, temperature = 0) =>
      model.complete("abc", { raw: true, temperature, seed: 1, maxTokens: 20, logitBias });
    const [first] = (await ask({})).tokenIds;
    const banned = await ask({ [first!]: -Infinity }, 1.5);
    assertEquals(banned.tokenIds.includes(first!), false);
    assertEquals((await ask({ 50: 100 }, 1)).tokenIds, Array(20).fill(50));
    // A bias that bans every token is an error of the request.
    const all = Object.fromEntries(Array.from({ length: VOCABULARY }, (_, id) => [id, -Infinity]));
    await assertRefused(
      () => ask(all),
      "bad_input",
      "the mask and the logit bias leave no token to choose",
    );
  });
});

Deno.test("the chat template applies to a conversation, not to a raw text", async () => {
  using folder = new TempFolder();
  writeScriptedLlama(folder.path, [" Hi", "!"], {
    chatTemplate: "{{ bos_token }}{% for m in messages %}[{{ m.content }}]{% endfor %}",
  });
  await using model = await load(folder.path, { device: "reference" });
  assertEquals(model.hasChatTemplate, true);
  const greedy = { temperature: 0 } as const;
  const talk = await model.complete([{ role: "user", content: "a" }], greedy);
  // BOS and three characters. The tokenizer has no decoder that strips leading spaces.
  assertEquals([talk.promptTokens, talk.text], [4, " Hi!"]);
  assertEquals((await model.complete("a", greedy)).promptTokens, 4);
  const raw = await model.complete("a", { ...greedy, raw: true });
  assertEquals([raw.promptTokens, raw.text], [2, " Hi!"]);
});

Deno.test("a closed model rejects calls", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  const model = await load(folder.path, { device: "reference" });
  model.close();
  model.close();
  const error = await assertRejects(() => model.complete("a"), ForgeError, "closed");
  assertEquals(error.code, "device");
});

Deno.test("closing a model fails a generation in flight", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  const model = await load(folder.path, { device: "reference" });
  const pieces = model.generate("a", { temperature: 0 });
  await pieces.next();
  model.close();
  await assertRejects(() => pieces.next(), ForgeError, "closed");
  // The step in flight runs to its end.
  await model[Symbol.asyncDispose]();
});

Deno.test("a model reports its memory", async () => {
  await withModel(
    (model) => {
      const { weights, kvCache, activations } = model.memory;
      const tensors = [...model.checkpoint.tensors.values()];
      assertEquals(weights, tensors.reduce((sum, { bytes }) => sum + bytes, 0));
      // 2 layers × (keys + values) × 3 × 256 positions × 2 heads × 16 float32 numbers.
      assertEquals(kvCache, 2 * 2 * 3 * 256 * 2 * 16 * 4);
      assert(activations > 0);
      assertEquals(model.unusedTensors, []);
      return Promise.resolve();
    },
    {},
    { parallel: 3 },
  );
});

/**
 * Tests models that several devices divide: the same logits and tokens as on one device, but for
 * rounding, or an error that names the part that is not divided.
 */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { ForgeError, load, type LoadOptions, type Model } from "../../src/mod.ts";
import { Random } from "../support/random.ts";
import { sharedAvailable, sharedPath } from "../support/shared.ts";
import { writeHead } from "../support/eagle_head.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeEndlessLlama, writeRandomLlama } from "../support/tiny_llama.ts";
import type { JsonObject } from "../../src/formats/json.ts";
import { writeGenerated } from "./families/generated.ts";
import { assertClose, readJson } from "./reference_check.ts";

/** Families of `shared/models/tiny`, with the part that is not divided, if any. */
const FAMILIES: Readonly<Record<string, string | undefined>> = {
  cohere2: undefined,
  deepseek_v2: undefined,
  exaone4: undefined,
  gemma: undefined,
  gemma2: undefined,
  gemma3_text: undefined,
  gemma4_text: undefined,
  glm4: undefined,
  gpt_oss: "stored layout of experts",
  granite: undefined,
  llama: undefined,
  mistral: undefined,
  mixtral: undefined,
  olmo2: "norm over all heads",
  phi3: undefined,
  qwen2: undefined,
  qwen3: undefined,
  qwen3_5_text: "linear attention",
  qwen3_moe: undefined,
  seed_oss: undefined,
  smollm3: undefined,
  starcoder2: undefined,
};

const PROMPT = Int32Array.from({ length: 23 }, (_, i) => 3 + i * 7 % 50);

async function resultsOf(model: Model) {
  const { tokenIds } = await model.complete(PROMPT, { maxTokens: 8, temperature: 0 });
  return { logits: await model.logits(PROMPT), tokenIds };
}

async function assertDivides(
  path: string,
  options: LoadOptions,
  tolerance: number,
  counts: readonly number[] = [2, 4],
) {
  await using one = await load(path, options);
  const expected = await resultsOf(one);
  for (const tensorParallel of counts) {
    await using model = await load(path, { ...options, tensorParallel });
    const { logits, tokenIds } = await resultsOf(model);
    assertClose(logits, expected.logits, tolerance);
    assertEquals(tokenIds, expected.tokenIds);
    const [all, whole] = [model.memory.weights, one.memory.weights];
    assert(all < 1.5 * whole, `${tensorParallel} parts have ${all} bytes of ${whole}`);
  }
}

for (const [family, part] of Object.entries(FAMILIES)) {
  Deno.test({
    name: `tiny ${family} ${part === undefined ? "is divided" : `is not divided: ${part}`}`,
    ignore: !sharedAvailable("models", "tiny"),
    fn: async () => {
      const folder = sharedPath("models", "tiny", family);
      const options = { device: "reference", contextLength: 64 };
      if (part === undefined) return await assertDivides(folder, options, 1e-5);
      const error = await assertRejects(
        () => load(folder, { ...options, tensorParallel: 2 }),
        ForgeError,
      );
      assertEquals(error.code, "unsupported");
      assertStringIncludes(error.message, `whose ${part} forge does not divide among devices`);
    },
  });
}

for (const family of ["gemma2", "granite", "phi3", "mixtral", "qwen3", "smollm3"]) {
  Deno.test({
    name: `${family} with two heads of keys on eight devices`,
    ignore: !sharedAvailable("models", "tiny"),
    fn: async () => {
      const config = readJson<JsonObject>(sharedPath("models", "tiny", family, "config.json"));
      const heads = { num_attention_heads: 8, num_key_value_heads: 2, head_dim: 16 };
      using folder = writeGenerated(family, { ...config, ...heads });
      const options = { device: "reference", contextLength: 64 };
      await assertDivides(folder.at("model"), options, 1e-5, [8]);
    },
  });
}

for (const name of ["deepseek_v3", "gemma4_moe", "gemma4_wide"]) {
  Deno.test(`${name} with generated weights is divided`, async () => {
    using folder = writeGenerated(name);
    await assertDivides(folder.at("model"), { device: "reference", contextLength: 64 }, 1e-5, [2]);
  });
}

for (const family of ["llama", "mixtral", "qwen2"]) {
  Deno.test({
    name: `tiny ${family} (GGUF) is divided on a processor`,
    ignore: !sharedAvailable("models", "tiny"),
    fn: async () => {
      const file = sharedPath("models", "tiny", family, `${family}-f32.gguf`);
      await assertDivides(file, { device: "cpu", threads: 4, kvType: "F32" }, 1e-5);
    },
  });
}

const RANDOM = { hidden: 256, intermediate: 512, headDim: 64 };

Deno.test("quantised weights divide on a processor", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, RANDOM);
  const options = { device: "cpu", threads: 2, kvType: "F32" } as const;
  for (const quantize of ["Q8_0", "Q4_0"] as const) {
    await using one = await load(folder.path, { ...options, quantize });
    await using model = await load(folder.path, { ...options, quantize, tensorParallel: 2 });
    // Activations are rounded to 8 bits in blocks of both; sums round differently.
    assertClose(await model.logits(PROMPT), await one.logits(PROMPT), 0.05);
  }
});

Deno.test("random requests on several parts give the texts of one device", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, RANDOM);
  const random = new Random("divided requests");
  const requests = Array.from({ length: 16 }, (_, seed) => ({
    prompt: Int32Array.from({ length: random.int(1, 100) }, () => random.int(2, 96)),
    options: {
      seed,
      maxTokens: random.int(1, 20),
      temperature: random.pick([0, 0.8]),
      topK: random.pick([0, 20]),
      repeatPenalty: random.pick([1, 1.2]),
      regex: random.chance(0.3) ? "[a-z ]+" : undefined,
      logprobs: 2,
    },
  }));
  const run = async (options: LoadOptions) => {
    await using model = await load(folder.path, { ...options, kvType: "F32", parallel: 5 });
    return await Promise.all(
      requests.map(async ({ prompt, options }) => (await model.complete(prompt, options)).tokenIds),
    );
  };
  const expected = await run({ device: "reference" });
  assertEquals(await run({ device: "reference", tensorParallel: 2 }), expected);
  assertEquals(
    await run({ device: "cpu", threads: 4, dataParallel: 2, tensorParallel: 2 }),
    expected,
  );
});

Deno.test("prompts in files, draft tokens and a stop work on parts", async () => {
  using folder = new TempFolder();
  writeEndlessLlama(folder.at("model"), RANDOM);
  const shape = { kvType: "F32", contextLength: 8192, parallel: 2 } as const;
  const options = { device: "cpu", threads: 2, tensorParallel: 2, ...shape };
  const prompt = Int32Array.from({ length: 150 }, (_, i) => 2 + i % 90);
  const request = { maxTokens: 12, temperature: 0 };
  const whole = await load(folder.at("model"), { device: "cpu", ...shape });
  const { tokenIds } = await whole.complete(prompt, request);
  await whole.savePrompt(folder.at("whole"), prompt);
  await whole[Symbol.asyncDispose]();
  {
    await using model = await load(folder.at("model"), {
      ...options,
      draftModel: folder.at("model"),
    });
    assertEquals((await model.complete(prompt, request)).tokenIds, tokenIds);
    await model.savePrompt(folder.at("prompt"), prompt);
  }
  await using model = await load(folder.at("model"), options);
  await assertRejects(() => model.loadPrompt(folder.at("whole")), ForgeError);
  await model.loadPrompt(folder.at("prompt"));
  const { tokenIds: again, cachedPromptTokens } = await model.complete(prompt, request);
  assertEquals(again, tokenIds);
  assert(cachedPromptTokens >= 128, `${cachedPromptTokens} cached tokens`);
  const controller = new AbortController();
  const endless = model.complete(prompt, { maxTokens: 5000, signal: controller.signal });
  setTimeout(() => controller.abort(), 50);
  assertEquals((await endless).finishReason, "cancelled");
  assertEquals((await model.complete(prompt, request)).tokenIds, tokenIds);
});

Deno.test("options that contradict a division are refused", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  for (
    const [options, message] of [
      [{ tensorParallel: 0 }, "tensorParallel is 0"],
      [{ tensorParallel: 65 }, "tensorParallel is 65"],
      [
        { tensorParallel: 3 },
        "3 devices cannot divide attention with 4 heads, 2 of keys and values",
      ],
      [{ tensorParallel: 2, threads: 1 }, "1 threads cannot be divided among 2 devices"],
      [{ tensorParallel: 64, dataParallel: 2 }, "2 replicas of 64 parts take 128 devices"],
    ] as const
  ) {
    const opened = load(folder.path, { device: "cpu", threads: 8, ...options });
    await assertRejects(() => opened, ForgeError, message);
  }
  for (
    const [options, message] of [
      [{ devices: ["cpu", "cpu", "cpu"] }, "1 replica of 2 parts need a multiple of 2 devices"],
      [{ devices: ["cpu", "cpu"], dataParallel: 2 }, "2 replicas of 2 parts need 4 devices"],
    ] as const
  ) {
    const opened = load(folder.path, { threads: 8, tensorParallel: 2, ...options });
    await assertRejects(() => opened, ForgeError, message);
  }
});

Deno.test("devices that divide a model refuse a head that drafts, from a folder of its own", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.at("model"));
  writeHead(folder.at("head"));
  for (const division of [{ tensorParallel: 2 }, { pipelineParallel: 2 }]) {
    const options = { device: "cpu", draftModel: folder.at("head"), ...division } as const;
    const opened = load(folder.at("model"), options);
    await assertRejects(() => opened, ForgeError, "heads that draft tokens are not divided");
  }
});

Deno.test("devices that divide a model do not load its layer for multi-token prediction", async () => {
  using folder = new TempFolder();
  writeEndlessLlama(folder.path, { predictor: true });
  for (const division of [{ tensorParallel: 2 }, { pipelineParallel: 2 }]) {
    const bytes = [];
    for (const speculate of ["off", "auto", "on"] as const) {
      await using model = await load(folder.path, { device: "cpu", speculate, ...division });
      bytes.push(model.memory.weights);
    }
    assertEquals(bytes, Array(3).fill(bytes[0]));
  }
});

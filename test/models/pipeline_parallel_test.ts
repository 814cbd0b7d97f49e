/**
 * Tests models whose layers several stages divide: the logits and tokens of one device to the bit,
 * or an error that names the part that is not divided.
 */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { planModel } from "../../src/engine/load/plan_model.ts";
import { openCheckpoint } from "../../src/formats/checkpoint.ts";
import { ForgeError, load, type LoadOptions, type Model } from "../../src/mod.ts";
import { Random } from "../support/random.ts";
import { sharedAvailable, sharedPath } from "../support/shared.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeEndlessLlama, writeRandomLlama } from "../support/tiny_llama.ts";
import { generated, writeGenerated } from "./families/generated.ts";
import { assertClose } from "./reference_check.ts";

/** Families of `shared/models/tiny`, next to the generated models. */
const TINY = ["cohere2", "gemma3_text", "gemma4_text", "gpt_oss", "phi3", "qwen3_5_text"];

/** Models that stages do not divide, with the part. */
const REFUSED: Readonly<Record<string, string>> = {
  gemma4_text: "layers with the keys and values of others",
  gemma4_wide: "layers with the keys and values of others",
};

const PROMPT = Int32Array.from({ length: 23 }, (_, i) => 3 + i * 7 % 50);

async function resultsOf(model: Model) {
  const { tokenIds } = await model.complete(PROMPT, { maxTokens: 8, temperature: 0 });
  return { logits: await model.logits(PROMPT), tokenIds };
}

/** Compares a model on as many stages as it has layers with one device. */
async function assertDivides(name: string, path: string, options: LoadOptions): Promise<void> {
  const part = REFUSED[name];
  if (part !== undefined) {
    const divided = () => load(path, { ...options, pipelineParallel: 2 });
    const error = await assertRejects(divided, ForgeError);
    assertEquals(error.code, "unsupported");
    assertStringIncludes(error.message, `whose ${part} forge does not divide among stages`);
    return;
  }
  await using one = await load(path, options);
  const expected = await resultsOf(one);
  await using model = await load(path, { ...options, pipelineParallel: await layersOf(path) });
  assertEquals(await resultsOf(model), expected);
  assertEquals(model.unusedTensors, one.unusedTensors);
}

/** Returns the number of layers, which an error about too many stages names. */
async function layersOf(path: string): Promise<number> {
  const options = { device: "reference", pipelineParallel: 64 };
  const error = await assertRejects(() => load(path, options), ForgeError);
  const [, nLayers] = /divide a model of (\d+) layers; valid is at most \1/.exec(error.message) ??
    [];
  return Number(nLayers);
}

for (const family of TINY) {
  Deno.test({
    name: `tiny ${family} on stages`,
    ignore: !sharedAvailable("models", "tiny"),
    fn: async () => {
      const folder = sharedPath("models", "tiny", family);
      await assertDivides(family, folder, { device: "reference", contextLength: 64 });
    },
  });
}

for (const name of Object.keys(generated.models)) {
  Deno.test(`${name} with generated weights on stages`, async () => {
    using folder = writeGenerated(name);
    await assertDivides(name, folder.at("model"), { device: "reference", contextLength: 64 });
  });
}

Deno.test({
  name: "stages of several ranks, on a processor",
  ignore: !sharedAvailable("models", "tiny"),
  fn: async () => {
    for (const family of ["llama", "mixtral"]) {
      const file = sharedPath("models", "tiny", family, `${family}-f32.gguf`);
      const options = { device: "cpu", threads: 4, kvType: "F32", contextLength: 64 } as const;
      await using one = await load(file, options);
      const expected = await resultsOf(one);
      {
        await using model = await load(file, { ...options, pipelineParallel: 4 });
        assertEquals(await resultsOf(model), expected);
      }
      await using model = await load(file, { ...options, pipelineParallel: 2, tensorParallel: 2 });
      const { logits, tokenIds } = await resultsOf(model);
      assertClose(logits, expected.logits, 1e-5);
      assertEquals(tokenIds, expected.tokenIds);
      const { weights } = model.memory;
      assert(weights < 2 * one.memory.weights, `${weights} bytes on four devices`);
    }
  },
});

const RANDOM = { hidden: 256, intermediate: 512, headDim: 64 };

Deno.test("layers are divided by the free memory of the stages", () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, { layers: 9 });
  const checkpoint = openCheckpoint(folder.path);
  const whole = planModel(checkpoint).weightBytes;
  const bytesOn = (...free: readonly number[]) => {
    const memory = free.map((free) => ({ total: free, free }));
    return planModel(checkpoint, false, { ranks: 1, stages: free.length }, memory).deviceBytes;
  };
  const [first = 0, second = 0] = bytesOn(2e9, 1e9);
  assert(Math.abs(first - 2 * second) < whole / 9, `${first} and ${second} bytes`);
  const equal = bytesOn(1e9, 1e9, 1e9);
  assert(Math.max(...equal) - Math.min(...equal) < whole / 6, `${equal} bytes`);
  // A device that does not report its memory counts as the others.
  assertEquals(bytesOn(0, 5e9, 0), equal);
});

Deno.test("random requests on stages give the texts of one device", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, RANDOM);
  const random = new Random("requests on stages");
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
    return await Promise.all(requests.map(({ prompt, options }) => model.complete(prompt, options)))
      .then((answers) => answers.map(({ tokenIds, logprobs }) => ({ tokenIds, logprobs })));
  };
  const expected = await run({ device: "cpu", threads: 4 });
  assertEquals(await run({ device: "cpu", threads: 4, pipelineParallel: 2 }), expected);
  assertEquals(
    await run({ device: "cpu", threads: 4, dataParallel: 2, pipelineParallel: 2 }),
    expected,
  );
});

Deno.test("prompts in files, draft tokens, embeddings and a stop work on stages", async () => {
  using folder = new TempFolder();
  writeEndlessLlama(folder.at("model"), RANDOM);
  const shape = { kvType: "F32", contextLength: 8192, parallel: 2 } as const;
  const options = { device: "cpu", threads: 2, pipelineParallel: 2, ...shape };
  const prompt = Int32Array.from({ length: 150 }, (_, i) => 2 + i % 90);
  const request = { maxTokens: 12, temperature: 0 };
  const whole = await load(folder.at("model"), { device: "cpu", ...shape });
  const { tokenIds } = await whole.complete(prompt, request);
  const embeddings = await whole.embed([prompt]);
  await whole.savePrompt(folder.at("whole"), prompt);
  await whole[Symbol.asyncDispose]();
  {
    const draftModel = folder.at("model");
    await using model = await load(folder.at("model"), { ...options, draftModel });
    assertEquals((await model.complete(prompt, request)).tokenIds, tokenIds);
  }
  await using model = await load(folder.at("model"), options);
  assertEquals(await model.embed([prompt]), embeddings);
  // Each cache is whole on its stage, so that a file of one device serves.
  await model.loadPrompt(folder.at("whole"));
  const { tokenIds: again, cachedPromptTokens } = await model.complete(prompt, request);
  assertEquals(again, tokenIds);
  assert(cachedPromptTokens >= 128, `${cachedPromptTokens} cached tokens`);
  const controller = new AbortController();
  const endless = model.complete(prompt, { maxTokens: 5000, signal: controller.signal });
  setTimeout(() => controller.abort(), 50);
  assertEquals((await endless).finishReason, "cancelled");
  assertEquals((await model.complete(prompt, request)).tokenIds, tokenIds);
});

Deno.test("options that contradict a division into stages are refused", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  for (
    const [options, message] of [
      [{ pipelineParallel: 0 }, "pipelineParallel is 0"],
      [{ pipelineParallel: 65 }, "pipelineParallel is 65"],
      [{ pipelineParallel: 3 }, "3 stages cannot divide a model of 2 layers; valid is at most 2"],
      [{ pipelineParallel: 16, tensorParallel: 8 }, "1 replica of 128 parts take 128 devices"],
      [{ pipelineParallel: 2, threads: 1 }, "1 threads cannot be divided among 2 devices"],
    ] as const
  ) {
    const opened = load(folder.path, { device: "cpu", threads: 8, ...options });
    await assertRejects(() => opened, ForgeError, message);
  }
});

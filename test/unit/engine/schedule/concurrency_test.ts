/** Tests several generations on one model at the same time. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { ForgeError, type GenerateOptions, load, type Model } from "../../../../src/mod.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { writeRandomLlama } from "../../../support/tiny_llama.ts";

const REQUESTS: readonly { prompt: string; options: GenerateOptions }[] = [
  { prompt: "one", options: { temperature: 0, maxTokens: 24 } },
  { prompt: "another prompt, and a longer one", options: { seed: 7, maxTokens: 16, topK: 0 } },
  { prompt: "one", options: { seed: 8, temperature: 1.5, repeatPenalty: 1.2, maxTokens: 20 } },
  { prompt: "x", options: { seed: 7, maxTokens: 24, minP: 0, topP: 0.7 } },
];

async function withModel(device: string, fn: (model: Model) => Promise<void>): Promise<void> {
  using folder = new TempFolder();
  writeRandomLlama(folder.path);
  await using model = await load(folder.path, { device });
  await fn(model);
}

for (const device of ["reference", "cpu"]) {
  Deno.test(`concurrent generations give the same tokens as single ones on ${device}`, async () => {
    await withModel(device, async (model) => {
      const alone: (readonly number[])[] = [];
      for (const { prompt, options } of REQUESTS) {
        alone.push((await model.complete(prompt, options)).tokenIds);
      }
      assert(new Set(alone.map(String)).size === REQUESTS.length, "the answers differ");

      const turns: number[] = [];
      const together = await Promise.all(REQUESTS.map(async ({ prompt, options }, index) => {
        const tokens: number[] = [];
        for await (const { token } of model.generate(prompt, options)) {
          if (token === undefined) continue;
          tokens.push(token);
          turns.push(index);
        }
        return tokens;
      }));
      assertEquals(together, alone);
      // All share each step: none has two tokens before another has one.
      assertEquals(turns.slice(0, REQUESTS.length).sort(), REQUESTS.map((_, index) => index));
    });
  });
}

Deno.test("logits and scores can be computed during a generation", async () => {
  await withModel("cpu", async (model) => {
    const prompt = model.tokenizer.encode("a prompt");
    const [logits, scores] = [await model.logits(prompt), await model.score(prompt)];
    const alone = (await model.complete("one", { temperature: 0, maxTokens: 8 })).tokenIds;
    const tokens: number[] = [];
    for await (const { token } of model.generate("one", { temperature: 0, maxTokens: 8 })) {
      if (token !== undefined) tokens.push(token);
      assertEquals(await model.logits(prompt), logits);
      assertEquals(await model.score(prompt), scores);
    }
    assertEquals(tokens, alone);
  });
});

Deno.test("stopping one generation does not affect the others", async () => {
  await withModel("cpu", async (model) => {
    const options: GenerateOptions = { temperature: 0, maxTokens: 24 };
    const alone = (await model.complete("one", options)).tokenIds;
    const controller = new AbortController();
    let seen = 0;
    const [kept, stopped] = await Promise.all([
      (async () => {
        const tokens: number[] = [];
        for await (const { token } of model.generate("one", options)) {
          if (token !== undefined) tokens.push(token);
          if (++seen === 5) controller.abort();
        }
        return tokens;
      })(),
      model.complete("two", { ...options, signal: controller.signal }),
    ]);
    assertEquals(kept, alone);
    assertEquals(stopped.finishReason, "cancelled");
    assert(stopped.completionTokens <= 6, `${stopped.completionTokens} tokens`);
  });
});

Deno.test("the same seed draws the same tokens, another seed different ones", async () => {
  await withModel("cpu", async (model) => {
    const options: GenerateOptions = { temperature: 1, maxTokens: 24 };
    const first = await model.complete("one", { ...options, seed: 1 });
    assertEquals((await model.complete("one", { ...options, seed: 1 })).tokenIds, first.tokenIds);
    const other = await model.complete("one", { ...options, seed: 2 });
    assert(String(other.tokenIds) !== String(first.tokenIds));
    // A drawn seed is reported, so that the answer can be reproduced.
    const drawn = await model.complete("one", options);
    const again = await model.complete("one", { ...options, seed: drawn.seed });
    assertEquals(again.tokenIds, drawn.tokenIds);
  });
});

Deno.test("completions of one prompt differ, are repeatable and compute the prompt once", async () => {
  await withModel("cpu", async (model) => {
    const prompt = Int32Array.from({ length: 100 }, (_, i) => 2 + (7 * i) % 90);
    const options: GenerateOptions = { temperature: 1, topK: 0, maxTokens: 12, seed: 5 };
    const many = await model.completeMany(prompt, 6, options);
    assertEquals(new Set(many.map(({ tokenIds }) => String(tokenIds))).size, 6);
    // The first completion computes the prompt. The others copy its last page and compute its last
    // token.
    const cached = many.map(({ cachedPromptTokens }) => cachedPromptTokens);
    assertEquals(cached, [0, 99, 99, 99, 99, 99]);
    const tokens = many.map(({ tokenIds }) => tokenIds);
    const fewer = await model.completeMany(prompt, 3, options);
    assertEquals(fewer.map(({ tokenIds }) => tokenIds), tokens.slice(0, 3));
    // The first one equals a single completion.
    assertEquals((await model.complete(prompt, options)).tokenIds, tokens[0]);
    for (const n of [0, 1.5, 129]) {
      const error = await assertRejects(() => model.completeMany(prompt, n), ForgeError);
      assertEquals(error.message, `n is ${n}; valid is a whole number from 1 to 128`);
    }
    const stopped = await model.completeMany(prompt, 2, { signal: AbortSignal.abort() });
    assertEquals(stopped.map(({ finishReason }) => finishReason), ["cancelled", "cancelled"]);
  });
});

Deno.test("a turn of a conversation computes only its new tokens", async () => {
  await withModel("cpu", async (model) => {
    let history = Array.from({ length: 30 }, (_, i) => 2 + i);
    let known = 0;
    for (let turn = 0; turn < 4; turn++) {
      const options: GenerateOptions = { seed: turn, maxTokens: 20 };
      const generated = await model.complete(Int32Array.from(history), options);
      assertEquals([generated.promptTokens, generated.cachedPromptTokens], [history.length, known]);
      await using fresh = await load(model.checkpoint.path, { device: "cpu" });
      const alone = await fresh.complete(Int32Array.from(history), options);
      assertEquals(generated.tokenIds, alone.tokenIds);
      history = [...history, ...generated.tokenIds];
      // The last token was sampled, but is computed only if an end token followed.
      known = history.length - (generated.finishReason === "length" ? 1 : 0);
      history.push(90, 91, 92, 93, 94);
    }
  });
});

Deno.test("a batch gives the same answers as its requests one by one", async () => {
  await withModel("cpu", async (model) => {
    const requests = Array.from({ length: 80 }, (_, id) => ({
      id,
      prompt: id % 7 === 3 ? new Int32Array(0) : `prompt ${id % 5}`,
      raw: true,
      seed: id,
      maxTokens: 1 + id % 20,
      ...(id % 11 === 5 ? { temperature: -1 } : {}),
    }));
    const seen: number[] = [];
    for await (const result of model.batch(requests, { ordered: true })) {
      seen.push(result.index);
      const { prompt, id, ...options } = requests[result.index]!;
      assertEquals(result.id, id);
      const alone = await model.complete(prompt, options).catch((error) => error as ForgeError);
      if (alone instanceof ForgeError) assertEquals(result.error?.message, alone.message);
      else assertEquals(result.completion?.tokenIds, alone.tokenIds);
    }
    assertEquals(seen, requests.map((_, index) => index));
  });
});

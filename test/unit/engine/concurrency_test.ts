/** Several generations on one model at a time. */
import { assert, assertEquals } from "@std/assert";
import { type GenerateOptions, load, type Model } from "../../../src/mod.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { writeRandomLlama } from "../../support/tiny_llama.ts";

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
  Deno.test(`generations give the same tokens together as alone on ${device}`, async () => {
    await withModel(device, async (model) => {
      const alone: (readonly number[])[] = [];
      for (const { prompt, options } of REQUESTS) {
        alone.push((await model.complete(prompt, options)).token_ids);
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
      // They take turns: no generation has two tokens before another has one.
      assertEquals(turns.slice(0, REQUESTS.length).sort(), REQUESTS.map((_, index) => index));
    });
  });
}

Deno.test("logits and scores can be asked for in the middle of a generation", async () => {
  await withModel("cpu", async (model) => {
    const prompt = model.tokenizer.encode("a prompt");
    const [logits, scores] = [await model.logits(prompt), await model.score(prompt)];
    const alone = (await model.complete("one", { temperature: 0, maxTokens: 8 })).token_ids;
    const tokens: number[] = [];
    for await (const { token } of model.generate("one", { temperature: 0, maxTokens: 8 })) {
      if (token !== undefined) tokens.push(token);
      assertEquals(await model.logits(prompt), logits);
      assertEquals(await model.score(prompt), scores);
    }
    assertEquals(tokens, alone);
  });
});

Deno.test("stopping one generation leaves the others alone", async () => {
  await withModel("cpu", async (model) => {
    const options: GenerateOptions = { temperature: 0, maxTokens: 24 };
    const alone = (await model.complete("one", options)).token_ids;
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
    assertEquals(stopped.finish_reason, "cancelled");
    assert(stopped.completion_tokens <= 6, `${stopped.completion_tokens} tokens`);
  });
});

Deno.test("the same seed draws the same tokens, and another draws others", async () => {
  await withModel("cpu", async (model) => {
    const options: GenerateOptions = { temperature: 1, maxTokens: 24 };
    const first = await model.complete("one", { ...options, seed: 1 });
    assertEquals((await model.complete("one", { ...options, seed: 1 })).token_ids, first.token_ids);
    const other = await model.complete("one", { ...options, seed: 2 });
    assert(String(other.token_ids) !== String(first.token_ids));
    // The seed that was drawn is told, so that it can be given.
    const drawn = await model.complete("one", options);
    const again = await model.complete("one", { ...options, seed: drawn.seed });
    assertEquals(again.token_ids, drawn.token_ids);
  });
});

/** Tests stopping a generation by a signal or by leaving the loop, and the state after it. */
import { assert, assertEquals } from "@std/assert";
import { type GenerateOptions, load, type Model } from "../../../../src/mod.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { writeRandomLlama, writeScriptedLlama } from "../../../support/tiny_llama.ts";

const STORY = ["Once", " upon", " a", " time", "."];
const GREEDY: GenerateOptions = { raw: true, temperature: 0 };

async function withStory(fn: (model: Model) => Promise<void>): Promise<void> {
  using folder = new TempFolder();
  writeScriptedLlama(folder.path, STORY);
  await using model = await load(folder.path, { device: "reference" });
  await fn(model);
}

Deno.test("a generation stopped before its start has no text", async () => {
  await withStory(async (model) => {
    const answer = await model.complete("ab", { ...GREEDY, signal: AbortSignal.abort() });
    assertEquals([answer.text, answer.finishReason], ["", "cancelled"]);
    assertEquals([answer.promptTokens, answer.completionTokens], [3, 0]);
    assertEquals(answer.timings.prefillTokensPerSecond, 0);
  });
});

Deno.test("a stopped generation keeps its text", async () => {
  await withStory(async (model) => {
    const controller = new AbortController();
    const texts: string[] = [];
    const options = { ...GREEDY, signal: controller.signal, stop: " a b" };
    for await (const { text, token, end } of model.generate("", options)) {
      texts.push(text);
      if (token !== undefined && texts.length === 3) controller.abort();
      if (end !== undefined) {
        assertEquals([end.finishReason, end.completionTokens], ["cancelled", 3]);
      }
    }
    assertEquals(texts, ["Once", " upon", "", " a"]);
  });
});

Deno.test("a signal after the end changes nothing", async () => {
  await withStory(async (model) => {
    const controller = new AbortController();
    const answer = await model.complete("", { ...GREEDY, signal: controller.signal });
    controller.abort();
    assertEquals(answer.finishReason, "stop");
    assertEquals((await model.complete("", GREEDY)).text, answer.text);
  });
});

/**
 * Context length whose cache one sequence fills, so that the next sequence fails if a page leaks.
 */
const CONTEXT = 1100;

async function withLongModel(fn: (model: Model, prompt: Int32Array) => Promise<void>) {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, { contextLength: CONTEXT });
  await using model = await load(folder.path, { device: "cpu", parallel: 1 });
  await fn(model, Int32Array.from({ length: CONTEXT - 5 }, (_, i) => 2 + i % 90));
}

Deno.test("a generation can be stopped between the chunks of its prompt", async () => {
  await withLongModel(async (model, prompt) => {
    const controller = new AbortController();
    const seen: number[] = [];
    const answer = await model.complete(prompt, {
      signal: controller.signal,
      onPrefill: (done, total) => {
        assertEquals(total, prompt.length);
        seen.push(done);
        controller.abort();
      },
    });
    assertEquals(seen, [512]);
    assertEquals([answer.finishReason, answer.completionTokens], ["cancelled", 0]);
  });
});

Deno.test("a generation can be stopped within a chunk of its prompt", async () => {
  await withLongModel(async (model, prompt) => {
    const controller = new AbortController();
    const telling = model.complete(prompt, { signal: controller.signal });
    // Long enough for the first chunk to start; it cannot end before this function returns to the
    // event loop.
    for (let turn = 0; turn < 100; turn++) await Promise.resolve();
    controller.abort();
    assertEquals((await telling).finishReason, "cancelled");
    // The device is idle again, and the stop does not affect the next run.
    const next = await model.complete(prompt, { temperature: 0, maxTokens: 1 });
    assertEquals(next.completionTokens, 1);
  });
});

Deno.test("a generation frees its pages however it ends", async () => {
  await withLongModel(async (model, prompt) => {
    const options: GenerateOptions = { temperature: 0, maxTokens: 5 };
    const expected = (await model.complete(prompt, options)).tokenIds;
    const endings: (() => Promise<unknown>)[] = [
      () => model.complete(prompt, { ...options, signal: AbortSignal.abort() }),
      async () => {
        for await (const piece of model.generate(prompt, options)) {
          assert(piece.token !== undefined);
          break;
        }
      },
      async () => {
        const fault = new Error("the reader's own");
        try {
          for await (const _ of model.generate(prompt, options)) throw fault;
        } catch (error) {
          assertEquals(error, fault);
        }
      },
      async () => {
        // A reversed prompt: a cached one has no prefill to observe.
        const failing = model.complete(prompt.toReversed(), {
          ...options,
          onPrefill: () => {
            throw new Error("the observer's own");
          },
        });
        assertEquals((await failing.catch((error) => error)).message, "the observer's own");
      },
      async () => {
        const pieces = model.generate(prompt, options);
        await pieces.next();
        await pieces.return(undefined);
      },
      () => model.generate(prompt, options).return(undefined),
      () => model.logits(prompt),
      () => model.score(prompt),
      () => model.score(prompt, AbortSignal.abort()).catch(() => {}),
    ];
    for (const end of endings) {
      await end();
      assertEquals((await model.complete(prompt, options)).tokenIds, expected);
    }
  });
});

/** Tests the pieces and the end of a generation, on models that generate a given text. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import {
  type Completion,
  ForgeError,
  type GenerateOptions,
  load,
  type Piece,
} from "../../../../src/mod.ts";
import type { Tokenizer } from "../../../../src/tokenizer/tokenizer.ts";
import { collectMany, textOf } from "../../../../src/engine/generation/completion.ts";
import { noTokenizer } from "../../../support/fake_runner.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { EOS, type TinyLlamaOptions, writeScriptedLlama } from "../../../support/tiny_llama.ts";

type Script = readonly (string | Uint8Array)[];

const GREEDY: GenerateOptions = { raw: true, temperature: 0 };

async function generate(
  script: Script,
  options: GenerateOptions = {},
  model: TinyLlamaOptions & { readonly prompt?: string | Int32Array } = {},
): Promise<Completion> {
  using folder = new TempFolder();
  writeScriptedLlama(folder.path, script, model);
  await using loaded = await load(folder.path, { device: "reference" });
  return await loaded.complete(model.prompt ?? "", { ...GREEDY, ...options });
}

/** Text of each piece; "|" precedes the last one. */
async function pieces(script: Script, options: GenerateOptions = {}): Promise<string[]> {
  using folder = new TempFolder();
  writeScriptedLlama(folder.path, script);
  await using model = await load(folder.path, { device: "reference" });
  const texts: string[] = [];
  for await (const { text, end } of model.generate("", { ...GREEDY, ...options })) {
    texts.push(end === undefined ? text : `|${text}`);
  }
  return texts;
}

const STORY = ["Once", " upon", " a", " time", "."];

Deno.test("a generation ends at an end token, which is not part of it", async () => {
  const answer = await generate(STORY);
  assertEquals(answer.text, "Once upon a time.");
  assertEquals([answer.finishReason, answer.completionTokens], ["stop", 5]);
  assertEquals(answer.tokenIds.length, 5);
  assertEquals(answer.tokenIds.includes(EOS), false);
});

Deno.test("the times of a generation are parts of its whole time", async () => {
  using folder = new TempFolder();
  writeScriptedLlama(folder.path, STORY);
  await using model = await load(folder.path, { device: "reference" });
  for (const n of [1, 3]) {
    const start = performance.now();
    const answers = await model.completeMany("", n, GREEDY);
    const took = performance.now() - start;
    for (const { timings, promptTokens, cachedPromptTokens, completionTokens } of answers) {
      const { queueMs, prefillMs, decodeMs } = timings;
      const counts = [
        timings.prefillTokensPerSecond * prefillMs / 1000,
        timings.decodeTokensPerSecond * decodeMs / 1000,
      ];
      const read = promptTokens - cachedPromptTokens;
      assertEquals(counts.map(Math.round), [read, completionTokens - 1]);
      assert(queueMs >= 0 && prefillMs > 0 && decodeMs > 0, `${[queueMs, prefillMs, decodeMs]}`);
      assert(queueMs + prefillMs + decodeMs <= took, `${[queueMs, prefillMs, decodeMs, took]}`);
    }
  }
});

Deno.test("a model may have several end tokens", async () => {
  const pieces = ["<|done|>"];
  // The vocabulary is BOS, EOS, 95 characters, then the pieces.
  const eos_token_id = 97;
  for (const model of [{ generationConfig: { eos_token_id } }, { config: { eos_token_id } }]) {
    const answer = await generate(["Once", " upon", "<|done|>", " a"], {}, { ...model, pieces });
    assertEquals([answer.text, answer.finishReason], ["Once upon", "stop"]);
  }
  const several = { generationConfig: { eos_token_id: [5, 97] }, pieces };
  assertEquals((await generate(["Once", "<|done|>"], {}, several)).text, "Once");
  await assertRejects(
    () => generate(["Once"], {}, { config: { eos_token_id: ["</s>"] } }),
    ForgeError,
    'eos_token_id is "[\\"</s>\\"]"; expected a token id or a list of them',
  );
});

Deno.test("a generation ends after maxTokens tokens", async () => {
  for (
    const [maxTokens, text] of [[1, "Once"], [3, "Once upon a"], [5, "Once upon a time."]] as const
  ) {
    const answer = await generate(STORY, { maxTokens });
    assertEquals([answer.text, answer.finishReason], [text, "length"]);
    assertEquals(answer.completionTokens, maxTokens);
  }
  assertEquals((await generate(STORY, { maxTokens: 6 })).finishReason, "stop");
});

Deno.test("maxTokens may be 0", async () => {
  const answer = await generate(STORY, { maxTokens: 0, logprobs: 1 });
  assertEquals([answer.text, answer.tokenIds, answer.finishReason], ["", [], "length"]);
  assertEquals(answer.logprobs, []);
  assertEquals(answer.timings.prefillTokensPerSecond, 0);
});

Deno.test("a generation ends when the context is full", async () => {
  const model = { contextLength: 6 };
  // BOS and three characters leave room for two tokens.
  const answer = await generate(STORY, {}, { ...model, prompt: "abc" });
  assertEquals([answer.text, answer.finishReason, answer.promptTokens], ["Once upon", "length", 4]);
  const one = await generate(STORY, { maxTokens: 100 }, { ...model, prompt: "abcd" });
  assertEquals([one.text, one.finishReason, one.promptTokens], ["Once", "length", 5]);
});

Deno.test("a stop string ends a generation and is not part of it", async () => {
  const answer = await generate(STORY, { stop: " a t" });
  assertEquals([answer.text, answer.finishReason], ["Once upon", "stop"]);
  // The tokens include those of the stop string.
  assertEquals(answer.completionTokens, 4);
  assertEquals((await generate(STORY, { stop: ["never", "pon"] })).text, "Once u");
  assertEquals((await generate(STORY, { stop: [] })).finishReason, "stop");
});

Deno.test("a stop string completed by the last token is found", async () => {
  const answer = await generate(STORY, { stop: ".", maxTokens: 5 });
  assertEquals([answer.text, answer.finishReason], ["Once upon a time", "stop"]);
});

Deno.test("text is held back only while it may become a stop string", async () => {
  const stop = [" upon the"];
  assertEquals(await pieces(STORY, { stop }), ["Once", "", " upon a", " time", ".", "|"]);
  assertEquals(await pieces(STORY, { stop: ["time!"] }), [
    "Once",
    " upon",
    " a",
    " ",
    "time.",
    "|",
  ]);
});

Deno.test("text held back at the end of a generation is yielded", async () => {
  assertEquals(await pieces(STORY, { stop: ". The end" }), [
    "Once",
    " upon",
    " a",
    " time",
    "",
    "|.",
  ]);
});

/** Bytes of a character, one per token. */
function bytesOf(character: string): Uint8Array[] {
  return Array.from(new TextEncoder().encode(character), (byte) => Uint8Array.of(byte));
}

Deno.test("a character of several tokens is yielded whole", async () => {
  assertEquals(await pieces(["a ", ...bytesOf("é"), "!"]), ["a ", "", "é", "!", "|"]);
  assertEquals(await pieces([...bytesOf("🦜")]), ["", "", "", "🦜", "|"]);
});

Deno.test("an incomplete character becomes U+FFFD", async () => {
  assertEquals(await pieces(["a ", ...bytesOf("🦜").slice(0, 2)]), ["a ", "", "", "|\ufffd"]);
  const cut = await generate(bytesOf("é"), { maxTokens: 1 });
  assertEquals([cut.text, cut.finishReason], ["\ufffd", "length"]);
});

Deno.test("a stop string matches the U+FFFD of an incomplete character", async () => {
  const answer = await generate(bytesOf("é"), { maxTokens: 1, stop: "\ufffd" });
  assertEquals([answer.text, answer.finishReason], ["", "stop"]);
});

Deno.test("every piece except the last has a token", async () => {
  using folder = new TempFolder();
  const { idOf } = writeScriptedLlama(folder.path, STORY);
  await using model = await load(folder.path, { device: "reference" });
  const all: Piece[] = [];
  for await (const piece of model.generate("ab", { ...GREEDY, seed: 7 })) all.push(piece);
  assertEquals(all.map(({ token }) => token), [...STORY.map(idOf), undefined]);
  const last = all.at(-1)?.end;
  assertEquals(all.filter(({ end }) => end !== undefined).length, 1);
  assertEquals([last?.promptTokens, last?.completionTokens, last?.seed], [3, 5, 7]);
});

Deno.test("a token missing from the tokenizer has no text", async () => {
  using folder = new TempFolder();
  const { idOf } = writeScriptedLlama(folder.path, ["Once", " upon", "pad"]);
  const tokenizer = JSON.parse(Deno.readTextFileSync(folder.at("tokenizer.json")));
  delete tokenizer.model.vocab.pad;
  folder.write("tokenizer.json", tokenizer);
  await using model = await load(folder.path, { device: "reference" });
  const answer = await model.complete("", { ...GREEDY, logprobs: 20 });
  assertEquals(answer.text, "Once upon");
  assertEquals(answer.tokenIds.at(-1), idOf("pad"));
  assertEquals(answer.logprobs?.at(-1)?.text, "");
});

Deno.test("the text of a token is its bytes, or the name of a control token", () => {
  const bytes = [[0x61], [0xef, 0xbb, 0xbf], [0xc3]];
  const tokenizer = {
    vocabSize: 4,
    isSpecial: (id: number) => id === 3,
    tokenText: () => "<end>",
    tokenBytes: (id: number) => Uint8Array.from(bytes[id]!),
  } as unknown as Tokenizer;
  assertEquals([0, 1, 2, 3, 4].map((id) => textOf(tokenizer, id)), [
    ...["a", "\ufeff", "\ufffd", "<end>", ""],
  ]);
});

Deno.test("an error of one completion ends the others, and is reported after them", async () => {
  const controller = new AbortController();
  let isEnded = false;
  const failing = async function* (): AsyncGenerator<Piece> {
    yield await Promise.resolve({ text: "a", end: undefined } as Piece);
    throw new ForgeError("bad_model", "NaN");
  };
  const other = async function* (): AsyncGenerator<Piece> {
    yield { text: "b", end: undefined } as Piece;
    if (!controller.signal.aborted) {
      await new Promise((resolve) => controller.signal.addEventListener("abort", resolve));
    }
    await new Promise((resolve) => setTimeout(resolve, 0));
    isEnded = true;
  };
  const collecting = collectMany([other(), failing()], noTokenizer, undefined, controller);
  await assertRejects(() => collecting, ForgeError, "NaN");
  assertEquals([controller.signal.aborted, isEnded], [true, true]);
});

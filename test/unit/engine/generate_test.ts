/** Tests the pieces and the end of a generation, on models that generate a given text. */
import { assertEquals } from "@std/assert";
import { type Completion, type GenerateOptions, load, type Piece } from "../../../src/mod.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { EOS, type TinyLlamaOptions, writeScriptedLlama } from "../../support/tiny_llama.ts";

type Script = readonly (string | Uint8Array)[];

const GREEDY: GenerateOptions = { raw: true, temperature: 0 };

async function tell(
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
  const told = await tell(STORY);
  assertEquals(told.text, "Once upon a time.");
  assertEquals([told.finishReason, told.completionTokens], ["stop", 5]);
  assertEquals(told.tokenIds.length, 5);
  assertEquals(told.tokenIds.includes(EOS), false);
});

Deno.test("a model may have several end tokens", async () => {
  const pieces = ["<|done|>"];
  // The vocabulary is BOS, EOS, 95 characters, then the pieces.
  const eos_token_id = 97;
  for (const model of [{ generationConfig: { eos_token_id } }, { config: { eos_token_id } }]) {
    const told = await tell(["Once", " upon", "<|done|>", " a"], {}, { ...model, pieces });
    assertEquals([told.text, told.finishReason], ["Once upon", "stop"]);
  }
  const several = { generationConfig: { eos_token_id: [5, 97] }, pieces };
  assertEquals((await tell(["Once", "<|done|>"], {}, several)).text, "Once");
});

Deno.test("a generation ends after maxTokens tokens", async () => {
  for (
    const [maxTokens, text] of [[1, "Once"], [3, "Once upon a"], [5, "Once upon a time."]] as const
  ) {
    const told = await tell(STORY, { maxTokens });
    assertEquals([told.text, told.finishReason], [text, "length"]);
    assertEquals(told.completionTokens, maxTokens);
  }
  assertEquals((await tell(STORY, { maxTokens: 6 })).finishReason, "stop");
});

Deno.test("maxTokens may be 0", async () => {
  const told = await tell(STORY, { maxTokens: 0, logprobs: 1 });
  assertEquals([told.text, told.tokenIds, told.finishReason], ["", [], "length"]);
  assertEquals(told.logprobs, []);
  assertEquals(told.timings.prefillTokensPerSecond, 0);
});

Deno.test("a generation ends when the context is full", async () => {
  const model = { contextLength: 6 };
  // BOS and three characters leave room for two tokens.
  const told = await tell(STORY, {}, { ...model, prompt: "abc" });
  assertEquals([told.text, told.finishReason, told.promptTokens], ["Once upon", "length", 4]);
  const one = await tell(STORY, { maxTokens: 100 }, { ...model, prompt: "abcd" });
  assertEquals([one.text, one.finishReason, one.promptTokens], ["Once", "length", 5]);
});

Deno.test("a stop string ends a generation and is not part of it", async () => {
  const told = await tell(STORY, { stop: " a t" });
  assertEquals([told.text, told.finishReason], ["Once upon", "stop"]);
  // The tokens include those of the stop string.
  assertEquals(told.completionTokens, 4);
  assertEquals((await tell(STORY, { stop: ["never", "pon"] })).text, "Once u");
  assertEquals((await tell(STORY, { stop: [] })).finishReason, "stop");
});

Deno.test("a stop string completed by the last token is found", async () => {
  const told = await tell(STORY, { stop: ".", maxTokens: 5 });
  assertEquals([told.text, told.finishReason], ["Once upon a time", "stop"]);
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
  const cut = await tell(bytesOf("é"), { maxTokens: 1 });
  assertEquals([cut.text, cut.finishReason], ["\ufffd", "length"]);
});

Deno.test("a stop string matches the U+FFFD of an incomplete character", async () => {
  const told = await tell(bytesOf("é"), { maxTokens: 1, stop: "\ufffd" });
  assertEquals([told.text, told.finishReason], ["", "stop"]);
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
  const told = await model.complete("", { ...GREEDY, logprobs: 20 });
  assertEquals(told.text, "Once upon");
  assertEquals(told.tokenIds.at(-1), idOf("pad"));
  assertEquals(told.logprobs?.at(-1)?.text, "");
});

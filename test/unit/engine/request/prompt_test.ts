import { assertEquals, assertRejects, assertStringIncludes, assertThrows } from "@std/assert";
import { openTokenizer } from "../../../../src/engine/load/tokenizer.ts";
import {
  checkFits,
  checkTokens,
  encodePromptInSlices,
  type Prompt,
  type PromptOptions,
  Slices,
} from "../../../../src/engine/request/prompt.ts";
import { ForgeError } from "../../../../src/errors.ts";
import { openCheckpoint } from "../../../../src/formats/checkpoint.ts";
import { ChatTemplate } from "../../../../src/tokenizer/chat_template.ts";
import { finish, type Tokenizer } from "../../../../src/tokenizer/tokenizer.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { BOS, EOS, type TinyLlamaOptions, writeRandomLlama } from "../../../support/tiny_llama.ts";

function tokenizerOf(options: TinyLlamaOptions = {}): Tokenizer {
  using folder = new TempFolder();
  return openTokenizer(openCheckpoint(writeRandomLlama(folder.path, options).folder));
}

const tokenizer = tokenizerOf();
const withoutBos = tokenizerOf({ tokenizerConfig: { add_bos_token: false } });
const template = new ChatTemplate(
  "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}" +
    "{% if mood %}({{ mood }}){% endif %}{% if add_generation_prompt %}>{% endif %}",
);

function encodePrompt(...args: Parameters<typeof encodePromptInSlices>) {
  return finish(encodePromptInSlices(...args));
}

Deno.test("errors of a tokenizer name its file", () => {
  assertThrows(
    () => tokenizerOf({ tokenizerConfig: { bos_token: "<none>" } }),
    ForgeError,
    'tokenizer.json": bos_token is "<none>"',
  );
});

/** Returns the tokens of a prompt as text, with BOS as "<s>". */
function encoded(
  prompt: Prompt,
  options: PromptOptions = {},
  chat: ChatTemplate | undefined = template,
) {
  const { tokens } = encodePrompt(prompt, options, tokenizer, chat);
  return Array.from(tokens, (id) => id === BOS ? "<s>" : tokenizer.decode([id])).join("");
}

function assertRefused(
  prompt: Prompt,
  options: PromptOptions,
  message: string,
  chat?: ChatTemplate,
) {
  const error = assertThrows(() => encodePrompt(prompt, options, tokenizer, chat), ForgeError);
  assertEquals([error.code, error.message], ["bad_input", message]);
}

Deno.test("a text becomes one user message if the model has a template", () => {
  assertEquals(encoded("hi"), "<s>[user]hi>");
});

Deno.test("a raw text, or a text without a template, is used unchanged", () => {
  assertEquals(encoded("hi", { raw: true }), "<s>hi");
  assertEquals(encodePrompt("hi", {}, tokenizer, undefined).tokens, tokenizer.encode("hi"));
});

Deno.test("a system message goes before a text or a conversation without one", () => {
  assertEquals(encoded("hi", { system: "be" }), "<s>[system]be[user]hi>");
  const talk = [{ role: "user", content: "a" }, { role: "assistant", content: "b" }];
  assertEquals(encoded(talk, { system: "be" }), "<s>[system]be[user]a[assistant]b>");
  assertEquals(encoded([{ role: "system", content: "own" }], { system: "be" }), "<s>[system]own>");
});

Deno.test("an unusable system message is rejected", () => {
  const why = "a system message cannot be used: ";
  assertRefused("hi", { system: "be", raw: true }, `${why}a raw prompt has no messages`, template);
  assertRefused("hi", { system: "be" }, `${why}the model has no chat template`);
});

Deno.test("a conversation needs a template", () => {
  const message = "the model has no chat template; give the prompt as a text";
  assertRefused([{ role: "user", content: "a" }], {}, message);
});

Deno.test("template variables reach the template", () => {
  assertEquals(encoded("hi", { templateVariables: { mood: "glad" } }), "<s>[user]hi(glad)>");
});

Deno.test("a prompt never has BOS twice", () => {
  assertEquals(encoded("<s>hi", { raw: true }), "<s>hi");
  // The template writes BOS and the tokenizer would add it. A template without BOS gives none.
  assertEquals(encoded("hi").match(/<s>/g)?.length, 1);
  assertEquals(encoded("hi", {}, new ChatTemplate("{{ messages[0].content }}")), "hi");
});

Deno.test("ids are used unchanged", () => {
  const ids = Int32Array.of(5, 6);
  assertEquals(encodePrompt(ids, {}, tokenizer, template), { tokens: ids, startsText: false });
});

Deno.test("an answer starts a new text unless it continues one", () => {
  const startsText = (prompt: Prompt, options: PromptOptions = {}) =>
    encodePrompt(prompt, options, tokenizer, template).startsText;
  assertEquals(startsText("hi"), true);
  assertEquals(startsText("hi", { raw: true }), false);
  assertEquals(startsText("", { raw: true }), true);
});

Deno.test("a given beginning of the answer follows the prompt", () => {
  assertEquals(encoded("hi", { answerStart: "yes" }), `${encoded("hi")}yes`);
  assertEquals(encoded("hi", { raw: true, answerStart: "yes" }), "<s>hiyes");
  const { startsText } = encodePrompt("hi", { answerStart: "yes" }, tokenizer, template);
  assertEquals(startsText, false);
  const ids = () => encodePrompt(Int32Array.of(5), { answerStart: "yes" }, tokenizer, template);
  assertThrows(ids, ForgeError, "answerStart is for texts and conversations, not for token ids");
});

Deno.test("a prompt without tokens is rejected", () => {
  assertEquals(encoded("", { raw: true }), "<s>");
  assertRefused(new Int32Array(), {}, "the prompt is empty");
  const empty = () => encodePrompt("", { raw: true }, withoutBos, undefined);
  assertThrows(empty, ForgeError, "the prompt is empty, and the model has no BOS token to start");
});

Deno.test("a conversation with more messages than context tokens is not rendered", () => {
  const messages = Array.from({ length: 65 }, () => ({ role: "user", content: "x" }));
  const rendering = new ChatTemplate("{{ raise_exception('rendered') }}");
  const encode = (context: number) => encodePrompt(messages, {}, tokenizer, rendering, context);
  const error = assertThrows(() => encode(64), ForgeError);
  assertEquals(error.message, "the conversation has 65 messages; the context holds 64 tokens");
  assertStringIncludes(assertThrows(() => encode(65), ForgeError).message, "rendered");
});

Deno.test("a text far too long for the context is not encoded to its end", () => {
  const length = (count: number, context: number) =>
    encodePrompt("x".repeat(count), {}, tokenizer, undefined, context).tokens.length;
  // Shorter texts are counted, for an error that says by how much they are too long.
  assertEquals(length(16_000, 10), 16_001);
  assertEquals(length(17_000, 9000), 17_001);
  for (const [context, most] of [[10, 16_384], [9000, 18_000]] as const) {
    const error = assertThrows(() => length(40_000, context), ForgeError);
    const message = `the prompt has more than ${most} tokens; the context holds ${context}`;
    assertEquals([error.code, error.message], ["bad_input", message]);
  }
});

Deno.test("tokens must be those of the model, and fit its context", () => {
  checkTokens([0, 9], 10);
  for (const id of [-1, 10, 0.5, NaN]) {
    const message = `token 1 of the text is ${id}; valid ids are 0 to 9`;
    assertThrows(() => checkTokens([3, id], 10, "the text"), ForgeError, message);
  }
  checkFits(10, 10);
  const message = "the text has 11 tokens; the context holds 10";
  assertThrows(() => checkFits(11, 10, "the text"), ForgeError, message);
});

Deno.test("a template gets the end token, and may name roles of its own", () => {
  const ends = new ChatTemplate("{{ eos_token }}{{ bos_token }}");
  assertEquals([...encodePrompt("hi", {}, tokenizer, ends).tokens], [EOS, BOS]);
  const critic = [{ role: "critic", content: "a" }];
  const naming = new ChatTemplate(
    "{% for m in messages %}{% if m.role == 'critic' %}!{% endif %}{{ m.content }}{% endfor %}",
  );
  assertEquals(encoded(critic, {}, naming), "!a");
  const error = assertThrows(() => encoded(critic), ForgeError);
  assertStringIncludes(error.message, 'messages[0].role is "critic"; valid are "system"');
});

Deno.test("values that are no prompt are rejected", () => {
  const numbers =
    "the prompt is a list of numbers; token ids are given as an Int32Array: Int32Array.from(ids)";
  const prompts: readonly (readonly [unknown, string])[] = [
    [[1, 2], numbers],
    [Uint32Array.of(1), numbers],
    [new Uint32Array(0), "the prompt is "],
    [7, "the prompt is 7; valid is a string, an array of messages, or an Int32Array"],
    [[], "the conversation is empty"],
    [[["user", "a"]], "messages[0] is an array; valid is an object with role and content"],
    [[{ role: "user", content: "a" }, null], "messages[1] is null; valid is an object"],
  ];
  for (const [prompt, message] of prompts) {
    const error = assertThrows(() => encoded(prompt as Prompt), ForgeError, message);
    assertEquals(error.code, "bad_input");
  }
});

Deno.test("slices: long computations run one at a time, short ones at once", async () => {
  const slices = new Slices();
  const ran: string[] = [];
  function* count(name: string, parts: number): Generator<void, string> {
    for (let part = 1; part <= parts; part++) {
      ran.push(`${name}${part}`);
      if (part < parts) yield;
    }
    return name;
  }
  const controller = new AbortController();
  const [first, second, third, short] = [
    slices.run(count("a", 3)),
    slices.run(count("b", 3), controller.signal),
    slices.run(count("c", 2)),
    slices.run(count("d", 1)),
  ];
  // The first slice shows whether a computation is long.
  assertEquals(ran, ["a1", "b1", "c1", "d1"]);
  controller.abort();
  const error = await assertRejects(() => second, ForgeError);
  assertEquals([error.code, await first, await third, await short], ["cancelled", "a", "c", "d"]);
  assertEquals(ran, ["a1", "b1", "c1", "d1", "a2", "a3", "c2"]);
});

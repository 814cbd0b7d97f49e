/** Tests that the generating endpoints give the library's answers in OpenAI's format. */
import { assert, assertEquals, assertMatch } from "@std/assert";
import { chatLogprobs, LogprobColumns } from "../../src/serve/openai/logprobs.ts";
import { type ChatLogprob, Client, DEMO, joined, type TextLogprobs, user } from "./client.ts";

const CHAT = "/v1/chat/completions";
const TEXT = "/v1/completions";

Deno.test("serve: a chat gets the library's answer, whole and as a stream", async () => {
  await using client = await Client.open(DEMO, { names: ["a", "b"] });
  const messages = [{ role: "system", content: "Be brief." }, user("Tell me a story.")];
  const options = { max_tokens: 24, seed: 7, temperature: 0.9, top_k: 50, stop: ["zzz"] };
  const expected = await client.model.complete(messages, {
    maxTokens: 24,
    seed: 7,
    temperature: 0.9,
    topK: 50,
    stop: ["zzz"],
  });
  const answer = await client.chat({ messages, model: "b", ...options });
  assertMatch(answer.id, /^chatcmpl-\w{32}$/);
  assertEquals([answer.object, answer.model], ["chat.completion", "a"]);
  assertEquals(answer.choices, [{
    index: 0,
    message: { role: "assistant", content: expected.text },
    logprobs: null,
    finish_reason: "length",
  }]);
  const { usage } = answer;
  assertEquals(usage?.prompt_tokens, expected.promptTokens);
  assertEquals([usage?.completion_tokens, usage?.total_tokens], [24, expected.promptTokens + 24]);
  // The library's answer has cached the whole prompt except its last token.
  assertEquals(usage?.prompt_tokens_details.cached_tokens, expected.promptTokens - 1);

  const parts = await client.stream(CHAT, { messages, ...options });
  assertEquals(parts[0]!.object, "chat.completion.chunk");
  assertEquals(parts[0]!.choices[0]!.delta, { role: "assistant", content: "" });
  assertEquals(joined(parts), { content: expected.text, finish: "length" });
  assert(parts.length > 10, "it comes in parts");
  assert(parts.every((part) => !("usage" in part)));
});

Deno.test("serve: usage is the last event of a stream on request", async () => {
  await using client = await Client.open(DEMO);
  const body = { prompt: "Once upon a time", max_tokens: 5, temperature: 0 };
  const { usage } = await client.complete(body);
  const parts = await client.stream(TEXT, { ...body, stream_options: { include_usage: true } });
  const last = parts.pop();
  assertEquals(last?.choices, []);
  assertEquals(last?.usage?.total_tokens, usage?.total_tokens);
  for (const part of parts) assertEquals(part.usage, null);
  for (const stream_options of [{ include_usage: false }, { include_obfuscation: true }, {}]) {
    const others = await client.stream(TEXT, { ...body, stream_options });
    assert(others.every((part) => !("usage" in part)), JSON.stringify(stream_options));
  }
});

Deno.test("serve: texts, ids and lists of them are completed without a template", async () => {
  await using client = await Client.open(DEMO);
  const { model } = client;
  const options = { max_tokens: 8, temperature: 0 };
  const expected = await Promise.all(
    ["Once upon a time", "The fox"].map((prompt) =>
      model.complete(prompt, { raw: true, maxTokens: 8, temperature: 0 })
    ),
  );
  const texts = expected.map(({ text }) => text);
  const one = await client.complete({ prompt: "Once upon a time", ...options });
  assertMatch(one.id, /^cmpl-\w{32}$/);
  assertEquals(one.object, "text_completion");
  assertEquals(one.choices, [{
    index: 0,
    text: texts[0]!,
    logprobs: null,
    finish_reason: "length",
  }]);
  const ids = ["Once upon a time", "The fox"].map((text) => [...model.tokenizer.encode(text)]);
  for (const prompt of [["Once upon a time", "The fox"], ids]) {
    const { choices, usage } = await client.complete({ prompt, ...options });
    assertEquals(
      choices.map(({ index, text }) => [index, text]),
      texts.map((text, i) => [i, text]),
    );
    assertEquals(usage?.prompt_tokens, ids.flat().length);
    assertEquals(usage?.completion_tokens, 16);
  }
  const fromIds = await client.complete({ prompt: ids[1], ...options });
  assertEquals(fromIds.choices.map(({ text }) => text), [texts[1]]);
});

Deno.test("serve: several answers equal those of the library, also interleaved in a stream", async () => {
  await using client = await Client.open(DEMO);
  const expected = await client.model.completeMany("The", 3, {
    raw: true,
    seed: 3,
    temperature: 1.2,
    maxTokens: 10,
  });
  const body = { prompt: ["The", "The"], n: 3, seed: 3, temperature: 1.2, max_tokens: 10 };
  const texts = [...expected, ...expected].map(({ text }) => text);
  assert(new Set(texts).size === 3, "they differ");
  const { choices, usage } = await client.complete(body);
  assertEquals(choices.map(({ text }) => text), texts);
  // Both prompts are counted, each once.
  const tokens = 2 * client.model.tokenizer.encode("The").length;
  assertEquals([usage?.prompt_tokens, usage?.completion_tokens], [tokens, 60]);
  assertEquals(usage?.total_tokens, tokens + 60);
  const parts = await client.stream(TEXT, body);
  assertEquals(texts.map((_, index) => joined(parts, index).content), texts);
  const order = parts.map(({ choices: [choice] }) => choice?.index);
  assertEquals(new Set(order.slice(0, 6)).size, 6, "they come side by side");
});

Deno.test("serve: the cached tokens of several prompts and answers are counted once", async () => {
  await using client = await Client.open(DEMO);
  const prompts = ["Once upon a time there was a fox.", "A red house stood on the hill."];
  const lengths = prompts.map((prompt) => client.model.tokenizer.encode(prompt).length);
  const options = { max_tokens: 1, temperature: 1 };
  const cached = async (prompt: string[], n: number) => {
    const { usage } = await client.complete({ prompt, n, ...options });
    return usage!.prompt_tokens_details.cached_tokens;
  };
  const shared = client.model.tokenizer.addBos ? 1 : 0;
  assertEquals(await cached([prompts[0]!], 2), 0);
  assertEquals(await cached(prompts, 2), lengths[0]! - 1 + shared);
  assertEquals(await cached(prompts, 3), lengths[0]! + lengths[1]! - 2);
  // An answer that waits for the other one finds its prompt in the cache.
  await using single = await Client.open(DEMO, {}, { parallel: 1 });
  const { usage } = await single.complete({ prompt: prompts[0], n: 2, ...options });
  assertEquals(usage!.prompt_tokens_details.cached_tokens, 0);
  // The speed of a single answer is reported.
  const body = { prompt: prompts[0], max_tokens: 3, temperature: 0 };
  const { timings } = await client.complete(body) as { timings?: Record<string, number> };
  assertEquals([timings?.["prompt_n"], timings?.["predicted_n"]], [1, 3]);
  assert(!("timings" in await client.complete({ ...body, n: 2 })));
});

Deno.test("serve: log-probabilities in the forms of both endpoints", async () => {
  await using client = await Client.open(DEMO);
  const expected = await client.model.complete("Once", {
    raw: true,
    temperature: 0,
    maxTokens: 6,
    logprobs: 2,
  });
  const texts = expected.logprobs!.map(({ text }) => text);
  const body = { temperature: 0, max_tokens: 6 };
  const asked = { prompt: "Once", ...body, logprobs: 2 };
  const columns = (await client.complete(asked)).choices[0]!.logprobs as TextLogprobs;
  assertEquals(columns.tokens, texts);
  assertEquals(columns.token_logprobs, expected.logprobs!.map(({ logprob }) => logprob));
  assertEquals(columns.top_logprobs.map((top) => Object.keys(top).length), Array(6).fill(2));
  for (const [i, offset] of columns.text_offset.entries()) {
    assertEquals(expected.text.slice(offset, offset + texts[i]!.length), texts[i]);
  }
  const parts = await client.stream(TEXT, asked);
  const streamed = parts.flatMap(({ choices }) => choices).flatMap(({ logprobs }) =>
    (logprobs as TextLogprobs).tokens
  );
  assertEquals(streamed, texts);

  const chat = { messages: [user("Hi")], ...body, logprobs: true, top_logprobs: 3 };
  const { choices: [choice] } = await client.chat(chat);
  const { content } = choice!.logprobs as { content: ChatLogprob[] };
  assertEquals(content.map(({ token }) => token).join(""), choice!.message!.content);
  for (const { token, logprob, bytes, top_logprobs } of content) {
    assertEquals(new TextDecoder().decode(new Uint8Array(bytes)), token);
    assertEquals(top_logprobs.length, 3);
    // The most probable token is chosen.
    assertEquals(top_logprobs[0]!.logprob, logprob);
  }
  const streamedChat = (await client.stream(CHAT, chat)).flatMap(({ choices }) => choices)
    .flatMap(({ logprobs }) => (logprobs as { content: ChatLogprob[] } | null)?.content ?? []);
  assertEquals(streamedChat, content);
});

Deno.test("serve: answers conform to the requested constraint", async () => {
  await using client = await Client.open(DEMO);
  const schema = {
    type: "object",
    properties: { name: { type: "string", maxLength: 8 }, age: { type: "integer", maximum: 99 } },
    required: ["name", "age"],
    additionalProperties: false,
  };
  const body = { messages: [user("Ada, 36.")], seed: 1, max_tokens: 200 };
  const format = { type: "json_schema", json_schema: { name: "person", schema, strict: true } };
  const { choices: [choice] } = await client.chat({ ...body, response_format: format });
  const person = JSON.parse(choice!.message!.content!);
  assertEquals(Object.keys(person), ["name", "age"]);
  assertEquals([choice!.finish_reason, Number.isInteger(person.age)], ["stop", true]);
  const colour = await client.stream(CHAT, { ...body, regex: "red|green|blue" });
  assertMatch(joined(colour).content!, /^(red|green|blue)$/);
  assertEquals(joined(colour).finish, "stop");
  const text = await client.complete({ prompt: "2+2", grammar: 'root ::= "=" [0-9]{2}', seed: 1 });
  assertMatch(text.choices[0]!.text!, /^=\d\d$/);
  const object = await client.chat({ ...body, response_format: { type: "json_object" }, n: 2 });
  for (const { message, finish_reason } of object.choices) {
    if (finish_reason === "stop") assertEquals(typeof JSON.parse(message!.content!), "object");
  }
});

Deno.test("serve: the server's defaults apply unless a request overrides them", async () => {
  await using client = await Client.open(DEMO, {
    defaults: { maxTokens: 3, temperature: 0, regex: "[a-z]{9}" },
  });
  const body = { prompt: "Once" };
  const { choices: [choice], usage } = await client.complete(body);
  assertMatch(choice!.text!, /^[a-z]+$/);
  assertEquals(usage?.completion_tokens, 3);
  const other = await client.complete({ ...body, grammar: 'root ::= "!" "?"{20}', max_tokens: 40 });
  assertEquals(other.choices[0]!.text, "!" + "?".repeat(20));
});

Deno.test("serve: the log-probability of an impossible token is a number", async () => {
  await using client = await Client.open(DEMO);
  const { tokenizer } = client.model;
  // The vocabulary of a model may be padded.
  const padded = tokenizer.vocabSize;
  const top = [{ token: 6, logprob: -0.5 }, { token: padded, logprob: -Infinity }];
  const piece = { token: 5, text: "", logprob: -Infinity, top, end: undefined };
  const [chat] = chatLogprobs(tokenizer, piece) as unknown as ChatLogprob[];
  assertEquals(
    [chat?.logprob, chat?.top_logprobs.map(({ logprob }) => logprob)],
    [-9999, [-0.5, -9999]],
  );
  assertEquals(chat?.top_logprobs.map(({ bytes }) => bytes), [[...tokenizer.tokenBytes(6)], []]);
  const columns = new LogprobColumns(tokenizer);
  columns.add(piece, 0);
  const { token_logprobs, top_logprobs } = columns.take() as unknown as TextLogprobs;
  assertEquals([token_logprobs, top_logprobs.map(Object.values)], [[-9999], [[-0.5, -9999]]]);
});

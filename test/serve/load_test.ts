/**
 * Tests many clients at the same time: their answers are independent and no client blocks others.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { Random } from "../support/random.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeEndlessLlama, writeRandomLlama } from "../support/tiny_llama.ts";
import { Client, DEMO, joined, user } from "./client.ts";

const TEXT = "/v1/completions";
const CHAT = "/v1/chat/completions";
const ENDLESS = { prompt: "a", temperature: 0 };

/** Reads at least a number of bytes from a response. */
async function readSome(response: Response, bytes: number) {
  const reader = response.body!.getReader();
  for (let size = 0; size < bytes;) {
    const { value, done } = await reader.read();
    assert(!done, "the stream has ended");
    size += value.length;
  }
  return reader;
}

/** Waits until a number of answers are in flight. */
async function waitForAnswers(client: Client, count: number): Promise<void> {
  for (const end = performance.now() + 30_000;;) {
    const { answers } = await (await client.get("/health")).json();
    if (answers === count) return;
    assert(performance.now() < end, `${answers} answers are in progress instead of ${count}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

Deno.test("serve: answers under load equal those of single requests", async () => {
  await using client = await Client.open(DEMO, {}, { parallel: 4 });
  const requests = Array.from({ length: 24 }, (_, i) => {
    const options = { seed: i, max_tokens: 4 + i % 13, temperature: i % 3 === 0 ? 0 : 1 };
    const constraint = i % 4 === 1 ? { regex: "[a-z ]{3,30}\\." } : {};
    return i % 2 === 0
      ? { path: TEXT, body: { prompt: `Once upon ${i}`, ...options, ...constraint } }
      : { path: CHAT, body: { messages: [user(`Story ${i}`)], ...options, ...constraint } };
  });
  const textOf = ({ choices: [choice] }: Awaited<ReturnType<Client["answer"]>>) =>
    choice!.text ?? choice!.message!.content;
  const alone = [];
  for (const { path, body } of requests) alone.push(textOf(await client.answer(path, body)));
  const together = await Promise.all(
    requests.map(async ({ path, body }, i) =>
      i % 3 === 0
        ? joined(await client.stream(path, body)).content
        : textOf(await client.answer(path, body))
    ),
  );
  assertEquals(together, alone);
});

Deno.test("serve: a client that disconnects cancels its answer and frees its pages", async () => {
  using folder = new TempFolder();
  writeEndlessLlama(folder.path);
  // The cache holds one sequence: the second waits until the first has ended.
  await using client = await Client.open(folder.path, {}, { parallel: 1, contextLength: 20_000 });
  const stream = await client.post(TEXT, { ...ENDLESS, stream: true });
  const reader = await readSome(stream, 2000);
  await reader.cancel();
  await waitForAnswers(client, 0);

  const controller = new AbortController();
  const whole = client.post(TEXT, ENDLESS, { signal: controller.signal });
  await waitForAnswers(client, 1);
  controller.abort();
  const response = await whole;
  assertEquals(response.status, 503);
  await response.body?.cancel();

  // One that was aborted before it came.
  const late = await client.post(TEXT, ENDLESS, { signal: AbortSignal.abort() });
  assertEquals([late.status, (await late.json()).error.code], [503, "stopped"]);

  // One request that is waiting, and one that was never read.
  const first = await client.post(TEXT, { ...ENDLESS, stream: true });
  const second = await client.post(TEXT, { ...ENDLESS, stream: true });
  const third = await client.post(TEXT, { ...ENDLESS, stream: true });
  const reading = await readSome(first, 500);
  const waiting = second.body!.getReader();
  const piece = waiting.read();
  await third.body!.cancel();
  await waiting.cancel();
  assertEquals((await piece).done, true);
  await reading.cancel();
  await waitForAnswers(client, 0);
  const prompt = "b".repeat(19_000);
  const { usage } = await client.complete({ prompt, max_tokens: 3 });
  assertEquals(usage?.completion_tokens, 3);
});

/** Ways in which a client ends its stream. */
const ENDINGS: readonly ((response: Response) => Promise<void>)[] = [
  async (response) => await response.body!.cancel(),
  async (response) => await (await readSome(response, 1)).cancel(),
  async (response) => await (await readSome(response, 1500)).cancel(),
  async (response) => {
    assert((await response.text()).length > 0);
  },
];

Deno.test("serve: 500 streams with random disconnects leave no slot, page or memory", async () => {
  using folder = new TempFolder();
  writeEndlessLlama(folder.path);
  const loading = { parallel: 8, contextLength: 4096 };
  await using client = await Client.open(folder.path, { maxAnswers: 600 }, loading);
  const random = new Random("disconnects");
  const visit = async (i: number) => {
    const ending = random.u32() % (ENDINGS.length + 1);
    const isWhole = ending >= ENDINGS.length - 1;
    const body = { ...ENDLESS, prompt: `a${i}`.repeat(1 + random.u32() % 40), stream: true };
    const request = isWhole ? { ...body, max_tokens: 1 + random.u32() % 20 } : body;
    if (ending < ENDINGS.length) return await ENDINGS[ending]!(await client.post(TEXT, request));
    // The client leaves while its request is read, queued or answered as a whole.
    const controller = new AbortController();
    const answer = client.post(TEXT, { ...request, stream: false }, { signal: controller.signal });
    setTimeout(() => controller.abort(), random.u32() % 200);
    await (await answer).body?.cancel();
  };
  setFlagsFromString("--expose-gc");
  const collectGarbage: () => void = runInNewContext("gc");
  const heap: number[] = [];
  for (let wave = 0; wave < 3; wave++) {
    await Promise.all(Array.from({ length: 500 }, (_, i) => visit(i)));
    await waitForAnswers(client, 0);
    // Disposed generations leave the scheduler after the step in progress.
    await client.complete({ ...ENDLESS, max_tokens: 1 });
    const { total, free } = client.model.kvTokens;
    assertEquals(free, total);
    collectGarbage();
    heap.push(Deno.memoryUsage().heapUsed);
  }
  // The first wave fills caches and compiles code; 500 streams that stayed would take far more.
  const growth = heap[2]! - heap[1]!;
  assert(growth < 500 * 2 ** 10, `the heap grows by ${growth} bytes a wave`);
});

Deno.test("serve: a slow reader does not delay others", async () => {
  using folder = new TempFolder();
  writeEndlessLlama(folder.path);
  await using client = await Client.open(folder.path, {}, { parallel: 2 });
  const slow = await client.post(TEXT, { ...ENDLESS, stream: true });
  const reader = await readSome(slow, 1);
  for (let i = 0; i < 3; i++) {
    const { usage } = await client.complete({ ...ENDLESS, max_tokens: 100 });
    assertEquals(usage?.completion_tokens, 100);
  }
  // The stream continues where it paused.
  assert(!(await reader.read()).done);
  await reader.cancel();
  await waitForAnswers(client, 0);
});

Deno.test("serve: requests beyond the queue's capacity are rejected", async () => {
  using folder = new TempFolder();
  writeEndlessLlama(folder.path);
  await using client = await Client.open(folder.path, { maxAnswers: 3 }, { parallel: 1 });
  const body = { ...ENDLESS, n: 2, stream: true };
  const first = await readSome(await client.post(TEXT, body), 1);
  const refused = await client.post(TEXT, body);
  assertEquals([refused.status, refused.headers.get("retry-after")], [503, "1"]);
  const { error } = await refused.json();
  assertEquals([error.code, error.type], ["queue_full", "server_error"]);
  assertStringIncludes(error.message, "2 answers are in progress and 2 more were requested");
  // A request rejected for another reason takes no place in the queue.
  for (let i = 0; i < 3; i++) await client.refusal(TEXT, { ...ENDLESS, regex: "(" });
  const second = await client.post(TEXT, { ...ENDLESS, max_tokens: 2, stream: true });
  assertEquals(second.status, 200);
  await second.body!.cancel();
  await first.cancel();
  await waitForAnswers(client, 0);
  assertEquals((await client.complete({ ...ENDLESS, n: 2, max_tokens: 2 })).choices.length, 2);
});

Deno.test("serve: closing the model fails the answers in flight", async () => {
  using folder = new TempFolder();
  writeEndlessLlama(folder.path);
  const client = await Client.open(folder.path, { onError: () => {} });
  const response = await client.post(TEXT, { ...ENDLESS, stream: true });
  const reader = await readSome(response, 1);
  await client[Symbol.asyncDispose]();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    text += new TextDecoder().decode(value);
  }
  assertStringIncludes(text, "the model is closed");
  assertEquals((await client.post(TEXT, ENDLESS)).status, 500);
});

Deno.test("serve: other clients are answered while a long text is encoded", async () => {
  using folder = new TempFolder();
  // Runs of the letter join to tokens of up to 64.
  const pieces = [2, 4, 8, 16, 32, 64].map((length) => "a".repeat(length));
  writeRandomLlama(folder.path, {
    pieces,
    contextLength: 20_000,
    chatTemplate: "{% for m in messages %}{{ m.content }}{% endfor %}",
  });
  const path = `${folder.path}/tokenizer.json`;
  const tokenizer = JSON.parse(Deno.readTextFileSync(path));
  tokenizer.model.merges = ["a", ...pieces.slice(0, -1)].map((half) => [half, half]);
  Deno.writeTextFileSync(path, JSON.stringify(tokenizer));
  await using client = await Client.open(folder.path, {}, { contextLength: 20_000 });
  const content = "a".repeat(600_000);
  const { length } = client.model.tokenizer.encode(content, { addSpecial: false });
  for (
    const [path, body] of [
      ["/tokenize", { content }],
      ["/tokenize", { messages: [user(content)] }],
      [TEXT, { prompt: content, max_tokens: 1 }],
      ["/v1/embeddings", { input: content }],
    ] as const
  ) {
    let isDone = false;
    const long = client.post(path, body).finally(() => isDone = true);
    let turns = 0;
    for (; !isDone; turns++) {
      const health = await client.get("/health");
      assertEquals(health.status, 200);
      await health.body?.cancel();
      await new Promise((resolve) => setTimeout(resolve));
    }
    const answer = await (await long).json();
    if (path === "/tokenize") assertEquals(answer.count, length);
    assert(turns > 20, `${path}: ${turns} turns`);
  }
});

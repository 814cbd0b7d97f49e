/** Tests batches: results, their order, back-pressure and the ways a batch ends. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import {
  type BadRequest,
  type BatchOptions,
  type BatchRequest,
  type BatchResult,
  runBatch,
} from "../../../../src/engine/generation/batch.ts";
import type { Completion } from "../../../../src/engine/generation/completion.ts";
import { ForgeError } from "../../../../src/errors.ts";
import { Random } from "../../../support/random.ts";

const WINDOW = 4;

/** Returns a completion with only its text set. */
function completion(text: string): Completion {
  return { text } as Completion;
}

function turn(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 0));
}

/** Completions that the test finishes by hand. */
class Desk {
  readonly open = new Map<string, PromiseWithResolvers<readonly Completion[]>>();
  mostOpen = 0;
  stopped = 0;

  complete = (request: BatchRequest, signal: AbortSignal): Promise<readonly Completion[]> => {
    const answer = Promise.withResolvers<readonly Completion[]>();
    const prompt = String(request.prompt);
    this.open.set(prompt, answer);
    this.mostOpen = Math.max(this.mostOpen, this.open.size);
    signal.addEventListener("abort", () => {
      if (!this.open.delete(prompt)) return;
      this.stopped++;
      answer.resolve([completion("cut")]);
    });
    return answer.promise;
  };

  async finish(prompt: string, error?: unknown): Promise<void> {
    const answer = this.open.get(prompt);
    assert(answer !== undefined, `${prompt} is not under way`);
    this.open.delete(prompt);
    if (error === undefined) answer.resolve([completion(prompt.toUpperCase())]);
    else answer.reject(error);
    await turn();
  }
}

function requests(prompts: string): BatchRequest[] {
  return Array.from(prompts, (prompt) => ({ id: `id ${prompt}`, prompt }));
}

/** Takes results in the background, as "index:text". */
function take(results: AsyncIterable<BatchResult>) {
  const taken: string[] = [];
  const done = (async () => {
    for await (const { index, completion, error } of results) {
      taken.push(`${index}:${completion?.text ?? error?.message}`);
    }
  })();
  return { taken, done };
}

async function withDesk(
  input: Iterable<BatchRequest | BadRequest> | AsyncIterable<BatchRequest | BadRequest>,
  options: BatchOptions,
  fn: (desk: Desk, taken: string[]) => Promise<void>,
): Promise<string[]> {
  const desk = new Desk();
  const { taken, done } = take(runBatch(input, options, WINDOW, desk.complete));
  await turn();
  await fn(desk, taken);
  await done;
  return taken;
}

Deno.test("results arrive as they finish, each with its id and index", async () => {
  const taken = await withDesk(requests("abc"), {}, async (desk, taken) => {
    await desk.finish("b");
    assertEquals(taken, ["1:B"]);
    await desk.finish("c");
    await desk.finish("a");
  });
  assertEquals(taken, ["1:B", "2:C", "0:A"]);
});

Deno.test("results can arrive in the order of the requests", async () => {
  const taken = await withDesk(requests("abc"), { ordered: true }, async (desk, taken) => {
    await desk.finish("b");
    await desk.finish("c");
    assertEquals(taken, []);
    await desk.finish("a");
  });
  assertEquals(taken, ["0:A", "1:B", "2:C"]);
});

Deno.test("a batch reads only as many requests as fit its window", async () => {
  let read = 0;
  const input = function* () {
    for (const request of requests("abcdefgh")) {
      read++;
      yield request;
    }
  };
  const desk = new Desk();
  const results = runBatch(input(), {}, WINDOW, desk.complete);
  const first = results.next();
  await turn();
  assertEquals([read, desk.open.size], [WINDOW, WINDOW]);
  await desk.finish("a");
  assertEquals((await first).value?.id, "id a");
  await turn();
  assertEquals(read, WINDOW + 1);
  // Finished results that were not read yet count too.
  await desk.finish("b");
  await desk.finish("c");
  assertEquals(read, WINDOW + 1);
  await results.return();
  assertEquals([read, desk.stopped], [WINDOW + 1, 2]);
});

Deno.test("a failed request is a result, and the others continue", async () => {
  const bad: BadRequest = { id: 7, error: new ForgeError("usage", "no JSON") };
  const taken = await withDesk([...requests("ab"), bad], { ordered: true }, async (desk) => {
    await desk.finish("a", new ForgeError("bad_input", "too long"));
    await desk.finish("b");
  });
  assertEquals(taken, ["0:too long", "1:B", "2:no JSON"]);
});

Deno.test("an error not caused by a request ends the batch", async () => {
  for (const failure of [new ForgeError("device", "gone"), new TypeError("a bug")]) {
    const desk = new Desk();
    const { taken, done } = take(runBatch(requests("abc"), {}, WINDOW, desk.complete));
    await turn();
    await desk.finish("b");
    const rejected = assertRejects(() => done, Error, failure.message);
    await desk.finish("a", failure);
    await rejected;
    assertEquals([taken, desk.stopped], [["1:B"], 1]);
  }
});

Deno.test("the first of several errors ends the batch", async () => {
  const desk = new Desk();
  const { done } = take(runBatch(requests("abc"), {}, WINDOW, desk.complete));
  await turn();
  const rejected = assertRejects(() => done, Error, "first");
  for (const [prompt, message] of [["b", "first"], ["a", "second"]] as const) {
    const answer = desk.open.get(prompt)!;
    desk.open.delete(prompt);
    answer.reject(new Error(message));
  }
  await rejected;
});

Deno.test("a request with a signal ends by that signal and by the batch's", async () => {
  const own = new AbortController();
  const batch = new AbortController();
  const kept = new AbortController();
  const input = [{ prompt: "a", signal: own.signal }, { prompt: "b", signal: kept.signal }];
  const desk = new Desk();
  const { done } = take(runBatch(input, { signal: batch.signal }, WINDOW, desk.complete));
  await turn();
  own.abort();
  assertEquals([...desk.open.keys()], ["b"]);
  const rejected = assertRejects(() => done, ForgeError, "stopped on request");
  batch.abort();
  assertEquals(desk.open.size, 0);
  await rejected;
});

Deno.test("a batch ends after the requests that it stops", async () => {
  let nEnded = 0;
  const complete = async ({ prompt }: BatchRequest, signal: AbortSignal) => {
    if (prompt === "a") return [completion("first")];
    await new Promise((resolve) => signal.addEventListener("abort", resolve));
    await turn();
    nEnded++;
    return [];
  };
  const results = runBatch(requests("abc"), {}, WINDOW, complete);
  assertEquals((await results.next()).value?.index, 0);
  await results.return();
  assertEquals(nEnded, 2);
});

Deno.test("a failing input ends the batch", async () => {
  const input = async function* () {
    yield* requests("a");
    await turn();
    throw new ForgeError("not_found", "the file is gone");
  };
  const desk = new Desk();
  const { done } = take(runBatch(input(), {}, WINDOW, desk.complete));
  const error = await assertRejects(() => done, ForgeError, "the file is gone");
  assertEquals([error.code, desk.stopped], ["not_found", 1]);
});

Deno.test("a signal ends a batch in every state", async () => {
  const never = async function* (prompts: string) {
    yield* requests(prompts);
    await new Promise(() => {});
  };
  for (const input of [requests("abcdefgh"), never("a"), never("")]) {
    const desk = new Desk();
    const controller = new AbortController();
    const results = runBatch(input, { signal: controller.signal }, WINDOW, desk.complete);
    const { done } = take(results);
    await turn();
    const rejected = assertRejects(() => done, ForgeError, "stopped on request");
    controller.abort();
    assertEquals((await rejected).code, "cancelled");
    assertEquals(desk.open.size, 0);
  }
  const late = runBatch(
    requests("a"),
    { signal: AbortSignal.abort() },
    WINDOW,
    new Desk().complete,
  );
  await assertRejects(() => late.next(), ForgeError, "stopped on request");
});

Deno.test("leaving the loop cancels requests in flight and closes the input", async () => {
  let closed = false;
  const input = async function* () {
    try {
      yield* requests("abcdefgh");
    } finally {
      closed = true;
    }
  };
  const desk = new Desk();
  const results = runBatch(await Promise.resolve(input()), {}, WINDOW, desk.complete);
  const first = results.next();
  await turn();
  await desk.finish("c");
  await first;
  await results.return();
  await turn();
  assertEquals([closed, desk.open.size], [true, 0]);
});

Deno.test("an empty batch has no results", async () => {
  assertEquals(await withDesk([], {}, () => Promise.resolve()), []);
});

Deno.test("a small window handles a long input", async () => {
  const random = new Random("long batch");
  const count = 2000;
  let open = 0;
  let most = 0;
  const complete = async (request: BatchRequest) => {
    most = Math.max(most, ++open);
    for (let i = random.int(0, 3); i > 0; i--) await Promise.resolve();
    open--;
    return [completion(String(request.prompt))];
  };
  const input = function* () {
    for (let i = 0; i < count; i++) yield { id: i, prompt: `${i}` };
  };
  for (const ordered of [false, true]) {
    const seen: number[] = [];
    for await (const { id, index, completion } of runBatch(input(), { ordered }, 16, complete)) {
      assertEquals([index, completion?.text], [id, `${id}`]);
      seen.push(index);
    }
    assert(most <= 16 && most > 1, `${most} at a time`);
    if (!ordered) seen.sort((a, b) => a - b);
    assertEquals(seen, Array.from({ length: count }, (_, i) => i));
  }
});

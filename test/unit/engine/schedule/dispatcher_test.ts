/** Tests the distribution of tasks over replicas: one queue, cached prefixes, failures. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import { EmbeddingTask } from "../../../../src/engine/embedding/embedding_task.ts";
import { Generation } from "../../../../src/engine/generation/generation.ts";
import { StepPace } from "../../../../src/engine/schedule/ahead.ts";
import { Dispatcher } from "../../../../src/engine/schedule/dispatcher.ts";
import { Scheduler } from "../../../../src/engine/schedule/scheduler.ts";
import type { Task } from "../../../../src/engine/schedule/sequence.ts";
import { Draft } from "../../../../src/engine/speculation/draft.ts";
import { TokenList } from "../../../../src/engine/token_list.ts";
import { ForgeError } from "../../../../src/errors.ts";
import {
  fakeAnswer,
  type FakeOptions,
  fakeRequest,
  FakeRunner,
  noTokenizer,
} from "../../../support/fake_runner.ts";
import { Random } from "../../../support/random.ts";

class Replicas {
  readonly runners: readonly FakeRunner[];
  readonly dispatcher: Dispatcher;
  readonly lost: number[] = [];
  /** True if devices answer after an error. */
  areWorking = false;
  readonly #schedulers: readonly Scheduler[];

  constructor(options: readonly FakeOptions[]) {
    this.runners = options.map((one) => new FakeRunner(one));
    this.#schedulers = this.runners.map((runner) =>
      new Scheduler(runner, undefined, new StepPace(1))
    );
    this.dispatcher = new Dispatcher(this.#schedulers, {
      isWorking: (replica) => this.areWorking && !this.lost.includes(replica),
      onLost: (replica) => this.lost.push(replica),
    });
  }

  async generate(
    prompt: readonly number[],
    maxTokens: number,
    signal?: AbortSignal,
  ): Promise<number[]> {
    const tokens: number[] = [];
    const request = fakeRequest(prompt, maxTokens, { signal });
    for await (const { token } of new Generation(noTokenizer, request).run(this.dispatcher)) {
      if (token !== undefined) tokens.push(token);
    }
    return tokens;
  }

  /** Fails every run of a replica from the `n`-th on. */
  failFrom(replica: number, n: number): void {
    let runs = 0;
    this.runners[replica]!.onRun = () =>
      ++runs < n
        ? Promise.resolve(undefined)
        : Promise.reject(new ForgeError("device", `replica ${replica} is gone`));
  }

  close(error: ForgeError): void {
    this.dispatcher.close(error);
    for (const scheduler of this.#schedulers) scheduler.close(error);
  }

  /** True for each replica that takes no more tasks. */
  get closed(): boolean[] {
    return this.#schedulers.map(({ isClosed }) => isClosed);
  }

  /** Number of runs of each replica. */
  get runs(): number[] {
    return this.runners.map(({ runs }) => runs.length);
  }

  /** Waits for the steps and checks that working replicas hold no pages. */
  async end(): Promise<void> {
    for (const [i, scheduler] of this.#schedulers.entries()) {
      await scheduler.idle();
      if (this.lost.includes(i)) continue;
      this.runners[i]!.checkPages();
      assertEquals(this.runners[i]!.pages.freePages, this.runners[i]!.pages.nPages);
    }
  }
}

function ids(from: number, count: number): number[] {
  return Array.from({ length: count }, (_, i) => from + i);
}

Deno.test("answers do not depend on the number of replicas, or on one that fails", async () => {
  const random = new Random("dispatcher mixes");
  for (let round = 0; round < 60; round++) {
    const count = random.int(1, 4);
    const replicas = new Replicas(
      ids(0, count).map(() => {
        const maxTokens = random.int(1, 16);
        const maxSequences = Math.min(maxTokens, random.int(1, 5));
        return { nPages: random.int(10, 40), maxTokens, maxSequences };
      }),
    );
    if (count > 1 && random.chance(0.5)) {
      replicas.failFrom(random.int(0, count - 1), random.int(1, 9));
    }
    const stems = [ids(100, 12), ids(200, 9)];
    await Promise.all(
      ids(0, random.int(1, 25)).map(async () => {
        const prompt = [
          ...random.pick(stems).slice(0, random.int(0, 12)),
          ...ids(random.int(300, 900), random.int(1, 6)),
        ];
        const maxTokens = random.int(1, 12);
        const controller = new AbortController();
        const isStopped = random.chance(0.2);
        for (let wait = random.int(0, 20); wait > 0; wait--) await Promise.resolve();
        const answer = replicas.generate(prompt, maxTokens, controller.signal);
        const stop = isStopped ? setTimeout(() => controller.abort(), random.int(0, 2)) : undefined;
        const tokens = await answer;
        clearTimeout(stop);
        const expected = fakeAnswer(prompt, maxTokens);
        assertEquals(tokens, isStopped ? expected.slice(0, tokens.length) : expected);
      }),
    );
    await replicas.end();
  }
});

Deno.test("a prompt goes to the replica that has most of it cached", async () => {
  const replicas = new Replicas([{ nPages: 40 }, { nPages: 40 }]);
  const first = ids(1, 30), second = ids(500, 30);
  await Promise.all([replicas.generate(first, 1), replicas.generate(second, 1)]);
  const computed = () => replicas.runners.map(({ runs }) => runs.at(-1)![0]!.tokens.length);
  // Each replica has computed one of the prompts.
  assertEquals(replicas.runs, [2, 2]);
  await replicas.generate([...second, 7], 1);
  assertEquals([replicas.runs, computed()[1]], [[2, 3], 1]);
  await replicas.generate([...first, 7], 1);
  assertEquals([replicas.runs, computed()[0]], [[3, 3], 1]);
});

Deno.test("conversations that arrive together continue where they are cached", async () => {
  const replicas = new Replicas(ids(0, 2).map(() => ({ nPages: 200, maxSequences: 8 })));
  const chats = [ids(1, 100), ids(300, 100)];
  replicas.runners[1]!.onRun = () => Promise.reject(new Error("computed on the other replica"));
  for (const chat of chats) await replicas.generate(chat, 1);
  replicas.runners[0]!.runs.length = 0;
  await Promise.all(chats.map((chat) => replicas.generate([...chat, 7], 1)));
  assertEquals(replicas.runners[0]!.runs.flat().map(({ tokens }) => tokens.length), [1, 1]);
});

Deno.test("a replica with a cached prompt does not get more work than the prompt saves", async () => {
  const replicas = new Replicas(ids(0, 2).map(() => ({ nPages: 200, maxSequences: 8 })));
  const shared = ids(1, 160);
  await replicas.generate(shared, 1);
  const before = replicas.runs[1]!;
  await Promise.all(ids(0, 8).map((i) => replicas.generate([...shared, 900 + i], 8)));
  assert(replicas.runs[1]! > before, "one replica had all requests");
});

Deno.test("tasks wait in one queue for the replica that has room first", async () => {
  const replicas = new Replicas(ids(0, 2).map(() => ({ nPages: 40, maxSequences: 1 })));
  const long = replicas.generate([1, 2, 3], 60);
  const short = await Promise.all(ids(0, 6).map((i) => replicas.generate([10 * i + 5], 2)));
  assertEquals(short.map(({ length }) => length), [2, 2, 2, 2, 2, 2]);
  assertEquals(replicas.runs[1], 12);
  assert(replicas.runs[0]! < 60, "short requests waited for the long one");
  assertEquals(await long, fakeAnswer([1, 2, 3], 60));
});

Deno.test("a request that is stopped in the queue is not computed", async () => {
  const replicas = new Replicas(ids(0, 2).map(() => ({ nPages: 40, maxSequences: 1 })));
  const working = ids(0, 2).map((i) => replicas.generate([i + 1], 4));
  const controller = new AbortController();
  const waiting = replicas.generate([77], 4, controller.signal);
  controller.abort();
  assertEquals(await waiting, []);
  await Promise.all(working);
  await replicas.end();
  const all = replicas.runners.flatMap(({ runs }) => runs.flat());
  assert(!all.some(({ tokens }) => tokens.includes(77)));
});

Deno.test("a moved task has no draft tokens of the device that failed", () => {
  const scheduler = () => ({
    hasRoom: true,
    load: { sequences: 0, pending: 0 },
    setOwner: () => {},
    submit: () => {},
  });
  const [failed, other] = [scheduler(), scheduler()] as unknown as [Scheduler, Scheduler];
  const dispatcher = new Dispatcher([failed, other], { isWorking: () => false, onLost: () => {} });
  using draft = new Draft(undefined, new Set());
  draft.limit = 4;
  draft.add(5);
  const task = { tokens: new TokenList([1]), isEnded: false, mayReuse: false } as unknown as Task;
  dispatcher.submit(task, { draft, stride: 1, endTokens: [], draftOutputs: () => [] });
  assert(dispatcher.takeOver(failed, [task], new ForgeError("device", "gone")));
  assertEquals(draft.tokens, []);
});

/** A scheduler that records its tasks, and a dispatcher for two of them. */
function recorded(loads: readonly { sequences: number; pending: number }[]) {
  const submitted: [replica: number, task: Task, lookahead: unknown, cached: number][] = [];
  const matched: number[] = [];
  const schedulers = loads.map((load, i) => ({
    hasRoom: true,
    load,
    cache: {
      match: (_: TokenList, limit: number) => {
        matched.push(limit);
        return { length: i === 0 ? 6 : 0 };
      },
    },
    setOwner: () => {},
    submit: (task: Task, lookahead: unknown, cached: number) =>
      submitted.push([i, task, lookahead, cached]),
  }));
  const dispatcher = new Dispatcher(schedulers as unknown as Scheduler[], {
    isWorking: () => false,
    onLost: () => {},
  });
  return { dispatcher, schedulers: schedulers as unknown as Scheduler[], submitted, matched };
}

function taskOf(length: number, more: Partial<Task> = {}): Task {
  const tokens = new TokenList(ids(1, length));
  return { tokens, isEnded: false, mayReuse: true, fail: () => {}, ...more } as unknown as Task;
}

Deno.test("a task goes where fewest tokens precede its first one, with its lookahead", () => {
  const idle = { sequences: 0, pending: 0 };
  const placeOf = (loads: Parameters<typeof recorded>[0], task: Task) => {
    const { dispatcher, submitted, matched } = recorded(loads);
    using draft = new Draft(undefined, new Set());
    const lookahead = { draft, stride: 1, endTokens: [], draftOutputs: () => [] };
    dispatcher.submit(task, lookahead);
    const [[replica, given, ahead, cached]] = submitted as [typeof submitted[0]];
    assert(given === task && ahead === lookahead);
    return { replica, cached, matched };
  };
  // The first replica has 6 of 10 tokens cached. The last token is always computed.
  assertEquals(placeOf([idle, idle], taskOf(10)), { replica: 0, cached: 6, matched: [9, 9] });
  const waits = (pending: number) => [{ sequences: 0, pending }, idle];
  assertEquals(placeOf(waits(6), taskOf(10)).replica, 0, "the first of equal ones");
  assertEquals(placeOf(waits(7), taskOf(10)).replica, 1);
  // A task that reuses nothing finds nothing cached.
  const plain = taskOf(10, { mayReuse: false });
  assertEquals(placeOf(waits(1), plain), { replica: 1, cached: 0, matched: [] });
  const sequences = [{ sequences: 1, pending: 0 }, { sequences: 0, pending: 57 }];
  assertEquals(placeOf(sequences, taskOf(10)).replica, 1, "58 tokens and 57");
  assertEquals(placeOf([sequences[0]!, { ...idle, pending: 58 }], taskOf(10)).replica, 0);
});

Deno.test("tasks of a failed device come before those that wait, without ended ones", () => {
  const { dispatcher, schedulers, submitted } = recorded([0, 1].map(() => ({
    sequences: 0,
    pending: 0,
  })));
  for (const scheduler of schedulers) Object.assign(scheduler, { hasRoom: false });
  const failed: Task[] = [];
  const fail = function (this: Task) {
    failed.push(this);
  };
  const waiting = taskOf(3, { fail }), moved = taskOf(4, { fail });
  const ended = taskOf(5, { isEnded: true, fail }), late = taskOf(6, { isEnded: true, fail });
  for (const task of [waiting, late]) dispatcher.submit(task);
  assert(dispatcher.takeOver(schedulers[0]!, [moved, ended], new ForgeError("device", "gone")));
  Object.assign(schedulers[1]!, { hasRoom: true });
  dispatcher.refill();
  assertEquals(submitted.map(([replica, task]) => [replica, task.tokens.length]), [[1, 4], [1, 3]]);
  Object.assign(schedulers[1]!, { hasRoom: false });
  for (const task of [late, waiting]) dispatcher.submit(task);
  dispatcher.close(new ForgeError("device", "closed"));
  assertEquals(failed, [waiting]);
  // A closed dispatcher moves nothing.
  const other = recorded([0, 1].map(() => ({ sequences: 0, pending: 0 })));
  const error = new ForgeError("device", "closed");
  other.dispatcher.close(error);
  assertEquals(other.dispatcher.takeOver(other.schedulers[0]!, [moved], error), false);
});

Deno.test("the last replica keeps its tasks, which fail as without others", async () => {
  const replicas = new Replicas(ids(0, 2).map(() => ({ nPages: 40 })));
  replicas.failFrom(0, 2);
  assertEquals(await replicas.generate([1, 2], 5), fakeAnswer([1, 2], 5));
  assertEquals([replicas.lost, replicas.closed], [[0], [true, false]]);
  replicas.failFrom(1, 1);
  await assertRejects(() => replicas.generate([5], 2), ForgeError, "replica 1 is gone");
  replicas.failFrom(1, 1000);
  assertEquals(await replicas.generate([5], 2), fakeAnswer([5], 2));
  assertEquals(replicas.lost, [0]);
});

Deno.test("a request that makes devices fail stops two of them at most", async () => {
  const replicas = new Replicas(ids(0, 4).map(() => ({ nPages: 40 })));
  for (const runner of replicas.runners) {
    runner.onRun = (chunks) =>
      chunks.some(({ tokens }) => tokens[0] === 666)
        ? Promise.reject(new ForgeError("device", "an illegal address"))
        : Promise.resolve(undefined);
  }
  await assertRejects(() => replicas.generate([666], 2), ForgeError, "an illegal address");
  assertEquals(replicas.lost.length, 2);
  assertEquals(await replicas.generate([5], 2), fakeAnswer([5], 2));
});

Deno.test("an error of a device that answers afterwards fails its tasks as without replicas", async () => {
  const replicas = new Replicas(ids(0, 2).map(() => ({ nPages: 40 })));
  replicas.areWorking = true;
  replicas.failFrom(0, 1);
  await assertRejects(() => replicas.generate([1], 2), ForgeError, "replica 0 is gone");
  replicas.failFrom(0, 1000);
  assertEquals(await replicas.generate([1], 2), fakeAnswer([1], 2));
  assertEquals(replicas.lost, []);
});

Deno.test("an error other than of a device fails the tasks of its replica alone", async () => {
  for (const error of [new ForgeError("bad_model", "no number"), new Error("a bug")]) {
    const replicas = new Replicas(ids(0, 2).map(() => ({ nPages: 40 })));
    replicas.runners[0]!.onRun = () => Promise.reject(error);
    await assertRejects(() => replicas.generate([1], 2), Error, error.message);
    assertEquals([replicas.lost, replicas.runs[1]], [[], 0]);
  }
});

Deno.test("texts to embed continue on another replica, too", async () => {
  const replicas = new Replicas(ids(0, 2).map(() => ({ nPages: 40 })));
  replicas.failFrom(0, 1);
  const vectors = await Promise.all(
    ids(10, 4).map((id) => new EmbeddingTask([id], "last").run(replicas.dispatcher)),
  );
  assertEquals(replicas.lost, [0]);
  assertEquals(vectors.map(([value]) => value), ids(10, 4).map((id) => fakeAnswer([id], 1)[0]));
});

Deno.test("closing fails the tasks in the queue and those of each replica", async () => {
  const replicas = new Replicas(ids(0, 2).map(() => ({ nPages: 40, maxSequences: 1 })));
  const queued = ids(1, 5).map((id) => replicas.generate([id], 50));
  const outcomes = Promise.allSettled(queued);
  await Promise.resolve();
  replicas.close(new ForgeError("device", "closed"));
  for (const { status } of await outcomes) assertEquals(status, "rejected");
  await assertRejects(() => replicas.generate([1], 1), ForgeError, "closed");
});

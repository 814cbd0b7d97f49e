/** Tests runs of several steps: their length, and tokens computed after the end of a text. */
import { assert, assertEquals } from "@std/assert";
import { Generation } from "../../../../src/engine/generation/generation.ts";
import type { GenerationRequest } from "../../../../src/engine/generation/request.ts";
import { Scheduler } from "../../../../src/engine/schedule/scheduler.ts";
import { Ahead, StepPace } from "../../../../src/engine/schedule/ahead.ts";
import { SAMPLING, type Sequence } from "../../../../src/engine/schedule/sequence.ts";
import type { Speculator } from "../../../../src/engine/speculation/speculator.ts";
import { fakeAnswer, fakeRequest, FakeRunner, noTokenizer } from "../../../support/fake_runner.ts";

const PROMPT = [3, 1, 4, 1, 5];

async function generate(
  scheduler: Scheduler,
  maxTokens: number,
  rest: Partial<GenerationRequest> = {},
): Promise<number[]> {
  const tokens: number[] = [];
  const request = fakeRequest(PROMPT, maxTokens, rest);
  for await (const { token } of new Generation(noTokenizer, request).run(scheduler)) {
    if (token !== undefined) tokens.push(token);
  }
  return tokens;
}

/** A pace that measures the same tiny cost for every step on any machine. */
class FreeSteps extends StepPace {
  override measure(rows: number): void {
    super.measure(rows, 0.01);
  }
}

/** Returns a runner and a scheduler whose runs have up to `most` steps. */
function paced(most: number, options: ConstructorParameters<typeof FakeRunner>[0]) {
  const runner = new FakeRunner(options);
  return { runner, scheduler: new Scheduler(runner, undefined, new FreeSteps(most)) };
}

Deno.test("step series: one step is timed, then runs have several", async () => {
  const { runner, scheduler } = paced(4, { nPages: 20 });
  assertEquals(await generate(scheduler, 12), fakeAnswer(PROMPT, 12));
  // The prompt gives one token, and so does the timed step.
  assertEquals(runner.runs.map(([chunk]) => chunk!.start), [0, 5, 6, 10, 14]);
  assertEquals(runner.nSteps, 1 + 1 + 4 + 4 + 2);
});

Deno.test("step series: an end token ends the run", async () => {
  const { runner, scheduler } = paced(8, { nPages: 20 });
  const answer = fakeAnswer(PROMPT, 20);
  const tokens = await generate(scheduler, 20, { endTokens: new Set([answer[4]!]) });
  assertEquals(tokens, answer.slice(0, 4));
  assertEquals(runner.nSteps, 5);
});

Deno.test("step series: a reader that leaves does not change other answers", async () => {
  const { runner, scheduler } = paced(6, { nPages: 40, nSlots: 6 });
  const leave = async () => {
    for await (
      const { token } of new Generation(noTokenizer, fakeRequest([7, 7], 50)).run(scheduler)
    ) {
      if (token !== undefined && runner.nSteps > 9) break;
    }
  };
  const [, tokens] = await Promise.all([leave(), generate(scheduler, 30)]);
  assertEquals(tokens, fakeAnswer(PROMPT, 30));
  await scheduler.idle();
  // Sequences that continue either text find matching states and pages; the runner checks this.
  const next = [7, 7, ...fakeAnswer([7, 7], 4), 1];
  const generated: number[] = [];
  for await (const { token } of new Generation(noTokenizer, fakeRequest(next, 5)).run(scheduler)) {
    if (token !== undefined) generated.push(token);
  }
  assertEquals(generated, fakeAnswer(next, 5));
});

Deno.test("step series: runs become shorter when pages run out, without preemption", async () => {
  const { runner, scheduler } = paced(8, { nPages: 8, pageTokens: 2, maxSequences: 2 });
  const generated = await Promise.all([
    generate(scheduler, 4),
    generate(scheduler, 3, { stream: 1 }),
  ]);
  assertEquals(generated, [fakeAnswer(PROMPT, 4), fakeAnswer(PROMPT, 3)]);
  assertEquals(scheduler.preemptions, 0);
  assertEquals(await generate(scheduler, 11), fakeAnswer(PROMPT, 11));
  await scheduler.idle();
  runner.checkPages();
});

Deno.test("step series: long steps are run one by one, short ones together", () => {
  const pace = new StepPace();
  assertEquals(pace.steps(1), 1);
  pace.measure(1, 2.4);
  pace.measure(8, 30);
  assertEquals([pace.steps(1), pace.steps(8), pace.steps(2)], [8, 1, 1]);
  pace.measure(1, 0);
  assert(pace.steps(1) > 16 && Number.isInteger(pace.steps(1)));
});

Deno.test("step series: the time of a run is divided among the steps that it took", () => {
  const pace = new StepPace();
  const measured: (readonly [rows: number, milliseconds: number])[] = [];
  const measure = (rows: number, milliseconds: number) => measured.push([rows, milliseconds]);
  const ahead = new Ahead(
    new FakeRunner({ nPages: 1 }),
    { measure } as unknown as Speculator,
    pace,
  );
  const record = (
    drafted: readonly number[],
    nSteps: number,
    nResults: number,
    took: number,
    pending = 1,
  ) => {
    const task = { kind: SAMPLING, scoresAll: false, isWhole: false };
    const length = 4 + pending;
    const sequence = { task, length, computed: 4, pending } as unknown as Sequence;
    const plan = [{ sequence, end: length, drafted, branches: [] }];
    ahead.measure({ plan, options: { nSteps }, saving: 2 }, [Array(nResults).fill(0)], took);
  };
  // An end token ended the run after four of eight steps.
  record([], 8, 4, 18);
  record([7, 7, 7], 1, 4, 8);
  assertEquals([pace.steps(1), pace.steps(4), pace.steps(2)], [4, 2, 1]);
  assertEquals(measured, [[1, 5], [4, 10]]);
  // Neither a prompt nor a step of which nothing is left is a step that only decodes.
  record([], 1, 1, 99, 9);
  ahead.measure({ plan: [], options: { nSteps: 1 }, saving: 0 }, [], 99);
  assertEquals(measured.length, 2);
});

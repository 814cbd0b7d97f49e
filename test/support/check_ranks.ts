/**
 * Exchanges of two GPUs: series of steps, and mistakes that the stand-in for NCCL reports. Run in a
 * separate process. The argument is the name of a check below.
 */
import { assertEquals, assertRejects } from "@std/assert";
import { NativeBackend } from "../../ffi/native_backend.ts";
import { DeviceGroup, type OutputRequest, type Step, type StepResult } from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import { openDevice } from "./devices.ts";
import { randomMatrix } from "./matrix.ts";
import { Random } from "./random.ts";
import { limitsOf, outputRow, StepGraph, tokenInputs } from "./step_graph.ts";
import { f32Weight } from "./weights.ts";

const random = new Random("ranks");
const ranks = ["0", "1"].map((selector) =>
  openDevice({ name: `cuda:${selector}`, kind: "cuda", selector })
);

/** Runs a step on two stages, of which the first sends values and the second receives them. */
async function send(sent: readonly number[], received: readonly number[]): Promise<void> {
  NativeBackend.join(ranks, 2);
  const inputs = tokenInputs(3);
  const [first, second] = ranks.map((rank) => new StepGraph(rank, rank.record(limitsOf(inputs))));
  for (const cols of sent) {
    first!.recorder.send(first!.input(randomMatrix(random, 3, cols)));
  }
  for (const cols of received) second!.recorder.keep(second!.recorder.receive(cols));
  const steps = await Promise.all([first!.recorder.finish(), second!.recorder.finish()]);
  await Promise.all(steps.map((step) => step.run(inputs)));
}

/** Runs a step on both ranks, each of which sums values of the given widths. */
async function sum(...widths: readonly (readonly number[])[]): Promise<void> {
  NativeBackend.join(ranks);
  const inputs = tokenInputs(3);
  const steps = await Promise.all(ranks.map((rank, i) => {
    const graph = new StepGraph(rank, rank.record(limitsOf(inputs)));
    for (const cols of widths[i]!) {
      graph.recorder.keep(graph.recorder.allReduce(graph.input(randomMatrix(random, 3, cols))));
    }
    return graph.recorder.finish();
  }));
  await Promise.all(steps.map((step) => step.run(inputs)));
}

const vocabulary = 40;

/** Records a step that sums values of both ranks, multiplies and samples. */
async function samplingStep(): Promise<Step> {
  NativeBackend.join(ranks);
  const cols = 16;
  const group = new DeviceGroup(ranks);
  const limits = { maxTokens: 2, maxOutputs: 2, maxSequences: 2, maxPages: 1 };
  const recorder = group.record(limits);
  for (const [i, own] of recorder.devices.entries()) {
    const graph = new StepGraph(ranks[i]!, own);
    const x = graph.input(randomMatrix(random, vocabulary, cols));
    const head = graph.weight(f32Weight(randomMatrix(new Random("head"), vocabulary, cols)));
    own.sample(own.matmul(own.gatherOutputs(own.allReduce(x)), head), 1);
  }
  return await recorder.finish();
}

/** Compares runs of several steps with single ones. */
async function series(): Promise<void> {
  const nSteps = 11;
  const step = await samplingStep();
  const inputsAt = (tokens: readonly number[], position: number) => ({
    tokens,
    positions: [position, position],
    sequences: [0, 1],
    pageTables: [[0], [1]],
    outputs: [0, 1].map((row): OutputRequest => outputRow(row, { position })),
  });
  const tokenOf = (result: StepResult) => "token" in result ? result.token : -1;
  const single: number[] = [];
  for (let i = 0, tokens = [3, 5]; i < nSteps; i++) {
    tokens = (await step.run(inputsAt(tokens, i))).map(tokenOf);
    single.push(...tokens);
  }
  for (let run = 0; run < 3; run++) {
    const results = await step.run({ ...inputsAt([3, 5], 0), nSteps });
    assertEquals(results.map(tokenOf), single);
  }
}

/** Keeps this thread busy, so that no mask is reported complete. */
function wait(milliseconds: number): void {
  for (const end = performance.now() + milliseconds; performance.now() < end;);
}

/** Stops runs while the rank that samples waits for a mask: the next ones succeed. */
async function stopped(): Promise<void> {
  const step = await samplingStep();
  const run = (request: Partial<OutputRequest> = {}) =>
    step.run({
      tokens: [3],
      positions: [0],
      sequences: [0],
      pageTables: [[0]],
      outputs: [outputRow(0, request)],
    });
  const expected = await run();
  const mask = new Uint32Array(Math.ceil(vocabulary / 32));
  const fillMask = () => {
    // All launches are enqueued by then.
    wait(300);
    step.cancel();
    wait(100);
  };
  for (let i = 0; i < 3; i++) {
    const late = { sampling: { ...outputRow(0).sampling, mask }, fillMask };
    await assertRejects(() => run(late), ForgeError, "stopped");
    assertEquals(await run(), expected);
  }
}

const checks: Readonly<Record<string, () => Promise<void>>> = {
  series,
  "stopped runs": stopped,
  "equal sums": () => sum([8, 4], [8, 4]),
  "different counts": () => sum([8, 4], [8, 5]),
  "a missing sum": () => sum([8, 4], [8]),
  "equal messages": () => send([8, 4], [8, 4]),
  "different messages": () => send([8, 4], [8, 5]),
  "a missing message": () => send([8], [8, 4]),
};
await checks[Deno.args[0]!]!();
for (const rank of ranks) rank.close();

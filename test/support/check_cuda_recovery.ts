/**
 * The CUDA device after a failure that it survives, injected by the stand-in for the driver
 * (`check_cuda_recovery.ts capture|stream`), after one that it does not survive (`loss`), or with
 * many shapes of steps (`shapes`). Run in a separate process.
 */
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { findLibrary, Library } from "../../ffi/library.ts";
import { ForgeError } from "../../src/errors.ts";
import { openDevice } from "./devices.ts";
import { LogitSampler } from "./logit_sampler.ts";
import { randomMatrix } from "./matrix.ts";
import { Random } from "./random.ts";
import { outputRow, StepGraph } from "./step_graph.ts";

const gpu = { name: "cuda", kind: "cuda", selector: "" } as const;

/** A launch finds no memory while a step is captured: that run fails, later runs succeed. */
async function checkCapture(): Promise<void> {
  using device = openDevice(gpu);
  const sampler = await LogitSampler.record(device, randomMatrix(new Random("logits"), 1, 300), {
    maxTop: 2,
  });
  const outcomes: string[] = [];
  for (let run = 0; run < 6; run++) {
    try {
      outcomes.push(JSON.stringify(await sampler.sample([{ nTop: 2 }])));
    } catch (error) {
      assert(
        error instanceof ForgeError && /CUDA_ERROR_OUT_OF_MEMORY/.test(error.message),
        `${error}`,
      );
      outcomes.push("refused");
    }
  }
  const [first, ...rest] = outcomes;
  assertEquals(rest.filter((outcome) => outcome === "refused").length, 1, outcomes.join("\n"));
  assert(rest.every((outcome) => outcome === first || outcome === "refused"), outcomes.join("\n"));
  assertEquals(rest.at(-1), first);
  sampler.release();
}

/**
 * Runs of random shapes, more than are kept at once, in which each token's result stays the same.
 */
async function checkShapes(): Promise<void> {
  using device = openDevice(gpu);
  const random = new Random("shapes");
  const most = 8;
  const limits = { maxTokens: most, maxOutputs: most, maxSequences: 1, maxPages: 1 };
  const graph = new StepGraph(device, device.record(limits));
  const logits = graph.input(randomMatrix(random, most, 40));
  graph.recorder.sample(graph.recorder.gatherOutputs(logits), 1);
  const step = await graph.recorder.finish();
  const run = async (tokens: number[], runLength: number, outputs: number, nTop: number) => {
    const results = await step.run({
      tokens,
      positions: tokens.map((_, i) => i % runLength),
      sequences: tokens.map(() => 0),
      pageTables: [[0]],
      outputs: tokens.slice(0, outputs).map((_, row) => ({ ...outputRow(row), nTop })),
    });
    return results.map((result) => result instanceof ForgeError ? result.message : result.token);
  };
  const choices = await run(Array.from({ length: most }, (_, i) => i), 1, most, 0);
  for (let round = 0; round < 150; round++) {
    const tokens = Array.from(
      { length: random.int(1, most) },
      () => random.int(0, most - 1),
    );
    const outputs = random.int(1, tokens.length);
    const runLength = 2 ** random.int(0, 3);
    const nTop = random.int(0, 1);
    for (let repeat = 0; repeat < 2; repeat++) {
      const expected = tokens.slice(0, outputs).map((token) => choices[token]);
      assertEquals(await run(tokens, runLength, outputs, nTop), expected);
    }
  }
  step.release();
}

/** A device without a stream cannot be opened; opening one later succeeds. */
function checkStream(): void {
  assertThrows(() => openDevice(gpu), ForgeError, "cuStreamCreate");
  using device = openDevice(gpu);
  assertEquals(device.kind, "cuda");
}

/** Each device is lost with a result of its own: later runs repeat the error of the first. */
async function checkLoss(): Promise<void> {
  using library = Library.open("cuda", findLibrary("cuda")!);
  for (const { selector } of library.devices()) {
    using device = openDevice({ ...gpu, selector });
    const logits = randomMatrix(new Random("logits"), 1, 300);
    const sampler = await LogitSampler.record(device, logits);
    const sample = () => sampler.sample([{}]);
    const lost = "this process cannot use the device any more";
    const { message } = await assertRejects(sample, ForgeError, lost);
    const [, cause = ""] = /^\w+: (.+); this process/.exec(message) ?? [];
    assert(cause !== "", message);
    const earlier = `CUDA device ${selector} failed earlier: ${cause}; start forge again`;
    for (let run = 0; run < 2; run++) await assertRejects(sample, ForgeError, earlier);
  }
}

const [failure] = Deno.args;
if (failure === "capture") await checkCapture();
else if (failure === "loss") await checkLoss();
else if (failure === "shapes") await checkShapes();
else checkStream();
console.log("recovered");

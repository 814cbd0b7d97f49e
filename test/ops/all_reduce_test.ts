/** Tests the sum over devices that divide a model, on parts of a processor. */
import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { NativeBackend } from "../../ffi/native_backend.ts";
import type { Step, Value } from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import { devices, deviceTest, isGpu, openDevice, type TestDevice } from "../support/devices.ts";
import { type Matrix, randomMatrix } from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { limitsOf, StepGraph, tokenInputs } from "../support/step_graph.ts";

interface RankStep {
  readonly step: Step;
  readonly sums: readonly Value[];
}

/** Records a step that sums each of some matrices. */
async function record(device: NativeBackend, xs: readonly Matrix[]): Promise<RankStep> {
  const recorder = device.record(limitsOf(tokenInputs(xs[0]!.rows)));
  const graph = new StepGraph(device, recorder);
  const sums = xs.map((x) => recorder.allReduce(graph.input(x)));
  for (const sum of sums) recorder.keep(sum);
  return { step: await recorder.finish(), sums };
}

async function withGroup(
  device: TestDevice,
  count: number,
  test: (ranks: NativeBackend[]) => Promise<void>,
): Promise<void> {
  const ranks = Array.from({ length: count }, () => openDevice(device, 1));
  try {
    NativeBackend.join(ranks);
    await test(ranks);
  } finally {
    for (const rank of ranks) rank.close();
  }
}

function codeOf(result: PromiseSettledResult<unknown>): string | undefined {
  return result.status === "rejected" ? (result.reason as ForgeError).code : undefined;
}

const processors = devices.filter((device) => !isGpu(device))
  .filter(({ kind }, i, all) => all.findIndex((other) => other.kind === kind) === i);

for (const device of processors) {
  Deno.test(`all_reduce sums in the order of the ranks (${device.name})`, async () => {
    const random = new Random("all_reduce");
    for (
      const [count, rows, widths] of [[2, 1, [1, 7]], [3, 5, [64]], [8, 3, [33, 2, 100]]] as const
    ) {
      await withGroup(device, count, async (ranks) => {
        const xs = ranks.map(() => widths.map((cols) => randomMatrix(random, rows, cols, 1000)));
        const steps = await Promise.all(ranks.map((rank, i) => record(rank, xs[i]!)));
        // Ranks that begin in any order, twice.
        for (let run = 0; run < 2; run++) {
          const order = random.permutation(count);
          await Promise.all(order.map((rank) => steps[rank]!.step.run(tokenInputs(rows))));
          for (const { step, sums } of steps) {
            widths.forEach((cols, k) => {
              const actual = step.read(sums[k]!, cols, 0, rows);
              const expected = actual.map((_, i) =>
                Math.fround(xs.reduce((sum, own) => sum + own[k]!.data[i]!, 0))
              );
              assertEquals(actual, expected);
            });
          }
        }
      });
    }
  });

  Deno.test(`all_reduce ends when a rank is stopped, and works again (${device.name})`, async () => {
    const random = new Random("stopped ranks");
    await withGroup(device, 3, async (ranks) => {
      const x = randomMatrix(random, 2, 9);
      const steps = await Promise.all(ranks.map((rank) => record(rank, [x])));
      const inputs = tokenInputs(2);
      // The last rank never runs: the others wait for it until they are stopped.
      const waiting = Promise.allSettled(steps.slice(0, 2).map(({ step }) => step.run(inputs)));
      await new Promise((resolve) => setTimeout(resolve, 30));
      for (const { step } of steps) step.cancel();
      assertEquals((await waiting).map(codeOf), ["cancelled", "cancelled"]);
      await Promise.all(steps.map(({ step }) => step.run(inputs)));
      const { step, sums } = steps[1]!;
      assertEquals(step.read(sums[0]!, 9, 0, 2), Float32Array.from(x.data, (value) => 3 * value));
    });
  });

  Deno.test(`all_reduce rejects ranks with different counts (${device.name})`, async () => {
    const random = new Random("different counts");
    await withGroup(device, 2, async (ranks) => {
      const steps = await Promise.all(
        ranks.map((rank, i) => record(rank, [randomMatrix(random, 1, 4 + i)])),
      );
      const runs = await Promise.allSettled(steps.map(({ step }) => step.run(tokenInputs(1))));
      assertEquals(runs.map(codeOf), ["device", "device"]);
    });
  });
}

deviceTest("all_reduce needs a group", async (device, random) => {
  await assertRejects(
    () => record(device, [randomMatrix(random, 1, 8)]),
    ForgeError,
    "all_reduce: the device is in no group",
  );
});

deviceTest("groups of one device, or of the same device twice, are refused", (device) => {
  assertThrows(() => NativeBackend.join([device]), ForgeError, "1 devices; valid is 2 to 64");
  assertThrows(() => NativeBackend.join([device, device]), ForgeError, "is given twice");
});

/** Tests what devices that divide a model exchange, on parts of a processor. */
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { GROUP_KEY_BYTES, NativeBackend } from "../../ffi/native_backend.ts";
import type { Recorder, Step, Value } from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import { devices, deviceTest, isGpu, openDevice, type TestDevice } from "../support/devices.ts";
import { type Matrix, randomMatrix } from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { RawBorder, status } from "../support/raw_border.ts";
import { limitsOf, StepGraph, tokenInputs } from "../support/step_graph.ts";
import { f32Weight } from "../support/weights.ts";
import { assertClose } from "../models/reference_check.ts";

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
  nStages = 1,
): Promise<void> {
  const ranks = Array.from({ length: count }, () => openDevice(device, 1));
  try {
    NativeBackend.join(ranks, nStages);
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

/** Records a step of each of three stages, which adds a matrix to what it receives. */
async function recordStages(devices: readonly NativeBackend[], xs: readonly Matrix[]) {
  const [{ rows, cols }] = xs as [Matrix];
  return await Promise.all(devices.map(async (device, i) => {
    const recorder = device.record(limitsOf(tokenInputs(rows)));
    const own = new StepGraph(device, recorder).input(xs[i]!);
    const h = i < 2 ? own : addTo(device, recorder, recorder.receive(cols), own);
    const sum = recorder.allReduce(h);
    recorder.keep(sum);
    if (i < devices.length - 2) recorder.send(sum);
    return { step: await recorder.finish(), sum };
  }));
}

/** Records `x + y`, as the residual of a product with ones on the diagonal. */
function addTo(device: NativeBackend, recorder: Recorder, x: Value, y: Value): Value {
  const size = 6;
  const diagonal = Float32Array.from({ length: size * size }, (_, i) => i % (size + 1) ? 0 : 1);
  const weight = new StepGraph(device, recorder)
    .weight(f32Weight({ rows: size, cols: size, data: diagonal }));
  return recorder.matmul(x, weight, { residual: y });
}

for (const device of processors) {
  Deno.test(`stages send values to the ranks of the next (${device.name})`, async () => {
    const random = new Random("stages");
    await withGroup(device, 6, async (devices) => {
      const xs = devices.map(() => randomMatrix(random, 4, 6));
      const steps = await recordStages(devices, xs);
      for (let run = 0; run < 2; run++) {
        const order = random.permutation(6);
        await Promise.all(order.map((i) => steps[i]!.step.run(tokenInputs(4))));
        const expected = xs[0]!.data.map((_, i) => {
          const at = (device: number) => xs[device]!.data[i]!;
          // A value is sent to both ranks of the next stage, and doubled by their sum.
          return 4 * (at(0) + at(1)) + 2 * (at(2) + at(3)) + at(4) + at(5);
        });
        for (const { step, sum } of steps.slice(4)) {
          assertClose(step.read(sum, 6, 0, 4), expected, 1e-5);
        }
      }
    }, 3);
  });

  Deno.test(`a stage that is stopped ends the wait of the others (${device.name})`, async () => {
    const random = new Random("stopped stages");
    await withGroup(device, 4, async (devices) => {
      const xs = devices.map(() => randomMatrix(random, 2, 6));
      const steps = await recordStages(devices, xs);
      for (const missing of [[0, 1], [2, 3], [3]]) {
        const begun = steps.filter((_, i) => !missing.includes(i));
        const waiting = Promise.allSettled(begun.map(({ step }) => step.run(tokenInputs(2))));
        await new Promise((resolve) => setTimeout(resolve, 20));
        for (const { step } of steps) step.cancel();
        assert((await waiting).some((result) => codeOf(result) === "cancelled"));
      }
      await Promise.all(steps.map(({ step }) => step.run(tokenInputs(2))));
    }, 2);
  });

  Deno.test(`ends of a model have no stage to exchange with (${device.name})`, async () => {
    await withGroup(device, 2, ([first, last]) => {
      const limits = limitsOf(tokenInputs(1));
      const begin = first!.record(limits), end = last!.record(limits);
      assertThrows(() => begin.receive(8), ForgeError, "receive: no stage precedes");
      const h = end.receive(8);
      assertThrows(() => end.send(h), ForgeError, "send: no stage follows");
      assertThrows(() => end.allReduce(h), ForgeError, "all_reduce: the device is in no group");
      assertThrows(() => end.receive(0), ForgeError, "receive: a result of 0 columns");
      assertThrows(() => end.send(end.gatherOutputs(h)), ForgeError, "send: ");
      return Promise.resolve();
    }, 2);
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
  assertThrows(() => NativeBackend.join([device, device], 3), ForgeError, "cannot be 3 stages");
  assertThrows(() => NativeBackend.join([device, device]), ForgeError, "is given twice");
});

for (const device of processors) {
  Deno.test(`parts of groups that contradict themselves are refused (${device.name})`, () => {
    using border = new RawBorder(device);
    const { symbols: s } = border;
    const { invalidArgument, unsupported } = status;
    // Processors join no other processes: they call even a valid part unsupported.
    const parts: [what: string, devices: number, group: number[], keys: number, status: number][] =
      [
        ["a part with keys", 1, [2, 1, 0], 2, unsupported],
        ["the last of two devices", 1, [2, 1, 1], 2, unsupported],
        ["no device", 0, [2, 1, 0], 2, invalidArgument],
        ["a device after the last", 1, [2, 1, 2], 2, invalidArgument],
        ["the last of 64 devices", 1, [64, 2, 63], 3, unsupported],
        ["65 devices", 1, [65, 1, 0], 2, invalidArgument],
        ["no stages", 1, [2, 0, 0], 1, invalidArgument],
        ["3 stages of 4 devices", 1, [4, 3, 0], 4, invalidArgument],
        ["too few keys", 1, [4, 2, 0], 2, invalidArgument],
        ["too many keys", 1, [4, 2, 0], 4, invalidArgument],
        ["more devices than the group has", 3, [2, 1, 0], 2, invalidArgument],
        ["half of a group without keys", 1, [2, 1, 0], 0, invalidArgument],
      ];
    for (const [what, n, group, keys, expected] of parts) {
      const bytes = new Uint8Array(keys * GROUP_KEY_BYTES);
      // A buffer without elements would be null.
      const devices = new Uint32Array(Math.max(1, n)).fill(border.device);
      const result = s.forge_devices_join(
        devices,
        n,
        Uint32Array.from(group),
        keys === 0 ? null : bytes,
        BigInt(bytes.length),
      );
      assertEquals(result, expected, what);
    }
    const one = Uint32Array.of(border.device), half = Uint32Array.of(2, 1, 0);
    const keys = new Uint8Array(2 * GROUP_KEY_BYTES), keyBytes = BigInt(keys.length);
    assertEquals(s.forge_devices_join(null, 1, half, keys, keyBytes), invalidArgument);
    assertEquals(s.forge_devices_join(one, 1, null, keys, keyBytes), invalidArgument);
    for (const [size, isValid] of [[0, false], [1, true], [65, true], [66, false]] as const) {
      const bytes = new Uint8Array(size * GROUP_KEY_BYTES);
      const result = s.forge_group_keys(border.device, bytes, BigInt(bytes.length));
      assertEquals(result, isValid ? unsupported : invalidArgument, `${size} keys`);
    }
    const short = new Uint8Array(GROUP_KEY_BYTES - 1);
    assertEquals(s.forge_group_keys(border.device, short, BigInt(short.length)), invalidArgument);
  });
}

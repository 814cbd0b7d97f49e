/** Time and memory that devices and steps report, for benchmarks. */
import { assert, assertEquals } from "@std/assert";
import { readText } from "../../ffi/status.ts";
import { borderTest, status } from "../support/raw_border.ts";
import { deviceTest, isGpu } from "../support/devices.ts";
import { randomMatrix } from "../support/matrix.ts";
import { limitsOf, StepGraph, tokenInputs } from "../support/step_graph.ts";

deviceTest(
  "a step reports the duration of its last run, at most what the caller measured",
  async (device, random) => {
    const inputs = tokenInputs(3);
    const recorder = device.record(limitsOf(inputs));
    new StepGraph(device, recorder).input(randomMatrix(random, 3, 64));
    const step = await recorder.finish();
    assertEquals(step.nativeTime(), 0, "before the first run");
    const start = performance.now();
    await step.run(inputs);
    const seen = (performance.now() - start) * 1e6;
    const native = step.nativeTime();
    // performance.now() is rounded to some microseconds.
    assert(native > 0 && native <= seen + 1e5, `${native} of ${seen} ns`);
    step.release();
  },
);

deviceTest("the peak memory of the process includes memory just used", (device) => {
  const bytes = 128 * 2 ** 20;
  const before = device.peakMemory();
  if (before === 0) return;
  const used = new Uint8Array(bytes).fill(1);
  const after = device.peakMemory();
  assert(after >= before && after >= used.length, `${before}, then ${after}`);
});

deviceTest("the rate of products of matrices is a plausible number, or unknown", (device) => {
  const rate = device.matrixRate();
  if (device.kind !== "metal") assertEquals(rate, 0);
  else assert(rate > 1e3 && rate < 1e15, `${rate} operations a second`);
});

deviceTest("the bandwidth of the memory is a plausible number, or unknown", (device) => {
  const rate = device.readBandwidth();
  if (device.kind === "reference") assertEquals(rate, 0);
  if (device.kind === "cpu" || device.kind === "metal") {
    assert(rate > 1e8 && rate < 1e14, `${rate} bytes a second`);
  }
});

deviceTest("a step takes its weights from the free memory of a GPU", async (device, random) => {
  if (!isGpu(device)) return;
  const before = device.memory();
  const inputs = tokenInputs(3);
  const recorder = device.record(limitsOf(inputs));
  new StepGraph(device, recorder).input(randomMatrix(random, 3, 2 ** 18));
  const step = await recorder.finish();
  const after = device.memory();
  assertEquals(after.total, before.total);
  assert(after.free <= before.free - 3 * 2 ** 20, `${before.free}, then ${after.free}`);
  step.release();
});

borderTest("the properties of a device name its memory", ({ symbols: s, device }) => {
  const info = JSON.parse(readText((text, room) => {
    assertEquals(s.forge_device_info(device, text, room), status.ok);
  }));
  assert(info.name.length > 0 && info.kernels.length > 0 && Array.isArray(info.features));
  assert(info.threads === 1 || info.threads === 2);
  const [total, free] = [new BigUint64Array(1), new BigUint64Array(1)];
  assertEquals(s.forge_device_memory(device, total, free), status.ok);
  assertEquals(BigInt(info.memory_bytes), total[0]);
  assert(free[0]! <= total[0]!, `${free[0]} of ${total[0]}`);
});

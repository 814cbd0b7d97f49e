/** Time and memory that devices and steps report, for benchmarks. */
import { assert, assertEquals } from "@std/assert";
import { readText } from "../../ffi/status.ts";
import type { TensorType } from "../../src/formats/tensor_info.ts";
import { borderTest, status } from "../support/raw_border.ts";
import { devices, deviceTest, isGpu, multipliesBf16, openDevice } from "../support/devices.ts";
import { randomMatrix } from "../support/matrix.ts";
import { limitsOf, outputRow, StepGraph, tokenInputs } from "../support/step_graph.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { randomWeight } from "../support/weights.ts";

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

const processors = devices.filter((device) => !isGpu(device));

for (const device of devices.filter(({ kind }) => kind === "cpu")) {
  Deno.test({
    name: `the name of the processor is that of the system (${device.name})`,
    ignore: Deno.build.os !== "linux",
    fn() {
      const values = new Map(
        Deno.readTextFileSync("/proc/cpuinfo").split("\n")
          .map((line) => line.split(":").map((part) => part.trim()) as [string, string])
          .filter(([, value]) => value),
      );
      const known = ["model name", "Model", "Hardware"].map((key) => values.get(key));
      const architecture = Deno.build.arch === "x86_64" ? "x86-64" : Deno.build.arch;
      using backend = openDevice(device);
      assertEquals(backend.info.name, known.find((name) => name !== undefined) ?? architecture);
    },
  });
}

deviceTest("the memory of a step has room for values, and for copies of fewer bits", async (
  device,
  random,
) => {
  const cols = 4096, rows = 32;
  const bytesOf = async (type: TensorType, maxTokens: number) => {
    const recorder = device.record({ maxTokens, maxOutputs: 1, maxSequences: 1, maxPages: 1 });
    const graph = new StepGraph(device, recorder);
    const x = graph.input(randomMatrix(random, 1, cols));
    recorder.keep(x);
    recorder.keep(recorder.matmul(x, graph.weight(randomWeight(random, type, rows, cols))));
    const step = await recorder.finish();
    const bytes = step.scratchBytes;
    step.release();
    return bytes;
  };
  const roundsToBf16 = multipliesBf16({ selector: device.info.kernels });
  const copies = device.kind === "cpu" ? { Q8_0: cols, BF16: roundsToBf16 ? 2 * cols : 0 } : {};
  for (const type of ["Q8_0", "BF16"] as const) {
    const perToken = (await bytesOf(type, 96) - await bytesOf(type, 64)) / 32;
    const least = 4 * (cols + rows) + (copies[type] ?? 0);
    assert(perToken >= least && perToken < 1.5 * least, `${type}: ${perToken} bytes a token`);
  }
}, processors);

deviceTest("a profile counts the bytes and the arithmetic of each operation", async (
  device,
  random,
) => {
  using folder = new TempFolder();
  const recorder = device.record({ maxTokens: 4, maxOutputs: 4, maxSequences: 2, maxPages: 2 });
  const graph = new StepGraph(device, recorder);
  const weight = (type: TensorType, rows: number, cols: number) =>
    graph.weight(randomWeight(random, type, rows, cols));
  const heads = { nKvHeads: 1, kHeadDim: 4, vHeadDim: 16 };
  const kv = graph.kv({ type: "F32", nPages: 4, pageTokens: 4, ...heads });
  const qkv = recorder.embed(weight("F32", 40, 2 * 4 + 4 + 16));
  const q = recorder.ropeAppend(qkv, kv, { nHeads: 2, eps: 1e-5, ropeLayout: "half" });
  const x = recorder.attention(q, kv, { nHeads: 2, scale: 1 });
  const parts = (["Q8_0", "F32", "F32"] as const).map((type, i) => {
    const { bytes } = randomWeight(random, type, 1 + i, 32);
    const file = folder.write(`${i}`, bytes);
    const shape = [1 + i, 32];
    return { tensor: { name: type, type, shape, file, offset: 0, bytes: bytes.length } };
  });
  const logits = recorder.matmul(x, device.mapWeight(parts, 32));
  const route = recorder.moeRoute(logits, { topK: 2, normalize: true });
  const experts = recorder.moeMatmul(x, route, weight("F32", 6 * 4, 32), 6);
  const outputs = recorder.gatherOutputs(recorder.moeCombine(experts, route));
  recorder.sample(recorder.matmul(outputs, weight("F32", 7, 4)), 0);
  const step = await recorder.finish();
  step.profile(true);

  const floats = (rows: number, cols: number) => 4 * rows * cols;
  /** The work of a step of `n` tokens, by the keys that each sees and the most of a sequence. */
  const work = (n: number, nOutputs: number, visible: number, longest: number) =>
    [
      ["embed", "40 x 28 F32", 2 * floats(n, 28), 0],
      ["rope_append", "", floats(n, 28) + floats(n, 8), 0],
      [
        "attention",
        "",
        longest * kv.pageBytes / 4 + floats(n, 8) + floats(n, 32),
        2 * visible * 2 * (4 + 16),
      ],
      [
        "matmul",
        "6 x 32 F32+Q8_0",
        34 + floats(5, 32) + floats(n, 32) + floats(n, 6),
        2 * n * 6 * 32,
      ],
      ["moe_route", "", floats(n, 6) + floats(n, 4), 0],
      [
        "moe_matmul",
        "24 x 32 F32",
        floats(Math.min(2 * n, 6) * 4, 32) + floats(n, 32) + floats(n, 4) + floats(n, 8),
        2 * 2 * n * 4 * 32,
      ],
      ["moe_combine", "", floats(n, 8) + floats(n, 4) + floats(n, 4), 0],
      ["gather_outputs", "", floats(n, 4) + floats(nOutputs, 4), 0],
      [
        "matmul",
        "7 x 4 F32",
        floats(7, 4) + floats(nOutputs, 4) + floats(nOutputs, 7),
        2 * nOutputs * 7 * 4,
      ],
      ["sample", "", floats(nOutputs, 7), 0],
    ].map((row) => row as [string, string, number, number]);
  const profiled = () =>
    step.operationTimes().map(({ step, operation, matrix, bytes, flops }) =>
      [step, operation, matrix, bytes, flops] as const
    );
  const pageTables = [[0, 1], [2, 3]];
  // The tokens see 1, 2, 6 and 7 keys; then those of two steps 3 and 4, and 4 and 5.
  await step.run({
    tokens: [1, 2, 3, 4],
    positions: [0, 1, 5, 6],
    sequences: [0, 0, 1, 1],
    pageTables,
    outputs: [outputRow(2)],
  });
  assertEquals(profiled(), work(4, 1, 16, 9).map((row) => [0, ...row]));
  await step.run({
    tokens: [1, 2],
    positions: [2, 3],
    sequences: [0, 1],
    pageTables,
    outputs: [outputRow(0), outputRow(1)],
    nSteps: 2,
  });
  assertEquals(
    profiled(),
    [work(2, 2, 7, 7), work(2, 2, 9, 9)].flatMap((rows, i) => rows.map((row) => [i, ...row])),
  );
  await step.run({ ...tokenInputs(1), outputs: [outputRow(0)] });
  assertEquals(profiled(), work(1, 1, 1, 1).map((row) => [0, ...row]));
  step.profile(false);
  await step.run(tokenInputs(1));
  assertEquals(profiled(), []);
  step.release();
}, processors);

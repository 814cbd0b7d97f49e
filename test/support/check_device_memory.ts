/**
 * Fills the memory of a GPU until a step just fits: what a step is said to need must be what it
 * then takes, and the driver's share must stay free. Run in a separate process.
 *
 * Arguments: the bytes of the driver, then `all`, or `one` for a single step.
 */
import { assert, assertEquals, assertRejects } from "@std/assert";
import type { NativeBackend } from "../../ffi/native_backend.ts";
import type { Recorder, StepInputs, Value, WeightSlice } from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import type { TensorType } from "../../src/formats/tensor_info.ts";
import { devices, openDevice } from "./devices.ts";
import { LogitSampler } from "./logit_sampler.ts";
import { randomMatrix } from "./matrix.ts";
import { Random } from "./random.ts";
import { limitsOf, StepGraph, tokenInputs } from "./step_graph.ts";
import { TempFolder } from "./temp_folder.ts";
import { randomTinyWeights, TinyDecoder } from "./tiny_decoder.ts";
import { randomWeight } from "./weights.ts";

const driverBytes = Number(Deno.args[0]), takesAll = Deno.args[1] === "all";
const random = new Random("memory");
const [gpu] = devices;
assert(gpu !== undefined, "no GPU");

/** Free bytes next to another device without weights, which always takes as much. */
function freeBytes(): number {
  using other = openDevice(gpu!);
  return (other.info as unknown as { readonly free_bytes: number }).free_bytes;
}

/** The bytes that an action takes. */
async function bytesOf(action: () => Promise<unknown>): Promise<number> {
  const before = freeBytes();
  await action();
  return before - freeBytes();
}

/** Records a step of one value. */
async function stepOf(device: NativeBackend, record: (recorder: Recorder) => Value) {
  const recorder = device.record(limitsOf(tokenInputs(1)));
  recorder.keep(record(recorder));
  return await recorder.finish();
}

const rowBytes = 16;

/** Takes memory until `bytes` are free, or up to `rowBytes` more. */
async function leave(device: NativeBackend, bytes: number): Promise<void> {
  const fill = async (rows: number) => {
    const data = new Uint8Array(rows * rowBytes);
    await stepOf(
      device,
      (recorder) => recorder.embed(device.uploadWeight("F32", rows, rowBytes / 4, data)),
    );
  };
  const own = await bytesOf(() => fill(1)) - rowBytes;
  await fill(Math.floor((freeBytes() - bytes - own) / rowBytes));
}

using folder = new TempFolder();
const cols = 64;
const part = (type: TensorType, offset: number): WeightSlice => {
  const { bytes } = randomWeight(random, type, 32, cols);
  const file = folder.at(`${type}-${offset}.bin`);
  Deno.writeFileSync(file, new Uint8Array([...new Uint8Array(offset), ...bytes]));
  return {
    tensor: { name: file, type, shape: [32, cols], file, offset, bytes: bytes.length },
  };
};
const floats = part("F32", 0), halves = part("F16", 0), bytes = part("Q8_0", 0);
const unaligned = part("F16", 1);
// Unlike weights that CUDA arranges in other memory first.
const weights = randomTinyWeights(random, "Q5_1");

/** Steps with weights of their own. */
const steps: Readonly<Record<string, (device: NativeBackend) => Promise<unknown>>> = {
  "a decoder": (device) => {
    const limits = { maxTokens: 40, maxSequences: 2, maxPages: 4, nPages: 8, pageTokens: 16 };
    return TinyDecoder.load(device, weights, limits);
  },
  "sampling": (device) => LogitSampler.record(device, randomMatrix(random, 1, 999), { maxTop: 3 }),
  "an embedding of two types": (device) =>
    stepOf(device, (recorder) => recorder.embed(device.mapWeight([halves, bytes], cols))),
  "a product of two types": (device) =>
    stepOf(device, (recorder) => {
      const x = recorder.embed(device.mapWeight([floats], cols));
      return recorder.matmul(x, device.mapWeight([halves, bytes], cols));
    }),
  "a product with rows that are not aligned": (device) =>
    stepOf(device, (recorder) => {
      const x = recorder.embed(device.mapWeight([floats], cols));
      return recorder.matmul(x, device.mapWeight([unaligned], cols));
    }),
};

for (const [what, record] of Object.entries(steps).slice(0, takesAll ? undefined : 1)) {
  for (const missing of [0, 2 * rowBytes]) {
    using device = openDevice(gpu);
    await record(device); // for what all steps share
    const needs = await bytesOf(() => record(device));
    await leave(device, needs + driverBytes - missing);
    const free = freeBytes();
    if (missing === 0) {
      assertEquals(await bytesOf(() => record(device)), needs, what);
    } else {
      await assertRejects(() => record(device), ForgeError, "the model needs");
      assertEquals(freeBytes(), free, what);
    }
  }
}

const nSequences = 5, nQueries = 16, nHeads = 8, headDim = 64;
const nPages = 2, pageTokens = 256;

/**
 * Attention by sequences that share all pages: together they see more positions than were planned,
 * so that the workspace grows. It must be replaced, not added to.
 */
async function growingStep(device: NativeBackend): Promise<() => Promise<unknown>> {
  const kv = device.createKv({
    type: "F16",
    nPages,
    pageTokens,
    nKvHeads: 1,
    kHeadDim: headDim,
    vHeadDim: headDim,
  });
  const tokens = Array.from({ length: nSequences * nQueries }, (_, i) => i);
  const inputs: StepInputs = {
    tokens: tokens.map(() => 0),
    positions: tokens.map((i) => nPages * pageTokens - nQueries + i % nQueries),
    sequences: tokens.map((i) => Math.floor(i / nQueries)),
    pageTables: Array.from({ length: nSequences }, () => [0, 1]),
    outputs: [],
  };
  const recorder = device.record(limitsOf(inputs));
  const graph = new StepGraph(device, recorder);
  const q = recorder.ropeAppend(
    graph.input(randomMatrix(random, 1, (nHeads + 2) * headDim)),
    kv,
    { nHeads, eps: 1e-5, weightOffset: 0, ropeLayout: "half" },
  );
  recorder.keep(recorder.attention(q, kv, { nHeads, scale: 1 / 8 }));
  const step = await recorder.finish();
  return () => step.run(inputs);
}

if (takesAll) {
  using device = openDevice(gpu);
  const growth = await bytesOf(await growingStep(device));
  const grow = await growingStep(device);
  await leave(device, growth);
  await grow();
}

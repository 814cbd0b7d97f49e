/**
 * Weights that do not fit the memory of a CPU are read from their files, and a bounded number of
 * experts is packed. Results have the bits of weights in memory.
 */
import { assert, assertEquals, assertThrows } from "@std/assert";
import type { NativeBackend } from "../../ffi/native_backend.ts";
import type { StepInputs, StreamedBytes } from "../../src/backend.ts";
import type { TensorType } from "../../src/formats/tensor_info.ts";
import { ForgeError, load } from "../../src/mod.ts";
import { devices, openDevice, referenceDevice, type TestDevice } from "../support/devices.ts";
import { assertRejects } from "../support/assert.ts";
import { assertSameBits, type Matrix, randomMatrix } from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { sharedAvailable, sharedPath } from "../support/shared.ts";
import { StepGraph, tokenInputs } from "../support/step_graph.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { randomWeight } from "../support/weights.ts";

const [best] = devices.filter(({ kind }) => kind === "cpu");
const ignore = best === undefined;

const COLS = 256, VOCABULARY = 64, MAX_TOKENS = 20;
const TYPES = ["Q4_0", "Q6_K", "BF16", "F16", "F32", "IQ2_XS"] as const;
const EXPERTS = 8, TOP_K = 2, EXPERT_ROWS = 64;

/** Random runs of tokens; a few tokens are frequent, and so are their experts. */
function randomRuns(random: Random): StepInputs[] {
  return [1, 1, MAX_TOKENS, 1, 3, 1, 1, 9, 1, 1, 1, 1].map((n) => ({
    ...tokenInputs(n),
    tokens: Int32Array.from(
      { length: n },
      () => random.int(0, random.int(0, 3) === 0 ? VOCABULARY - 1 : 3),
    ),
  }));
}

interface Streamed {
  readonly results: readonly Matrix[];
  /** Bytes of all weights. */
  readonly weightBytes: number;
  readonly bytes: StreamedBytes;
}

/** Runs products with dense weights of every kind and with experts; `memory` bounds the device. */
async function run(device: TestDevice, seed: string, memory?: number): Promise<Streamed> {
  const random = new Random(seed);
  using folder = new TempFolder();
  using backend: NativeBackend = openDevice(device);
  if (memory !== undefined) backend.setMemory(memory);
  const limits = { maxTokens: MAX_TOKENS, maxOutputs: 1, maxSequences: 1, maxPages: 1 };
  const recorder = backend.record(limits);
  const graph = new StepGraph(backend, recorder);
  const x = graph.input(randomMatrix(random, VOCABULARY, COLS));
  let weightBytes = 0;
  const weight = (type: TensorType, rows: number) => {
    const stored = randomWeight(random, type, rows, COLS);
    weightBytes += stored.bytes.length;
    return graph.weight(stored);
  };
  const values = TYPES.map((type) => ({ value: recorder.matmul(x, weight(type, 100)), cols: 100 }));
  const gateUp = recorder.matmul(x, weight("Q8_0", 64));
  values.push({ value: recorder.glu(gateUp, 32, "silu"), cols: 32 });
  const logits = recorder.matmul(x, weight("F32", EXPERTS));
  const route = recorder.moeRoute(logits, { topK: TOP_K, normalize: true });
  // Each expert of the last weight has rows of two parts; the later experts need more bytes.
  const mixed = Array.from({ length: EXPERTS }, (_, expert) => {
    const types = ["Q4_0", expert < EXPERTS / 2 ? "Q5_0" : "Q8_0"] as const;
    return types.map((type) => {
      const shape = [EXPERT_ROWS / 2, COLS];
      const { bytes } = randomWeight(random, type, EXPERT_ROWS / 2, COLS);
      weightBytes += bytes.length;
      const name = `${expert} ${type}`;
      const file = folder.write(name, bytes);
      return { tensor: { name, type, shape, file, offset: 0, bytes: bytes.length } };
    });
  }).flat();
  const ofOneType = (["Q4_K", "F32"] as const)
    .map((type) => weight(type, EXPERTS * EXPERT_ROWS));
  for (const experts of [...ofOneType, backend.mapWeight(mixed, COLS)]) {
    values.push({
      value: recorder.moeMatmul(x, route, experts, EXPERTS),
      cols: TOP_K * EXPERT_ROWS,
    });
  }
  for (const { value } of values) recorder.keep(value);
  const step = await recorder.finish();
  const results: Matrix[] = [];
  for (const inputs of randomRuns(random)) {
    await step.run(inputs);
    for (const { value, cols } of values) {
      const rows = inputs.tokens.length;
      results.push({ rows, cols, data: Float32Array.from(step.read(value, cols, 0, rows)) });
    }
  }
  const bytes = backend.streamedBytes();
  step.release();
  return { results, weightBytes, bytes };
}

Deno.test({
  name: "streamed weights and experts give the bits of weights in memory",
  ignore,
  async fn() {
    const seed = `streamed ${Deno.env.get("FORGE_TEST_SEED") ?? Date.now()}`;
    const whole = await run(best!, seed);
    const expertBytes = EXPERTS * EXPERT_ROWS * COLS * (4 + 144 / 256 + (2 * 18 + 22 + 34) / 128);
    assertEquals(whole.bytes, { all: 0, perToken: 0 });
    // From no memory on, until everything fits.
    const streamed = new Set<number>();
    let least = Infinity;
    for (let memory = 1; least > 0; memory += 150_000) {
      const { results, bytes } = await run(best!, seed, memory);
      results.forEach((result, i) =>
        assertSameBits(result, whole.results[i]!, `${seed}, ${memory} bytes, result ${i}`)
      );
      if (memory === 1) {
        const unchosen = expertBytes * (1 - TOP_K / EXPERTS);
        const { weightBytes } = whole;
        assertEquals(bytes, { all: weightBytes, perToken: weightBytes - unchosen });
      }
      assert(bytes.all <= least, `${memory} bytes: ${bytes.all} after ${least}`);
      assert(bytes.all === 0 || bytes.perToken < bytes.all);
      streamed.add(least = bytes.all);
    }
    // Of the last experts to fit, some do before the others.
    const some = [...streamed].filter((bytes) => bytes > 0 && bytes < expertBytes);
    assert(some.length >= 2, `${[...streamed]}`);
  },
});

Deno.test({
  name: "memory is bounded before the first step, and on the CPU",
  ignore,
  async fn() {
    using device = openDevice(best!);
    device.setMemory(0);
    assert(device.memoryBound! > 0 && device.memoryBound! < device.memory().total);
    const recorder = device.record({ maxTokens: 1, maxOutputs: 1, maxSequences: 1, maxPages: 1 });
    recorder.keep(new StepGraph(device, recorder).input(randomMatrix(new Random("x"), 1, 4)));
    await recorder.finish();
    assertThrows(() => device.setMemory(1000), ForgeError, "before the first step");
    using reference = openDevice(referenceDevice);
    assertThrows(() => reference.setMemory(1000), ForgeError, "--memory is for cpu");
  },
});

Deno.test({
  name: "a weight of two steps takes memory once",
  ignore,
  async fn() {
    const random = new Random("two steps");
    using device = openDevice(best!);
    const { type, rows, cols, bytes } = randomWeight(random, "Q8_0", 8192, COLS);
    device.setMemory(1.5 * bytes.length);
    const weight = device.uploadWeight(type, rows, cols, bytes);
    for (let i = 0; i < 2; i++) {
      const recorder = device.record({ maxTokens: 1, maxOutputs: 1, maxSequences: 1, maxPages: 1 });
      const x = new StepGraph(device, recorder).input(randomMatrix(random, 1, COLS));
      recorder.keep(recorder.matmul(x, weight));
      const step = await recorder.finish();
      await step.run(tokenInputs(1));
      assertEquals(device.streamedBytes(), { all: 0, perToken: 0 });
    }
  },
});

/** Returns the logits of a prompt, and the tokens that follow it. */
async function complete(folder: string, memory?: number) {
  await using model = await load(folder, { device: "cpu", memory, contextLength: 128 });
  const prompt = Int32Array.from({ length: 40 }, (_, i) => 2 + i % 9);
  const logits = await model.logits(prompt);
  const { text } = await model.complete(prompt, { maxTokens: 20, temperature: 0 });
  return { logits, text, streamed: model.streamedBytes, kv: model.memory.kvCache };
}

Deno.test({
  name: "a model gives the same tokens from its file as from memory",
  ignore,
  async fn() {
    using folder = new TempFolder();
    writeRandomLlama(folder.path);
    const folders = [folder.path];
    if (sharedAvailable("models", "tiny")) folders.push(sharedPath("models", "tiny", "mixtral"));
    for (const path of folders) {
      const whole = await complete(path);
      assertEquals(whole.streamed.all, 0);
      const bounded = await complete(path, whole.kv + 200_000);
      assert(bounded.streamed.all > 0, path);
      assertEquals(bounded.text, whole.text);
      assertEquals(bounded.logits, whole.logits);
    }
    await assertRejects(
      () => load(folder.path, { device: "cpu", memory: 1000 }),
      ForgeError,
      "the memory is 1.0 KiB, but a context of 256 tokens takes 64.0 KiB",
    );
  },
});

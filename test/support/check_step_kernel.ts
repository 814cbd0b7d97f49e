/**
 * Compares decoded steps on a device with and without a resident kernel, bit for bit, in the
 * settings of FORGE_CUDA_PERSISTENT. Run in a separate process.
 */
import { assertEquals } from "@std/assert";
import type { Backend, Step, StepInputs, StepResult, Value } from "../../src/backend.ts";
import type { TensorType } from "../../src/formats/tensor_info.ts";
import { devices, openDevice } from "./devices.ts";
import { assertSameBits, type Matrix, matrixOfRows, randomMatrix } from "./matrix.ts";
import { Random } from "./random.ts";
import { outputRow, StepGraph } from "./step_graph.ts";
import { f32Vector, f32Weight, randomWeight, type TestWeight } from "./weights.ts";

const HIDDEN = 256, HEADS = 4, KV_HEADS = 2, HEAD_DIM = 64, FFN = 256, VOCABULARY = 64;
const PAGE_TOKENS = 4, MAX_PAGES = 4, MAX_SEQUENCES = 8;
const RANK = 2;
/** Steps of one shape: the second is captured, the third replayed, and the fifth has a new page. */
const STEPS = 6;
const SERIES = 5;

const FORMATS: readonly TensorType[] = ["BF16", "Q8_0", "Q4_0", "Q4_K"];

interface Layer {
  readonly norms: readonly TestWeight[];
  readonly embedding: TestWeight;
  readonly qkv: TestWeight;
  readonly attentionOut: TestWeight;
  readonly gateUp: TestWeight;
  readonly down: TestWeight;
  readonly head: TestWeight;
  /** Of the product after attention, if it has an adapter. */
  readonly adapter: { readonly a: Matrix; readonly b: Matrix } | undefined;
}

function randomLayer(random: Random, type: TensorType, hasAdapter: boolean): Layer {
  const weight = (rows: number, cols: number) => randomWeight(random, type, rows, cols);
  return {
    norms: [0, 1, 2].map(() => f32Vector(random.normals(HIDDEN))),
    embedding: weight(VOCABULARY, HIDDEN),
    qkv: weight((HEADS + 2 * KV_HEADS) * HEAD_DIM, HIDDEN),
    attentionOut: weight(HIDDEN, HEADS * HEAD_DIM),
    gateUp: weight(2 * FFN, HIDDEN),
    down: weight(HIDDEN, FFN),
    head: weight(VOCABULARY, HIDDEN),
    adapter: hasAdapter
      ? { a: randomMatrix(random, RANK, HIDDEN), b: randomMatrix(random, RANK, HIDDEN) }
      : undefined,
  };
}

/** Records the model; its last value are the logits. */
async function record(device: Backend, layer: Layer): Promise<{ step: Step; logits: Value }> {
  const graph = new StepGraph(
    device,
    device.record({
      maxTokens: MAX_SEQUENCES,
      maxOutputs: MAX_SEQUENCES,
      maxSequences: MAX_SEQUENCES,
      maxPages: MAX_PAGES,
    }),
  );
  const { recorder } = graph;
  const kv = graph.kv({
    type: "F16",
    nPages: MAX_SEQUENCES * MAX_PAGES,
    pageTokens: PAGE_TOKENS,
    nKvHeads: KV_HEADS,
    kHeadDim: HEAD_DIM,
    vHeadDim: HEAD_DIM,
  });
  const frequencies = f32Vector(Float32Array.from({ length: HEAD_DIM / 2 }, (_, i) => 0.8 ** i));
  const normed = (x: Value, i: number) =>
    recorder.rmsNorm(x, graph.weight(layer.norms[i]!), { eps: 1e-5 });
  const x = recorder.embed(graph.weight(layer.embedding));
  const qkv = recorder.matmul(normed(x, 0), graph.weight(layer.qkv));
  const rope = recorder.ropeTable(graph.weight(frequencies), 1);
  const q = recorder.ropeAppend(qkv, kv, { nHeads: HEADS, eps: 1e-5, rope, ropeLayout: "half" });
  const attended = recorder.attention(q, kv, { nHeads: HEADS, scale: HEAD_DIM ** -0.5 });
  let sum = recorder.matmul(attended, graph.weight(layer.attentionOut), { residual: x });
  if (layer.adapter !== undefined) {
    sum = recorder.lora(sum, attended, {
      a: graph.weight(f32Weight(layer.adapter.a)),
      b: graph.weight(f32Weight(layer.adapter.b)),
      ranks: graph.weight(f32Weight(matrixOfRows(RANK, 3, () => [0, 0, HIDDEN]))),
      targets: [],
      nAdapters: 1,
      nBlocks: 1,
    });
  }
  const gated = recorder.glu(
    recorder.matmul(normed(sum, 1), graph.weight(layer.gateUp)),
    FFN,
    "silu",
  );
  const last = recorder.matmul(gated, graph.weight(layer.down), { residual: sum });
  const rows = recorder.gatherOutputs(normed(last, 2));
  const logits = recorder.matmul(rows, graph.weight(layer.head));
  recorder.keep(logits);
  recorder.sample(logits, 0);
  return { step: await recorder.finish(), logits };
}

function inputsOf(sequences: number, position: number, layer: Layer): StepInputs {
  const each = Array.from({ length: sequences }, (_, i) => i);
  return {
    tokens: each.map((i) => (17 * i + 5 * position) % VOCABULARY),
    positions: each.map(() => position),
    sequences: each,
    pageTables: each.map((i) =>
      Array.from({ length: MAX_PAGES }, (_, page) => i + MAX_SEQUENCES * page)
    ),
    outputs: each.map((i) => outputRow(i)),
    ...(layer.adapter === undefined
      ? {}
      : { adapterScales: Float32Array.from(each, (i) => i % 2 === 0 ? 1 : 0) }),
  };
}

interface Results {
  readonly logits: Matrix[];
  readonly chosen: StepResult[][];
}

/** The results of single steps and of runs of several, with some numbers of sequences. */
async function resultsOf(layer: Layer, setting: string | undefined): Promise<Results> {
  if (setting === undefined) Deno.env.delete("FORGE_CUDA_PERSISTENT");
  else Deno.env.set("FORGE_CUDA_PERSISTENT", setting);
  console.error(`FORGE_CUDA_PERSISTENT is ${setting}`);
  using device = openDevice(devices[0]!);
  const { step, logits } = await record(device, layer);
  const results: Results = { logits: [], chosen: [] };
  const keep = (rows: number, chosen: readonly StepResult[]) => {
    const data = new Float32Array(step.read(logits, VOCABULARY, 0, rows));
    results.logits.push({ rows, cols: VOCABULARY, data });
    results.chosen.push([...chosen]);
  };
  for (const sequences of [1, 5]) {
    for (let position = 0; position < STEPS; position++) {
      keep(sequences, await step.run(inputsOf(sequences, position, layer)));
    }
    const series = inputsOf(sequences, STEPS, layer);
    // The second run is captured.
    for (let run = 0; run < 2; run++) {
      keep(sequences, await step.run({ ...series, nSteps: SERIES }));
    }
  }
  step.release();
  return results;
}

for (
  const [type, hasAdapter] of [
    ...FORMATS.map((type) => [type, false] as const),
    ["BF16", true] as const,
  ]
) {
  const name = `${type}${hasAdapter ? " with an adapter" : ""}`;
  const layer = randomLayer(new Random(name), type, hasAdapter);
  const expected = await resultsOf(layer, "0");
  for (const setting of type === "BF16" ? ["1", undefined] : ["1"]) {
    const actual = await resultsOf(layer, setting);
    actual.logits.forEach((logits, i) =>
      assertSameBits(logits, expected.logits[i]!, `logits ${i} of ${name}`)
    );
    assertEquals(actual.chosen, expected.chosen, name);
  }
  console.log(`same: ${name}`);
}

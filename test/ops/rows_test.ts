/** Operations that copy rows: embedding and the selection of outputs. */
import type { Value } from "../../src/backend.ts";
import { TENSOR_TYPES } from "../../src/formats/tensor_info.ts";
import { deviceTest } from "../support/devices.ts";
import {
  assertSameBits,
  type Matrix,
  matrixOfRows,
  randomMatrix,
  rowOf,
  stack,
} from "../support/matrix.ts";
import { opTest } from "../support/operations.ts";
import { limitsOf, outputRow, runStep, StepGraph, tokenInputs } from "../support/step_graph.ts";
import { computableTypes, f32Vector, randomWeight, type TestWeight } from "../support/weights.ts";

interface EmbedCase {
  readonly weight: TestWeight;
  readonly scale: number;
  readonly tokens: readonly number[];
}

opTest<EmbedCase>("embed", {
  cases: (random) =>
    computableTypes.map((type) => {
      const { blockElements } = TENSOR_TYPES[type];
      const weight = randomWeight(random, type, 50, blockElements === 1 ? 33 : 3 * blockElements);
      const tokens = Array.from({ length: random.int(1, 70) }, () => random.int(0, 49));
      // Both ends of the vocabulary, and one token twice.
      return [type, {
        weight,
        scale: random.pick([1, 0.1, 45.25]),
        tokens: [49, 0, 49, ...tokens],
      }];
    }),
  run: (device, { weight, scale, tokens }) =>
    runStep(device, { ...tokenInputs(tokens.length), tokens }, (graph) => ({
      value: graph.recorder.embed(graph.weight(weight), scale),
      cols: weight.cols,
    })),
  plain({ weight, scale, tokens }, read) {
    const values = read(weight);
    return matrixOfRows(
      tokens.length,
      weight.cols,
      (row) => rowOf(values, tokens[row]!).map((value) => value * Math.fround(scale)),
    );
  },
  tolerance: { absolute: 0, relative: 0 },
});

interface AddedCase {
  readonly words: TestWeight;
  readonly added: TestWeight;
  /** True if `added` has a row for each token type, not for each position. */
  readonly isOfTypes: boolean;
  readonly tokens: readonly number[];
}

opTest<AddedCase>("add_embedding", {
  cases: (random) =>
    [["types", 2], ["positions", 70]].flatMap(([kind, rows]) =>
      (["F32", "BF16", "Q8_0"] as const).map((type) => {
        const isOfTypes = kind === "types";
        const tokens = Array.from(
          { length: random.int(1, 60) },
          () => random.int(0, isOfTypes ? 39 : 19),
        );
        return [`${kind} in ${type}`, {
          words: randomWeight(random, "F32", 20, 64),
          added: randomWeight(random, type, rows as number, 64),
          isOfTypes,
          tokens: isOfTypes ? [39, 20, 19, ...tokens] : tokens,
        }];
      })
    ),
  run: (device, { words, added, isOfTypes, tokens }) =>
    runStep(device, { ...tokenInputs(tokens.length), tokens }, (graph) => ({
      value: graph.recorder.addEmbedding(
        graph.recorder.embed(graph.weight(words)),
        graph.weight(added),
        isOfTypes ? 20 : 0,
      ),
      cols: 64,
    })),
  plain({ words, added, isOfTypes, tokens }, read) {
    const [ofWords, ofAdded] = [read(words), read(added)];
    return matrixOfRows(tokens.length, 64, (row) => {
      const token = tokens[row]!;
      const other = rowOf(ofAdded, isOfTypes ? Math.floor(token / 20) : row);
      return rowOf(ofWords, token % 20).map((value, i) => Math.fround(value + other[i]!));
    });
  },
  tolerance: { absolute: 0, relative: 0 },
});

interface GatherCase {
  readonly x: Matrix;
  readonly rows: readonly number[];
}

opTest<GatherCase>("gather_outputs", {
  cases: (random) =>
    [[1, 1], [5, 7], [70, 130], [3, 4096]].map(([tokens = 0, cols = 0]) => {
      const rows = Array.from({ length: random.int(1, tokens) }, () => random.int(0, tokens - 1));
      return [`${rows.length} of ${tokens} x ${cols}`, {
        x: randomMatrix(random, tokens, cols),
        rows,
      }];
    }),
  run: (device, { x, rows }) =>
    runStep(
      device,
      tokenInputs(x.rows, rows.map((row) => outputRow(row))),
      (graph) => ({ value: graph.recorder.gatherOutputs(graph.input(x)), cols: x.cols }),
      "outputs",
    ),
  plain: ({ x, rows }) => matrixOfRows(rows.length, x.cols, (row) => rowOf(x, rows[row]!)),
  tolerance: { absolute: 0, relative: 0 },
});

deviceTest("operations after gather_outputs see the outputs only", async (device, random) => {
  // Few enough tokens that GPUs use the same kernels for all of them as for three.
  const x = randomMatrix(random, 8, 40), weight = randomWeight(random, "F32", 30, 40);
  const rows = [7, 2, 2];
  const record = (graph: StepGraph, gather: boolean) => {
    const input = graph.input(x);
    const value = graph.recorder.matmul(
      gather ? graph.recorder.gatherOutputs(input) : input,
      graph.weight(weight),
    );
    return { value, cols: weight.rows };
  };
  const all = await runStep(device, tokenInputs(8), (graph) => record(graph, false));
  const inputs = tokenInputs(8, rows.map((row) => outputRow(row)));
  const outputs = await runStep(device, inputs, (graph) => record(graph, true), "outputs");
  assertSameBits(outputs, matrixOfRows(3, 30, (row) => rowOf(all, rows[row]!)), "products");
});

// GPUs have other kernels for runs of up to 16 rows of a sequence than for longer ones, of tokens
// as of outputs: the bits of a row may depend on its own sequence only.
deviceTest("products of outputs are the same next to other sequences", async (device, random) => {
  const cols = 64, weight = randomWeight(random, "Q8_0", 40, cols);
  // Tokens of each sequence, and how many of its last ones are outputs.
  const lengths = [[20, 16], [17, 17], [16, 16], ...new Array(12).fill([1, 1]), [19, 2]] as const;
  const nTokens = lengths.reduce((sum, [tokens]) => sum + tokens, 0);
  const limits = { maxTokens: nTokens, maxOutputs: 64, maxSequences: lengths.length, maxPages: 1 };
  const graph = new StepGraph(device, device.record(limits));
  const { recorder } = graph;
  const before = recorder.matmul(
    graph.input(randomMatrix(random, nTokens, cols)),
    graph.weight(randomWeight(random, "Q8_0", cols, cols)),
  );
  const value = recorder.matmul(recorder.gatherOutputs(before), graph.weight(weight));
  recorder.keep(value);
  const step = await recorder.finish();
  const run = async (tokens: number[], sequences: number[], rows: number[]): Promise<Matrix> => {
    await step.run({
      tokens,
      positions: tokens,
      sequences,
      pageTables: Array.from({ length: Math.max(...sequences) + 1 }, () => [0]),
      outputs: rows.map((row) => outputRow(row)),
    });
    const { rows: cols } = weight;
    const data = new Float32Array(step.read(value, cols, 0, rows.length));
    return { rows: rows.length, cols, data };
  };
  const alone: Matrix[] = [];
  const outputs: number[] = [], sequences: number[] = [];
  for (const [sequence, [length, last]] of lengths.entries()) {
    const first = sequences.length, skipped = length - last;
    const tokens = Array.from({ length }, (_, i) => first + i);
    const own = Array.from({ length: last }, (_, i) => skipped + i);
    alone.push(await run(tokens, tokens.map(() => 0), own));
    outputs.push(...own.map((row) => first + row));
    sequences.push(...tokens.map(() => sequence));
  }
  const together = await run([...sequences.keys()], sequences, outputs);
  assertSameBits(together, stack(alone), "all sequences");
  // As many single tokens as the longest run of such kernels has.
  const [long, longer, short] = alone;
  for (let i = 0; i < short!.rows; i++) {
    const single = await run([long!.rows + 4 + longer!.rows + i], [0], [0]);
    assertSameBits(single, matrixOfRows(1, 40, () => rowOf(short!, i)), `token ${i} of 16`);
  }
  step.release();
});

deviceTest("a kept value keeps its numbers to the end of a long step", async (device, random) => {
  const x = randomMatrix(random, 3, 64);
  const inputs = tokenInputs(3);
  const recorder = device.record({ maxTokens: 3, maxOutputs: 1, maxSequences: 1, maxPages: 1 });
  const graph = new StepGraph(device, recorder);
  const kept = recorder.softcap(graph.input(x), 2);
  recorder.keep(kept);
  // Memory is planned by lifetime: without keep, one of these would reuse the memory of the value.
  let value = recorder.softcap(kept, 3);
  for (let i = 0; i < 20; i++) value = recorder.softcap(value, 4);
  recorder.keep(value);
  const step = await recorder.finish();
  await step.run(inputs);
  const alone = await runStep(device, inputs, (graph) => ({
    value: graph.recorder.softcap(graph.input(x), 2),
    cols: 64,
  }));
  const data = new Float32Array(step.read(kept, 64, 0, 3));
  assertSameBits({ rows: 3, cols: 64, data }, alone, "the kept value");
  step.release();
});

/** Operations on rows, whose results have the columns of `x`. */
const ROW_OPERATIONS: Readonly<
  Record<string, (graph: StepGraph, x: Value, cols: number) => Value>
> = {
  softcap: ({ recorder }, x) => recorder.softcap(x, 30),
  clamp: ({ recorder }, x) => recorder.clamp(x, 1),
  xielu: ({ recorder }, x) =>
    recorder.xielu(x, { alphaP: 0.8, alphaN: 0.9, beta: 0.5, eps: -1e-6 }),
  sigmoid_gate: ({ recorder }, x) => recorder.sigmoidGate(x, x),
  rms_norm: (graph, x, cols) => graph.recorder.rmsNorm(x, graph.weight(ones(cols)), { eps: 1e-5 }),
  layer_norm: (graph, x, cols) =>
    graph.recorder.layerNorm(x, graph.weight(ones(cols)), undefined, 1e-5),
  gated_rms_norm: (graph, x, cols) =>
    graph.recorder.gatedRmsNorm(x, x, graph.weight(ones(cols)), {
      eps: 1e-5,
      activation: "silu",
    }),
};

const ones = (cols: number) => f32Vector(new Float32Array(cols).fill(1));

deviceTest("a result ends where the next value begins", async (device, random) => {
  const rows = 16, cols = 33;
  const inputs = tokenInputs(rows);
  const x = randomMatrix(random, rows, cols), next = randomMatrix(random, rows, cols);
  for (const [name, operation] of Object.entries(ROW_OPERATIONS)) {
    const recorder = device.record(limitsOf(inputs));
    const graph = new StepGraph(device, recorder);
    // The result takes the place of `before`, which nothing reads any more, next to `after`.
    const before = graph.input(x), after = graph.input(next), input = graph.input(x);
    recorder.softcap(before, 30);
    recorder.keep(operation(graph, input, cols));
    recorder.keep(after);
    const step = await recorder.finish();
    await step.run(inputs);
    const data = new Float32Array(step.read(after, cols, 0, rows));
    assertSameBits({ rows, cols, data }, next, `${name}: the value after the result`);
    step.release();
  }
});

deviceTest("rows of one block end where the next value begins", async (device, random) => {
  const rows = 16, cols = 32;
  const inputs = tokenInputs(rows);
  const x = randomMatrix(random, rows, cols), next = randomMatrix(random, rows, cols);
  const weight = randomWeight(random, "Q8_0", 64, cols);
  const recorder = device.record(limitsOf(inputs));
  const graph = new StepGraph(device, recorder);
  // As above; a norm that only a quantised product reads may be stored as blocks, in half the room.
  const before = graph.input(randomMatrix(random, rows, cols / 2)), after = graph.input(next);
  const input = graph.input(x);
  recorder.softcap(before, 30);
  const normed = recorder.rmsNorm(input, graph.weight(ones(cols)), { eps: 1e-5 });
  recorder.keep(recorder.matmul(normed, graph.weight(weight)));
  recorder.keep(after);
  const step = await recorder.finish();
  await step.run(inputs);
  const data = new Float32Array(step.read(after, cols, 0, rows));
  assertSameBits({ rows, cols, data }, next, "the value after the blocks");
  step.release();
});

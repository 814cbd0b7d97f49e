/** Weights whose rows come from several tensors of different types, mapped from files. */
import { assertThrows } from "@std/assert";
import type { Backend, WeightSlice } from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import { TENSOR_TYPES, type TensorInfo, type TensorType } from "../../src/formats/tensor_info.ts";
import { deviceTest, isGpu, openDevice, referenceDevice } from "../support/devices.ts";
import {
  assertClose,
  assertSameBits,
  HALF_PRODUCTS,
  type Matrix,
  matrixOf,
  matrixOfRows,
  randomByteMatrix,
  randomMatrix,
  rowOf,
  rowsOf,
  stack,
} from "../support/matrix.ts";
import type { Random } from "../support/random.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { computableTypes, f32Vector, randomWeight, type TestWeight } from "../support/weights.ts";
import { products } from "./plain_matmul.ts";

/** Writes tensors to a file, each after 1 to 7 other bytes. */
function writeTensors(path: string, random: Random, tensors: readonly TestWeight[]): TensorInfo[] {
  using file = Deno.openSync(path, { write: true, create: true });
  let offset = 0;
  return tensors.map(({ type, rows, cols, bytes }, i) => {
    const gap = 1 + (2 * i + random.int(0, 1)) % 7;
    file.writeSync(random.bytes(gap));
    file.writeSync(bytes);
    offset += gap + bytes.length;
    return {
      name: `tensor ${i}`,
      type,
      shape: [rows, cols],
      file: path,
      offset: offset - bytes.length,
      bytes: bytes.length,
    };
  });
}

/** The values of a weight, which `test/ops/quant_test.ts` compares with other programs. */
function dequantized({ type, rows, cols, bytes }: TestWeight): Matrix {
  using reference = openDevice(referenceDevice);
  const weight = reference.uploadWeight(type, rows, cols, bytes);
  return { rows, cols, data: new Float32Array(reference.readWeight(weight, 0, rows)) };
}

deviceTest("concatenated weights of every type", async (device, random) => {
  using folder = new TempFolder();
  const cols = 512;
  const tensors = random.permutation(computableTypes.length)
    .map((i) => randomWeight(random, computableTypes[i]!, random.int(1, 40), cols));
  const half = tensors.length >> 1;
  const infos = [
    ...writeTensors(folder.at("a.bin"), random, tensors.slice(0, half)),
    ...writeTensors(folder.at("b.bin"), random, tensors.slice(half)),
  ];
  const parts: WeightSlice[] = [];
  const values: Matrix[] = [];
  infos.forEach((tensor, i) => {
    const all = dequantized(tensors[i]!);
    // A third whole, a third without the first rows, a third from the middle.
    const firstRow = i % 3 === 0 ? 0 : random.int(0, all.rows - 1);
    const nRows = i % 3 === 2 ? random.int(1, all.rows - firstRow) : all.rows - firstRow;
    if (i % 3 === 0) parts.push({ tensor });
    else if (i % 3 === 1) parts.push({ tensor, firstRow });
    else parts.push({ tensor, firstRow, nRows });
    values.push(rowsOf(all, firstRow, firstRow + nRows));
  });
  const expected = stack(values);
  const weight = device.mapWeight(parts, cols);
  const read = device.readWeight(weight, 0, expected.rows);
  assertSameBits({ ...expected, data: new Float32Array(read) }, expected, "rows read");

  for (const tokens of [1, 9]) {
    const x = randomByteMatrix(random, tokens, cols, 1 / Math.sqrt(cols));
    const bias = random.normals(expected.rows),
      residual = randomMatrix(random, tokens, expected.rows);
    const actual = await runStep(device, tokenInputs(tokens), (graph) => ({
      value: graph.recorder.matmul(graph.input(x), weight, {
        bias: graph.weight(f32Vector(bias)),
        residual: graph.input(residual),
      }),
      cols: expected.rows,
    }));
    const plain = matrixOfRows(
      tokens,
      expected.rows,
      (row) =>
        products(rowOf(x, row), expected).map((sum, i) =>
          sum + bias[i]! + rowOf(residual, row)[i]!
        ),
    );
    const tolerance = isGpu(device) ? HALF_PRODUCTS : { absolute: 1e-6, relative: 4e-6 };
    assertClose(actual, plain, tolerance, `${tokens} tokens`);
  }
});

deviceTest("experts that straddle the parts of a weight", async (device, random) => {
  using folder = new TempFolder();
  const nExperts = 4, topK = 2, tokens = 6;
  // Rows of 61 columns end in padding on GPUs.
  const weights: [cols: number, types: TensorType[]][] = [
    [256, ["Q8_0", "F16", "Q4_K"]],
    [61, ["F32", "F16", "BF16"]],
  ];
  for (const [cols, types] of weights) {
    const tensors = [10, 45, 105].map((rows, i) => randomWeight(random, types[i]!, rows, cols));
    const parts = writeTensors(folder.at(`${cols}.bin`), random, tensors)
      .map((tensor) => ({ tensor }));
    const values = stack(tensors.map(dequantized));
    const rows = values.rows / nExperts;
    // Token t prefers expert t, then t + 1.
    const logits = matrixOf(
      tokens,
      nExperts,
      (t, e) => -((e - t % nExperts + nExperts) % nExperts),
    );
    const x = randomByteMatrix(random, tokens, cols, 1 / Math.sqrt(cols));
    const actual = await runStep(device, tokenInputs(tokens), (graph) => ({
      value: graph.recorder.moeMatmul(
        graph.input(x),
        graph.recorder.moeRoute(graph.input(logits), { topK, normalize: true }),
        device.mapWeight(parts, cols),
        nExperts,
      ),
      cols: topK * rows,
    }));
    const expected = matrixOfRows(tokens, topK * rows, (t) =>
      [t, t + 1].flatMap((choice) => {
        const first = choice % nExperts * rows;
        return Array.from(products(rowOf(x, t), rowsOf(values, first, first + rows)));
      }));
    const tolerance = { absolute: 1e-6, relative: 4e-6 };
    assertClose(actual, expected, tolerance, `products of ${cols} columns`);
  }
});

deviceTest("products of concatenated weights in place of their input", async (device, random) => {
  using folder = new TempFolder();
  using reference = openDevice(referenceDevice);
  const rows = 128;
  const first = randomWeight(random, "F16", rows, rows);
  const scales = f32Vector(random.normals(rows));
  for (const [input, cols] of [["gated unit", rows / 2], ["norm", rows]] as const) {
    // GPUs convert rows for both types, and the second after the products of the first.
    const types: TensorType[] = ["F16", "BF16"];
    const tensors = types.map((type) => randomWeight(random, type, rows, cols));
    const parts = writeTensors(folder.at(input), random, tensors).map((tensor) => ({ tensor }));
    for (const tokens of [1, 2, 18]) {
      const x = randomMatrix(random, tokens, rows);
      const run = (backend: Backend) =>
        runStep(backend, tokenInputs(tokens), (graph) => {
          const { recorder } = graph;
          const product = recorder.matmul(graph.input(x), graph.weight(first));
          const fused = input === "norm"
            ? recorder.rmsNorm(product, graph.weight(scales), { eps: 1e-5 })
            : recorder.glu(product, cols, "silu");
          return { value: recorder.matmul(fused, backend.mapWeight(parts, cols)), cols: 2 * rows };
        });
      const expected = await run(reference);
      const largest = expected.data.reduce((most, value) => Math.max(most, Math.abs(value)));
      const tolerance = { absolute: 0.02 * largest, relative: 0 };
      assertClose(await run(device), expected, tolerance, `a ${input}, ${tokens} tokens`);
    }
  }
});

deviceTest("concatenated embeddings", async (device, random) => {
  using folder = new TempFolder();
  const cols = 256;
  const types: TensorType[] = ["Q6_K", "F16", "Q4_0"];
  const tensors = types.map((type) => randomWeight(random, type, 5, cols));
  const parts = writeTensors(folder.at("embedding.bin"), random, tensors)
    .map((tensor) => ({ tensor }));
  const expected = stack(tensors.map(dequantized));
  const actual = await runStep(device, tokenInputs(expected.rows), (graph) => ({
    value: graph.recorder.embed(device.mapWeight(parts, cols)),
    cols,
  }));
  assertSameBits(actual, expected, "rows");
});

deviceTest(
  "embeddings of mixed types that are unpacked in several pieces",
  async (device, random) => {
    using folder = new TempFolder();
    // More than 32 MiB as float32, of which the last rows are read.
    const cols = 16_384, last = 4;
    const tensors = (["Q8_0", "F16"] as const).map((type, i) =>
      randomWeight(random, type, i === 0 ? 596 : last, cols)
    );
    const parts = writeTensors(folder.at("large.bin"), random, tensors).map((tensor) => ({
      tensor,
    }));
    const tokens = Int32Array.from({ length: last }, (_, i) => 596 + i);
    const actual = await runStep(device, { ...tokenInputs(last), tokens }, (graph) => ({
      value: graph.recorder.embed(device.mapWeight(parts, cols)),
      cols,
    }));
    assertSameBits(actual, dequantized(tensors[1]!), "rows");
  },
);

deviceTest("a file is mapped once and stays while a weight needs it", async (device, random) => {
  using folder = new TempFolder();
  const tensor = randomWeight(random, "F32", 8, 32);
  const [info] = writeTensors(folder.at("weights.bin"), random, [tensor]);
  const weight = device.mapWeight([{ tensor: info! }], 32);
  Deno.removeSync(folder.at("weights.bin"));
  const again = device.mapWeight([{ tensor: info!, firstRow: 7 }], 32);
  const expected = dequantized(tensor);
  for (const [mapped, first] of [[weight, 0], [again, 7]] as const) {
    const actual = await runStep(device, tokenInputs(1), (graph) => ({
      value: graph.recorder.embed(mapped),
      cols: 32,
    }));
    assertSameBits(actual, rowsOf(expected, first, first + 1), `from row ${first}`);
  }
});

deviceTest("columns of weights of every type", (device, random) => {
  using folder = new TempFolder();
  const cols = 1024;
  const tensors = computableTypes.map((type) =>
    randomWeight(random, type, random.int(3, 40), cols)
  );
  const infos = writeTensors(folder.at("a.bin"), random, tensors);
  for (const [i, tensor] of infos.entries()) {
    const { blockElements } = TENSOR_TYPES[tensor.type];
    const blocks = cols / blockElements;
    const first = random.int(0, blocks - 1);
    const count = random.int(1, blocks - first);
    const columns = [first * blockElements, count * blockElements] as const;
    const { rows } = tensors[i]!;
    const firstRow = random.int(0, rows - 1);
    const slice = { tensor, firstRow, nRows: rows - firstRow, columns };
    const weight = device.mapWeight([slice, { ...slice, firstRow: 0, nRows: 1 }], columns[1]);
    const whole = dequantized(tensors[i]!);
    const expected = matrixOf(
      rows - firstRow + 1,
      columns[1],
      (row, col) => rowOf(whole, row < rows - firstRow ? firstRow + row : 0)[columns[0] + col]!,
    );
    const read = new Float32Array(device.readWeight(weight, 0, expected.rows));
    assertSameBits({ ...expected, data: read }, expected, tensor.type);
  }
  const slice = { tensor: infos[computableTypes.indexOf("Q4_0")]!, nRows: 1 };
  for (const columns of [[16, 32], [0, 48], [1024, 32], [0, 0]] as const) {
    assertThrows(
      () => device.mapWeight([{ ...slice, columns }], 32),
      ForgeError,
      "in blocks of 32",
    );
  }
});

deviceTest("products with columns of a tensor are those with a weight of them", async (
  device,
  random,
) => {
  using folder = new TempFolder();
  const rows = 100, from = 32, width = 64;
  const x = randomByteMatrix(random, 3, width, 1 / 8);
  for (const type of ["F32", "Q8_0"] as const) {
    const stored = randomWeight(random, type, rows, 160);
    const [tensor] = writeTensors(folder.at(type), random, [stored]);
    const columns = device.mapWeight([{ tensor: tensor!, columns: [from, width] }], width);
    const { blockElements, blockBytes } = TENSOR_TYPES[type];
    const stride = 160 / blockElements * blockBytes, begin = from / blockElements * blockBytes;
    const rowBytes = width / blockElements * blockBytes;
    const bytes = new Uint8Array(rows * rowBytes);
    for (let row = 0; row < rows; row++) {
      const at = row * stride + begin;
      bytes.set(stored.bytes.subarray(at, at + rowBytes), row * rowBytes);
    }
    const whole = device.uploadWeight(type, rows, width, bytes);
    const [actual, expected] = await Promise.all(
      [columns, whole].map((weight) =>
        runStep(device, tokenInputs(x.rows), (graph) => ({
          value: graph.recorder.matmul(graph.input(x), weight),
          cols: rows,
        }))
      ),
    );
    assertSameBits(actual!, expected!, type);
  }
});

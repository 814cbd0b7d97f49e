/** Packed matrices give the numbers of torch and `gguf` on every device (`packed_vectors.py`). */
import { assert, assertEquals, assertThrows } from "@std/assert";
import type { WeightSlice } from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import {
  type PackedMatrix,
  type Packing,
  tensorBytes,
  type TensorInfo,
  type TensorType,
} from "../../src/formats/tensor_info.ts";
import { withColumnOrder } from "../../src/models/weights/column_order.ts";
import { deviceTest, isGpu } from "../support/devices.ts";
import {
  assertClose,
  HALF_PRODUCTS,
  matrixOfRows,
  randomByteMatrix,
  rowOf,
} from "../support/matrix.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { products } from "./plain_matmul.ts";
import vectors from "./packed_vectors.json" with { type: "json" };

const { rows, cols, matrices } = vectors;
type Vector = Omit<(typeof matrices)[number], "zeros" | "groups" | "block_scales"> & {
  readonly zeros?: string | undefined;
  readonly groups?: string | null | undefined;
  readonly block_scales?: string | undefined;
};

/** Writes the tensors of a matrix to a file, each after some other bytes. */
function writeMatrix(path: string, vector: Vector, change: Partial<PackedMatrix> = {}): TensorInfo {
  using file = Deno.openSync(path, { write: true, create: true });
  let offset = 0;
  const write = (name: string, data: string, type: TensorType): TensorInfo => {
    const bytes = Uint8Array.fromBase64(data);
    file.writeSync(new Uint8Array(5));
    file.writeSync(bytes);
    offset += 5 + bytes.length;
    return {
      name,
      type,
      shape: [],
      file: path,
      offset: offset - bytes.length,
      bytes: bytes.length,
    };
  };
  const packed: PackedMatrix = {
    packing: vector.packing as Packing,
    groupRows: vector.group_rows,
    groupCols: vector.group_cols,
    codes: write("codes", vector.codes, "U8"),
    scales: write("scales", vector.scales, vector.scale_type as TensorType),
    zeros: vector.zeros ? write("zeros", vector.zeros, "I32") : undefined,
    groups: vector.groups ? write("groups", vector.groups, "I32") : undefined,
    blockScales: vector.block_scales ? write("block scales", vector.block_scales, "U8") : undefined,
    ...change,
  };
  const type = vector.type as TensorType;
  const bytes = Number(tensorBytes(type, [rows, cols]));
  return { name: "matrix", type, shape: [rows, cols], file: path, offset: 0, bytes, packed };
}

function valuesOf({ values }: Vector): Float32Array<ArrayBuffer> {
  return new Float32Array(Uint8Array.fromBase64(values).buffer);
}

/** The numbers of a matrix with columns in the order of its blocks: group by group. */
function valuesInOrder(vector: Vector): Float32Array<ArrayBuffer> {
  const values = valuesOf(vector);
  if (!vector.groups || vector.type === "F32") return values;
  const groupOf = new Int32Array(Uint8Array.fromBase64(vector.groups).buffer);
  const order = Array.from(groupOf.keys()).sort((a, b) => groupOf[a]! - groupOf[b]!);
  return values.map((_, i) => values[i - i % cols + order[i % cols]!]!);
}

const nvfp4 = matrices.filter(({ packing }) => packing.match(/^nvfp4(_divided)?$/));
const outOfOrder = matrices.find(({ name }) => name === "GPTQ in an order of its own")!;
/** Matrices that become floats if they do not fit blocks. */
const asFloats = [outOfOrder, ...nvfp4].map((vector) => {
  return { ...vector, name: `${vector.name}, as floats`, type: "F32" };
});

for (const vector of [...matrices, ...asFloats]) {
  deviceTest(`packed matrix: ${vector.name}`, async (device, random) => {
    using folder = new TempFolder();
    const tensor = writeMatrix(folder.at("packed.bin"), vector);
    const weight = device.mapWeight([{ tensor }], cols);
    const read = device.readWeight(weight, 0, rows);
    const data = new Float32Array(read);
    const expected = { rows, cols, data: valuesInOrder(vector) };
    assertClose({ rows, cols, data }, expected, { absolute: 0, relative: 0 }, "numbers");

    // Columns, as one of several devices takes them, in whole blocks.
    const width = vector.type === "FP4" ? 64 : 32, from = cols - width;
    const columns = [from, width] as const;
    const part = device.mapWeight([{ tensor, firstRow: 2, nRows: 5, columns }], width);
    const own = { rows: 5, cols: width, data: new Float32Array(device.readWeight(part, 0, 5)) };
    const divided = matrixOfRows(
      5,
      width,
      (row) => rowOf(expected, 2 + row).subarray(from, from + width),
    );
    assertClose(own, divided, { absolute: 0, relative: 0 }, "columns");

    // Rows from the middle, after others, as products read them.
    const tall = device.mapWeight([{ tensor, firstRow: 3, nRows: 9 }, { tensor }], cols);
    const made = {
      rows: 9 + rows,
      cols,
      data: new Float32Array([...read.subarray(3 * cols, 12 * cols), ...read]),
    };
    const x = randomByteMatrix(random, 9, cols, 1 / Math.sqrt(cols));
    const actual = await runStep(device, tokenInputs(9), (graph) => ({
      value: graph.recorder.matmul(graph.input(x), tall),
      cols: made.rows,
    }));
    const plain = matrixOfRows(9, made.rows, (row) => products(rowOf(x, row), made));
    const tolerance = isGpu(device) ? HALF_PRODUCTS : { absolute: 1e-6, relative: 4e-6 };
    assertClose(actual, plain, tolerance, "products");
  });
}

deviceTest("a NaN of either sign among block scales makes its own block NaN", (device) => {
  using folder = new TempFolder();
  const vector = nvfp4[0]!;
  for (const code of [0x7f, 0xff]) {
    const scales = Uint8Array.fromBase64(vector.block_scales!);
    scales[1] = code;
    const changed = { ...vector, block_scales: scales.toBase64() };
    const tensor = writeMatrix(folder.at(`${code}.bin`), changed);
    const values = device.readWeight(device.mapWeight([{ tensor }], cols), 0, rows);
    assertEquals(Array.from(values, Number.isNaN), Array.from(values, (_, i) => i < 64), `${code}`);
  }
});

deviceTest("NVFP4 blocks without a scale have the scale 1", (device) => {
  using folder = new TempFolder();
  const vector = matrices.find(({ packing }) => packing === "nvfp4_blocks")!;
  const read = (name: string, change: Partial<PackedMatrix>) => {
    const tensor = writeMatrix(folder.at(name), vector, change);
    return device.readWeight(device.mapWeight([{ tensor }], cols), 0, rows);
  };
  const scales = new Float32Array(Uint8Array.fromBase64(vector.scales).buffer);
  const unscaled = read("unscaled", { scales: undefined });
  const scaled = unscaled.map((value, i) =>
    value * scales[Math.floor(i / cols / vector.group_rows)]!
  );
  assertEquals(read("scaled", {}), scaled);
});

deviceTest("inconsistent packed matrices are rejected", (device) => {
  using folder = new TempFolder();
  const find = (name: string) => matrices.find((vector) => vector.name === name)!;
  const blocks = find("blocks"), ordered = find("GPTQ");
  const groups = (group: (col: number) => number) =>
    new Uint8Array(Int32Array.from({ length: cols }, (_, col) => group(col)).buffer).toBase64();
  const uneven = { ...outOfOrder, groups: groups((col) => col < 40 ? 0 : 1) };
  const far = (tensor: TensorInfo): TensorInfo => ({ ...tensor, offset: 2 ** 40 });
  const written = writeMatrix(folder.at("written.bin"), ordered).packed!;
  const bad: [Vector, Partial<PackedMatrix>, Partial<TensorInfo>, string][] = [
    [blocks, { groupCols: 48 }, {}, "groups of 48 columns are no multiple of 32"],
    [blocks, {}, { shape: [rows, cols + 16] }, "80 columns of a packed matrix are no multiple of"],
    [blocks, { groupRows: 0 }, {}, "a packed matrix with a size of 0"],
    [blocks, { groupRows: 2 ** 28 + 1 }, {}, "a packed matrix with a size of 268435457"],
    [blocks, { groupRows: 1 }, {}, "pass its end"],
    [blocks, { codes: far(written.codes) }, {}, "pass its end"],
    [blocks, { scales: { ...written.scales!, type: "Q8_0" } }, {}, "floats of type 8"],
    [blocks, {}, { type: "Q4_0" }, "becomes no rows of type 2"],
    [ordered, { groupRows: 2 }, {}, "share scales"],
    [ordered, { zeros: undefined }, {}, "not a live file"],
    [nvfp4[0]!, { groupCols: 32 }, {}, "of NVFP4; expected whole rows"],
    [find("NVFP4 in blocks of GGUF"), { groupCols: 32 }, {}, "of NVFP4; expected whole rows"],
    [nvfp4[0]!, { blockScales: undefined }, {}, "not a live file"],
    [nvfp4[0]!, { blockScales: far(written.codes) }, {}, "pass its end"],
    [ordered, { groupCols: 64 }, {}, "column 32 is of group 1 of 1"],
    [uneven, {}, {}, "group 0 has 40 columns, no multiple of 32"],
    [ordered, {}, { type: "Q8_0" }, "becomes no rows of type 8"],
  ];
  for (const [i, [vector, change, own, message]] of bad.entries()) {
    const path = folder.at(`${i}.bin`);
    const tensor = { ...writeMatrix(path, vector, change), ...own };
    const error = assertThrows(() => device.mapWeight([{ tensor }], cols), ForgeError, message);
    assert(error.code !== "device" || !error.message.includes("internal"), error.message);
  }
  const tensor = writeMatrix(folder.at("short.bin"), blocks);
  const tooFar = { tensor, firstRow: rows - 1, nRows: 2 };
  assertThrows(() => device.mapWeight([tooFar], cols), ForgeError, "of a packed matrix of 16 x 64");
  const narrow = { tensor, nRows: 1 };
  assertThrows(() => device.mapWeight([narrow], cols / 2), ForgeError, "another type or width");
  assertEquals(device.mapWeight([{ tensor }], cols).rows, rows);
});

deviceTest("experts with a column order each", async (device, random) => {
  using folder = new TempFolder();
  const groupOf = new Int32Array(Uint8Array.fromBase64(outOfOrder.groups!).buffer);
  const nExperts = 3;
  const slices: WeightSlice[] = [], floats: Float32Array[] = [];
  for (let expert = 0; expert < nExperts; expert++) {
    const groups = groupOf.map((_, col) => groupOf[(col + 7 * expert) % cols]!);
    const vector = { ...outOfOrder, groups: new Uint8Array(groups.buffer).toBase64() };
    const columnOrder = Uint32Array.from(groups.keys()).sort((a, b) => groups[a]! - groups[b]!);
    const tensor = writeMatrix(folder.at(`${expert}.bin`), vector, { columnOrder });
    slices.push({ tensor });
    const plain = writeMatrix(folder.at(`${expert}-floats.bin`), { ...vector, type: "F32" });
    floats.push(device.readWeight(device.mapWeight([{ tensor: plain }], cols), 0, rows));
  }
  const ordered = withColumnOrder(slices, cols, nExperts);
  assertEquals(ordered.slices, slices);
  const weight = device.mapWeight(ordered.slices, cols, ordered.columnOrder);
  // Signs are exact as signed bytes under any scale.
  const x = matrixOfRows(
    4,
    cols,
    () => random.permutation(cols).map((n) => n % 2 ? 0.125 : -0.125),
  );
  // Token t takes the experts t and t + 1.
  const logits = matrixOfRows(
    4,
    nExperts,
    (row) =>
      Array.from({ length: nExperts }, (_, expert) => -((expert - row + 4 * nExperts) % nExperts)),
  );
  const actual = await runStep(device, tokenInputs(4), (graph) => {
    const route = graph.recorder.moeRoute(graph.input(logits), { topK: 2, normalize: true });
    const value = graph.recorder.moeMatmul(graph.input(x), route, weight, nExperts);
    return { value, cols: 2 * rows };
  });
  const plain = matrixOfRows(4, 2 * rows, (row) =>
    [row, row + 1].flatMap((expert) =>
      Array.from(
        products(rowOf(x, row), {
          rows,
          cols,
          data: new Float32Array(floats[expert % nExperts]!),
        }),
      )
    ));
  const tolerance = isGpu(device) ? HALF_PRODUCTS : { absolute: 1e-6, relative: 4e-6 };
  assertClose(actual, plain, tolerance, "products");
  device.releaseWeight(weight);
  for (const released of [weight, weight.columnOrder!]) {
    assertThrows(() => device.readWeight(released, 0, 1), ForgeError, "bad handle");
  }
});

/** Packed matrices become rows of blocks as torch unpacks them, on every device (`packed_vectors.py`). */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { decodeBase64 } from "../support/base64.ts";
import { ForgeError } from "../../src/errors.ts";
import {
  type PackedMatrix,
  type Packing,
  tensorBytes,
  type TensorInfo,
  type TensorType,
} from "../../src/formats/tensor_info.ts";
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
type Vector = (typeof matrices)[number];

const BLOCK = 32;
/** The largest relative error of rounding to F16. */
const F16 = 2 ** -11;

/** Writes the tensors of a matrix into a file, each after some bytes of something else. */
function writeMatrix(path: string, vector: Vector, change: Partial<PackedMatrix> = {}): TensorInfo {
  using file = Deno.openSync(path, { write: true, create: true });
  let offset = 0;
  const write = (name: string, data: string, type: TensorType): TensorInfo => {
    const bytes = decodeBase64(data);
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
    ...change,
  };
  const type = vector.type as TensorType;
  const bytes = Number(tensorBytes(type, [rows, cols]));
  return { name: "matrix", type, shape: [rows, cols], file: path, offset: 0, bytes, packed };
}

function valuesOf({ values }: Vector): Float32Array {
  return new Float32Array(decodeBase64(values).buffer);
}

/** How far a number of a block may be from what it is made of, by what its rows become. */
function allowed(vector: Vector, block: Float32Array): number {
  const largest = block.reduce((most, each) => Math.max(most, Math.abs(each)), 0);
  switch (vector.type) {
    case "Q8_0":
      return vector.packing === "int8" ? 0 : largest * (1 / 254 + F16);
    case "Q4_1":
      // The zero times the scale, in F16.
      return largest * 16 * F16;
    default:
      return 0;
  }
}

for (const vector of matrices) {
  deviceTest(`packed matrix: ${vector.name}`, async (device, random) => {
    using folder = new TempFolder();
    const tensor = writeMatrix(folder.at("packed.bin"), vector);
    const weight = device.mapWeight([{ tensor }], cols);
    const read = device.readWeight(weight, 0, rows);
    const values = valuesOf(vector);
    values.forEach((value, i) => {
      const block = values.subarray(i - i % BLOCK, i - i % BLOCK + BLOCK);
      const error = Math.abs(read[i]! - value);
      const most = allowed(vector, block);
      assert(error <= most, `[${i}] is ${read[i]}, not ${value}: off by ${error}, allowed ${most}`);
    });

    // Rows from the middle, behind others, as products read them.
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

deviceTest("packed matrices that are not as they say are refused", (device) => {
  using folder = new TempFolder();
  const find = (name: string) => matrices.find((vector) => vector.name === name)!;
  const blocks = find("blocks"), ordered = find("GPTQ");
  const outOfOrder = find("GPTQ in an order of its own");
  const far = (tensor: TensorInfo): TensorInfo => ({ ...tensor, offset: 2 ** 40 });
  const written = writeMatrix(folder.at("written.bin"), ordered).packed!;
  const bad: [Vector, Partial<PackedMatrix>, Partial<TensorInfo>, string][] = [
    [blocks, { groupCols: 48 }, {}, "groups of 48 columns are no multiple of 32"],
    [blocks, { groupRows: 0 }, {}, "a packed matrix with a size of 0"],
    [blocks, { groupRows: 1 }, {}, "pass its end"],
    [blocks, { codes: far(written.codes) }, {}, "pass its end"],
    [blocks, { scales: { ...written.scales!, type: "Q8_0" } }, {}, "floats of type 8"],
    [blocks, {}, { type: "Q4_0" }, "becomes no rows of type 2"],
    [ordered, { groupRows: 2 }, {}, "share scales"],
    [ordered, { zeros: undefined }, {}, "not a live file"],
    [ordered, { groupCols: 64 }, {}, "column 32 is of group 1 of 1"],
    [outOfOrder, {}, { type: "Q4_1" }, "its groups not in order"],
  ];
  for (const [vector, change, own, message] of bad) {
    const path = folder.at(`${message}.bin`);
    const tensor = { ...writeMatrix(path, vector, change), ...own };
    const error = assertThrows(() => device.mapWeight([{ tensor }], cols), ForgeError, message);
    assert(error.code !== "device" || !error.message.includes("internal"), error.message);
  }
  const tensor = writeMatrix(folder.at("short.bin"), blocks);
  const tooFar = { tensor, firstRow: rows - 1, nRows: 2 };
  assertThrows(() => device.mapWeight([tooFar], cols), ForgeError, "of a packed matrix of 16 x 64");
  assertEquals(device.mapWeight([{ tensor }], cols).rows, rows);
});

/** Weights quantised when they are read equal weights quantised in advance. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../src/errors.ts";
import { QUANTIZED_TYPES } from "../../src/formats/quantized.ts";
import { tensorBytes, type TensorInfo, type TensorType } from "../../src/formats/tensor_info.ts";
import { deviceTest } from "../support/devices.ts";
import { TempFolder } from "../support/temp_folder.ts";

const ROWS = 19, COLS = 512;
const FLOATS = ["F32", "F16", "BF16"] as const;

/** A file with a matrix after a few other bytes, and the descriptor to read it. */
function floatMatrix(
  path: string,
  stored: TensorType,
  bytes: Uint8Array,
  type: TensorType,
): TensorInfo {
  const offset = 6;
  const file = new Uint8Array(offset + bytes.length);
  file.set(bytes, offset);
  Deno.writeFileSync(path, file);
  const place = { name: "matrix", shape: [ROWS, COLS], file: path, offset };
  const codes = { ...place, type: stored, bytes: bytes.length };
  return {
    ...place,
    type,
    bytes: Number(tensorBytes(type, [ROWS, COLS])),
    packed: { packing: "float", groupRows: 1, groupCols: COLS, codes },
  };
}

deviceTest("rows of floats become blocks of any type as they are read", (device, random) => {
  using folder = new TempFolder();
  for (const stored of FLOATS) {
    const bytes = device.quantize(stored, ROWS, COLS, random.normals(ROWS * COLS));
    const weight = device.uploadWeight(stored, ROWS, COLS, bytes);
    const values = new Float32Array(device.readWeight(weight, 0, ROWS));
    for (const type of [...QUANTIZED_TYPES, "Q5_0"] as const) {
      const tensor = floatMatrix(folder.at(`${stored}.${type}`), stored, bytes, type);
      const made = device.mapWeight([{ tensor, firstRow: 3, nRows: 9 }, { tensor }], COLS);
      const blocks = device.quantize(type, ROWS, COLS, values);
      const expected = device.readWeight(device.uploadWeight(type, ROWS, COLS, blocks), 0, ROWS);
      assertEquals(device.readWeight(made, 9, ROWS), expected, `${stored} as ${type}`);
      assertEquals(device.readWeight(made, 0, 9), expected.subarray(3 * COLS, 12 * COLS));
    }
  }
});

deviceTest("a NaN or an infinity changes its own block only", (device, random) => {
  using folder = new TempFolder();
  const values = random.normals(ROWS * COLS);
  const spoiled = values.slice();
  spoiled[2 * COLS + 300] = NaN;
  spoiled[5 * COLS + 7] = Infinity;
  for (const type of QUANTIZED_TYPES) {
    const read = (floats: Float32Array<ArrayBuffer>, name: string) => {
      const bytes = new Uint8Array(floats.buffer);
      const tensor = floatMatrix(folder.at(`${name}.${type}`), "F32", bytes, type);
      return device.readWeight(device.mapWeight([{ tensor }], COLS), 0, ROWS);
    };
    const good = read(values, "good"), bad = read(spoiled, "bad");
    const block = type === "Q6_K" || type === "Q4_K" ? 256 : 32;
    for (const [i, value] of bad.entries()) {
      const row = Math.floor(i / COLS), at = Math.floor(i % COLS / block);
      const isSpoiled = row === 2 && at === Math.floor(300 / block) || row === 5 && at === 0;
      if (isSpoiled) assert(!Number.isFinite(value), `${type}: ${value} at ${i}`);
      else assertEquals(value, good[i], `${type} at ${i}`);
    }
  }
});

deviceTest("floats that cannot become blocks are rejected", (device, random) => {
  using folder = new TempFolder();
  const bytes = new Uint8Array(random.normals(ROWS * COLS).buffer);
  const tensor = floatMatrix(folder.at("matrix"), "F32", bytes, "Q8_0");
  const packed = tensor.packed!, { codes } = packed;
  const refusals: readonly (readonly [string, TensorInfo])[] = [
    ["becomes no rows of type 16", { ...tensor, type: "IQ2_XXS" }],
    ["floats of type 8", { ...tensor, packed: { ...packed, codes: { ...codes, type: "Q8_0" } } }],
    ["pass its end", { ...tensor, packed: { ...packed, codes: { ...codes, offset: 99 } } }],
  ];
  for (const [message, bad] of refusals) {
    assertThrows(() => device.mapWeight([{ tensor: bad }], COLS), ForgeError, message);
  }
});

/** Experts of Hugging Face folders that hold all experts of a layer in one tensor. */
import type { Weight } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import { InputFile } from "../../formats/file.ts";
import { quote } from "../../formats/quote.ts";
import { assertStored, type PackedMatrix, type TensorInfo } from "../../formats/tensor_info.ts";
import type { TensorName, WeightLoader } from "./weight_loader.ts";

/** Layout of a stored tensor, relative to `[nExperts, rows, cols]`. */
export interface ExpertLayout {
  /** True for `[nExperts, cols, rows]`. @default false */
  readonly isTransposed?: boolean;
  /**
   * True if rows of gate and up alternate, instead of all of gate before all of up. @default false
   */
  readonly isInterleaved?: boolean;
}

/** Shape of the loaded weight, `[nExperts x rows, cols]`. */
interface ExpertShape extends ExpertLayout {
  readonly nExperts: number;
  readonly rows: number;
  readonly cols: number;
}

/** Elements of an MXFP4 block, and its bytes without and with the scale. */
const MX_BLOCK = 32;
const MX_NIBBLES = 16;
const MX_BYTES = 17;

/**
 * Loads the weight `[nExperts x rows, cols]`: mapped if the file has this layout, else reordered in
 * memory.
 */
export function loadStackedExperts(
  weights: WeightLoader,
  name: string,
  shape: ExpertShape,
): Weight {
  const { nExperts, rows, cols, isTransposed = false, isInterleaved = false } = shape;
  const blocks: TensorName = [`${name}_blocks`, undefined];
  if (weights.has(blocks, "")) return loadMxfp4(weights, name, shape);
  const stored = isTransposed ? [nExperts, cols, rows] : [nExperts, rows, cols];
  const tensor = weights.tensor([name, undefined], "", stored);
  if (!isTransposed && !isInterleaved) return weights.mapWhole(tensor, cols);
  const { packed } = tensor;
  if (packed?.packing === "f8_e4m3") {
    const data = () => reorderFp8(tensor, packed, shape);
    return weights.upload("FP8", nExperts * rows, cols, [tensor], data);
  }
  return weights.upload(tensor.type, nExperts * rows, cols, [tensor], () => reorder(tensor, shape));
}

/** Loads the biases `[nExperts, rows]`, stored under the name with `_bias`. */
export function loadStackedBiases(
  weights: WeightLoader,
  name: string,
  { nExperts, rows, isInterleaved = false }: ExpertShape,
): Weight {
  const tensor = weights.tensor([`${name}_bias`, undefined], "", [nExperts, rows]);
  const stored = weights.mapWhole(tensor, rows);
  if (!isInterleaved) return stored;
  const values = weights.backend.readWeight(stored, 0, nExperts);
  const target = Float32Array.from(values, (_, i) => {
    const row = i % rows;
    return values[i - row + storedRow(row, rows, true)] ?? 0;
  });
  return weights.backend.uploadWeight("F32", nExperts, rows, new Uint8Array(target.buffer));
}

/** Returns the index of row `row` of an expert among its stored rows. */
export function storedRow(row: number, rows: number, isInterleaved: boolean): number {
  if (!isInterleaved) return row;
  const half = rows / 2;
  return row < half ? 2 * row : 2 * (row - half) + 1;
}

/** Returns the elements of a tensor in the order of the loaded weight. */
function reorder(tensor: TensorInfo, shape: ExpertShape): Uint8Array<ArrayBuffer> {
  const { nExperts, rows, cols, isTransposed = false, isInterleaved = false } = shape;
  const stored = elements(tensor, readTensor(tensor));
  const target = stored.slice().fill(0);
  const [rowStride, colStride] = isTransposed ? [1, rows] : [cols, 1];
  for (let expert = 0; expert < nExperts; expert++) {
    const base = expert * rows * cols;
    for (let row = 0; row < rows; row++) {
      const from = base + storedRow(row, rows, isInterleaved) * rowStride;
      const to = base + row * cols;
      for (let col = 0; col < cols; col++) target[to + col] = stored[from + col * colStride]!;
    }
  }
  return new Uint8Array(target.buffer);
}

/** Elements of an FP8 block, and its bytes with the scale. */
const FP8_BLOCK = 32;
const FP8_BYTES = 36;
/** Code of NaN in E4M3 without the sign bit. */
const E4M3_NAN = 0x7f;

/** Builds FP8 blocks, each a scale and 32 codes, from a packed tensor with another row order. */
function reorderFp8(
  { file, name }: TensorInfo,
  { codes, scales, groupRows, groupCols }: PackedMatrix,
  shape: ExpertShape,
): Uint8Array<ArrayBuffer> {
  const { nExperts, rows, cols, isTransposed = false, isInterleaved = false } = shape;
  const [storedRows, storedCols] = isTransposed ? [cols, rows] : [rows, cols];
  const [group, whole] = isTransposed ? [groupRows, storedRows] : [groupCols, storedCols];
  if (scales === undefined || (group % FP8_BLOCK !== 0 && group < whole)) {
    throw new ForgeError(
      "unsupported",
      `${quote(file)}: the scales of ${
        quote(name)
      } are for ${group} columns each; expected whole ` +
        `rows, or multiples of ${FP8_BLOCK} columns`,
    );
  }
  const bytes = readTensor(codes), factors = floats(scales);
  const [rowStride, colStride] = isTransposed ? [1, rows] : [cols, 1];
  const groupsPerRow = Math.ceil(storedCols / groupCols);
  const target = new Uint8Array(nExperts * rows * cols / FP8_BLOCK * FP8_BYTES);
  const view = new DataView(target.buffer);
  let to = 0;
  for (let expert = 0; expert < nExperts; expert++) {
    for (let row = 0; row < rows; row++) {
      const own = storedRow(row, rows, isInterleaved);
      for (let col = 0; col < cols; col += FP8_BLOCK, to += FP8_BYTES) {
        const [atRow, atCol] = isTransposed ? [col, own] : [own, col];
        const groupRow = Math.floor((expert * storedRows + atRow) / groupRows);
        const factor = factors[groupRow * groupsPerRow + Math.floor(atCol / groupCols)]!;
        const from = expert * rows * cols + own * rowStride + col * colStride;
        let hasNan = false;
        for (let i = 0; i < FP8_BLOCK; i++) {
          const code = bytes[from + i * colStride]!;
          hasNan ||= (code & E4M3_NAN) === E4M3_NAN;
          target[to + 4 + i] = code;
        }
        view.setFloat32(to, hasNan ? NaN : factor, true);
      }
    }
  }
  return target;
}

/** Reads a tensor of floats as numbers. */
function floats(tensor: TensorInfo): ArrayLike<number> {
  const bytes = readTensor(tensor);
  switch (tensor.type) {
    case "F32":
      return new Float32Array(bytes.buffer);
    case "F16":
      return new Float16Array(bytes.buffer);
    default: {
      const upper = Uint32Array.from(new Uint16Array(bytes.buffer), (bits) => bits << 16);
      return new Float32Array(upper.buffer);
    }
  }
}

/** Returns the elements of a tensor of floats as integers of the same size, to be copied. */
function elements(tensor: TensorInfo, bytes: Uint8Array<ArrayBuffer>) {
  switch (tensor.type) {
    case "F32":
      return new Uint32Array(bytes.buffer);
    case "F16":
    case "BF16":
      return new Uint16Array(bytes.buffer);
    default:
      throw new ForgeError(
        "unsupported",
        `tensor ${quote(tensor.name)} in ${quote(tensor.file)} is stored as ${tensor.type}; ` +
          "experts in this layout are read from F32, F16 and BF16",
      );
  }
}

/**
 * Loads MXFP4 as gpt-oss stores it: a byte holds two neighbouring elements, scales are in a
 * separate tensor. The result has GGUF's blocks: a scale, then elements i and i + 16 in byte i.
 * Open Compute Project, "OCP Microscaling Formats (MX) Specification", 1.0.
 */
function loadMxfp4(weights: WeightLoader, name: string, shape: ExpertShape): Weight {
  const { nExperts, rows, cols, isInterleaved = false } = shape;
  const perRow = cols / MX_BLOCK;
  if (!Number.isInteger(perRow)) {
    throw new ForgeError(
      "bad_model",
      `MXFP4 ${quote(name)} has ${cols} columns; valid is a multiple of ${MX_BLOCK}`,
    );
  }
  const nibbles = weights.bytes([`${name}_blocks`, undefined], [
    nExperts,
    rows,
    perRow,
    MX_NIBBLES,
  ]);
  const scales = weights.bytes([`${name}_scales`, undefined], [nExperts, rows, perRow]);
  return weights.upload("MXFP4", nExperts * rows, cols, [nibbles, scales], () => {
    const from = { nibbles: readTensor(nibbles), scales: readTensor(scales) };
    const target = new Uint8Array(nExperts * rows * perRow * MX_BYTES);
    for (let row = 0; row < nExperts * rows; row++) {
      const inExpert = row % rows;
      const source = row - inExpert + storedRow(inExpert, rows, isInterleaved);
      packMxfp4Row(target, row * perRow, from, source * perRow, perRow);
    }
    return target;
  });
}

function packMxfp4Row(
  target: Uint8Array,
  toBlock: number,
  from: { readonly nibbles: Uint8Array; readonly scales: Uint8Array },
  fromBlock: number,
  nBlocks: number,
): void {
  const { nibbles, scales } = from;
  for (let block = 0; block < nBlocks; block++) {
    let to = (toBlock + block) * MX_BYTES;
    target[to++] = scales[fromBlock + block]!;
    const low = (fromBlock + block) * MX_NIBBLES;
    for (let i = low; i < low + MX_NIBBLES / 2; i++) {
      const first = nibbles[i]!;
      const second = nibbles[i + MX_NIBBLES / 2]!;
      target[to++] = (first & 15) | (second & 15) << 4;
      target[to++] = (first >> 4) | (second & 0xf0);
    }
  }
}

function readTensor(tensor: TensorInfo): Uint8Array<ArrayBuffer> {
  assertStored(tensor);
  using file = InputFile.open(tensor.file);
  const bytes = new Uint8Array(tensor.bytes);
  file.readAt(tensor.offset, bytes);
  return bytes;
}

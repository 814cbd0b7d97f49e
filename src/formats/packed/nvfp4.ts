/**
 * Matrices in NVFP4: 4-bit floats (E2M1) with an 8-bit float (E4M3) as the scale of 16 columns, and
 * a scale of the whole matrix. They become FP4 without loss, or F32 if their rows are no whole
 * blocks. NVIDIA, "Pretraining Large Language Models with NVFP4", arXiv:2509.25149.
 */
import { ForgeError } from "../../errors.ts";
import { quote } from "../quote.ts";
import { TENSOR_TYPES, tensorBytes, type TensorInfo, type TensorType } from "../tensor_info.ts";
import {
  expected,
  FLOATS,
  type PackedFolder,
  part,
  unknownPacking,
  type Unpacked,
} from "./folder.ts";

/** Columns of a scale in E4M3. */
const SCALE_COLS = 16;

/**
 * The tensors of writers: endings of codes, and of the matrix's scale, which multiplies or divides.
 */
const WRITERS = [
  { codes: ".weight_packed", scale: ".weight_global_scale", packing: "nvfp4_divided" },
  { codes: ".weight", scale: ".weight_scale_2", packing: "nvfp4" },
] as const;

/** Yields the matrices of a folder that compressed-tensors or TensorRT Model Optimizer writes. */
export function* nvfp4Matrices(folder: PackedFolder): Iterable<Unpacked> {
  const { path, tensors } = folder;
  for (const codes of tensors.values()) {
    const writer = WRITERS.find((each) => codes.name.endsWith(each.codes));
    if (codes.type !== "U8" || writer === undefined) continue;
    const base = codes.name.slice(0, -writer.codes.length);
    const blockScales = part(folder, `${base}.weight_scale`);
    if (blockScales.type === "U8") {
      throw unknownPacking(path, "quantized to 4-bit floats with powers of two as scales (MXFP4)");
    }
    if (tensors.has(`${base}.pre_quant_scale`)) {
      throw unknownPacking(path, "quantized to NVFP4 with scaled inputs (AWQ)");
    }
    const [rows = 0, bytes = 0] = codes.shape;
    const cols = bytes * 2;
    expected(codes, [rows, bytes], ["U8"]);
    expected(blockScales, [rows, cols / SCALE_COLS], ["F8_E4M3"]);
    const scales = part(folder, `${base}${writer.scale}`);
    expected(scales, scales.shape.length === 0 ? [] : [1], FLOATS);
    const { packing } = writer;
    const packed = {
      packing,
      groupRows: rows,
      groupCols: cols,
      codes,
      scales,
      blockScales,
    } as const;
    const type = cols % TENSOR_TYPES.FP4.blockElements === 0 ? "FP4" : "F32";
    yield {
      matrix: inType({ ...codes, name: `${base}.weight`, shape: [rows, cols], packed }, type),
      parts: [codes, scales, blockScales],
    };
  }
}

/**
 * Returns the tensors of a GGUF file with matrices in NVFP4 as FP4, each with the scale of its
 * name.
 *
 * @throws {ForgeError} `bad_model` if a matrix has scales of another shape
 */
export function unpackedGgufTensors(
  tensors: ReadonlyMap<string, TensorInfo>,
): ReadonlyMap<string, TensorInfo> {
  const result = new Map(tensors);
  for (const codes of tensors.values()) {
    if (codes.type !== "NVFP4") continue;
    const base = codes.name.replace(/\.weight$/, "");
    const [rows = 1, cols = 0] = codes.shape.slice(-2);
    const nMatrices = codes.shape.slice(0, -2).reduce((product, size) => product * size, 1);
    const scales = expected(tensors.get(`${base}.scale`), [nMatrices], FLOATS);
    const packed = {
      packing: "nvfp4_blocks",
      groupRows: rows,
      groupCols: cols,
      codes,
      scales,
    } as const;
    result.set(codes.name, inType({ ...codes, packed }, "FP4"));
    for (const name of [`${base}.scale`, `${base}.input_scale`]) result.delete(name);
  }
  return result;
}

function inType(tensor: TensorInfo, type: TensorType): TensorInfo {
  const bytes = tensorBytes(type, tensor.shape);
  if (typeof bytes === "number") return { ...tensor, type, bytes };
  throw new ForgeError(
    "unsupported",
    `${quote(tensor.file)}: matrix ${quote(tensor.name)} in NVFP4: ${bytes}`,
  );
}

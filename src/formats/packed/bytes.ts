/**
 * Matrices of 8-bit floats (E4M3) or integers with scales: one per matrix, one per row, or one per
 * block of 128 x 128 (DeepSeek-V3, arXiv:2412.19437). Floats become FP8 and integers Q8_0, whose
 * blocks of 32 columns repeat the scale of their group. FP8 keeps codes and scales exactly; Q8_0
 * rounds the scales to F16.
 */
import { ForgeError } from "../../errors.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import { quote } from "../quote.ts";
import { tensorBytes, type TensorInfo } from "../tensor_info.ts";
import { type PackedFolder, unknownPacking, type Unpacked } from "./folder.ts";

/** Size of a block without a setting. */
const DEFAULT_BLOCK: readonly [number, number] = [128, 128];

/** Packing of codes by type, and the type of the resulting rows. */
const PACKINGS = {
  F8_E4M3: { packing: "f8_e4m3", type: "FP8" },
  I8: { packing: "int8", type: "Q8_0" },
} as const;

/** Yields the 8-bit matrices of a folder. */
export function* byteMatrices({ path, settings, tensors }: PackedFolder): Iterable<Unpacked> {
  const block = blockOf(settings, path);
  for (const codes of tensors.values()) {
    if ((codes.type !== "F8_E4M3" && codes.type !== "I8") || codes.shape.length < 2) continue;
    // Scales of NVFP4.
    if (codes.name.endsWith(".weight_scale")) continue;
    const scales = tensors.get(`${codes.name}_scale_inv`) ?? tensors.get(`${codes.name}_scale`);
    if (scales === undefined) {
      throw new ForgeError(
        "bad_model",
        `${quote(path)} has neither ${
          quote(`${codes.name}_scale`)
        } nor "…_scale_inv" for the matrix`,
      );
    }
    const { name, shape, file, offset } = codes;
    const { packing, type } = PACKINGS[codes.type];
    if (tensors.has(`${name}_zero_point`)) {
      throw unknownPacking(path, "quantized to 8 bits with zero points");
    }
    const bytes = tensorBytes(type, shape);
    if (typeof bytes === "string") {
      throw new ForgeError("unsupported", `${quote(file)}: 8-bit matrix ${quote(name)}: ${bytes}`);
    }
    const packed = {
      packing,
      codes,
      scales,
      ...groupsOf(codes, scales, block),
    } as const;
    yield {
      matrix: { name, type, shape, file, offset, bytes, packed },
      parts: [codes, scales],
    };
  }
}

/** Returns the number of rows and columns that share a scale. */
function groupsOf(
  codes: TensorInfo,
  scales: TensorInfo,
  [blockRows, blockCols]: readonly [number, number],
): { readonly groupRows: number; readonly groupCols: number } {
  if (scales.type !== "F32" && scales.type !== "F16" && scales.type !== "BF16") {
    throw new ForgeError(
      "unsupported",
      `${quote(scales.file)}: scales ${
        quote(scales.name)
      } are stored as ${scales.type}; forge reads ` +
        "them in F32, F16 and BF16",
    );
  }
  const cols = codes.shape.at(-1)!, rows = codes.shape.at(-2)!;
  const outer = codes.shape.slice(0, -2).reduce((product, size) => product * size, 1);
  const count = scales.shape.reduce((product, size) => product * size, 1);
  if (count === 1) return { groupRows: outer * rows, groupCols: cols };
  // Stacked experts with transposed matrices have one scale per column.
  const isTransposed = codes.shape.length > 2 && count === outer * cols &&
    scales.shape.at(-2) === 1 && scales.shape.at(-1) === cols;
  if (isTransposed) return { groupRows: rows, groupCols: 1 };
  if (count === outer * rows) return { groupRows: 1, groupCols: cols };
  if (count === outer) return { groupRows: rows, groupCols: cols };
  const inRows = Math.ceil(rows / blockRows), inCols = Math.ceil(cols / blockCols);
  const [scaleRows, scaleCols] = scales.shape.slice(-2);
  const fits = scaleRows === inRows && scaleCols === inCols && count === outer * inRows * inCols;
  // Blocks must not extend into the next of several matrices.
  if (fits && (outer === 1 || rows % blockRows === 0)) {
    return { groupRows: blockRows, groupCols: blockCols };
  }
  throw new ForgeError(
    "bad_model",
    `${quote(scales.file)}: scales ${
      quote(scales.name)
    } have the shape [${scales.shape}]; valid for ` +
      `[${codes.shape}] is one scale, one per row, or one per block of ${blockRows} x ${blockCols}`,
  );
}

/** Returns the size of a block. */
function blockOf(settings: JsonObject, path: string): readonly [number, number] {
  const named = settings.weight_block_size ?? blockStructure(settings.config_groups);
  if (named === undefined) return DEFAULT_BLOCK;
  if (Array.isArray(named) && named.length === 2) {
    const [rows, cols] = named;
    const isSize = (value: JsonValue | undefined): value is number =>
      typeof value === "number" && Number.isSafeInteger(value) && value > 0;
    if (isSize(rows) && isSize(cols)) return [rows, cols];
  }
  throw new ForgeError(
    "bad_model",
    `${quote(path)}: quantization_config has the block ${
      quote(JSON.stringify(named))
    }; valid is a list of two sizes`,
  );
}

/** Returns the block size of compressed-tensors: that of the first group that has one. */
function blockStructure(groups: JsonValue | undefined): JsonValue | undefined {
  if (!isJsonObject(groups)) return undefined;
  for (const group of Object.values(groups)) {
    const weights = isJsonObject(group) ? group.weights : undefined;
    const found = isJsonObject(weights) ? weights.block_structure : undefined;
    if (found !== undefined && found !== null) return found;
  }
  return undefined;
}

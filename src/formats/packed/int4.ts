/**
 * Matrices of 4-bit integers with a scale, and in most formats a zero, per group of columns. They
 * become blocks of 32 columns, which repeat the scale of their group. The conversion is exact for
 * F16 scales. Matrices without zeros become Q4_0, and those whose zeros are all 8 become Q4_1,
 * where the product of zero and scale is exact. Others become Q5_0, whose five bits hold the
 * difference of code and zero. E. Frantar et al., "GPTQ", arXiv:2210.17323; J. Lin et al., "AWQ",
 * arXiv:2306.00978.
 */
import { ForgeError } from "../../errors.ts";
import { InputFile } from "../file.ts";
import { isJsonObject, type JsonObject, type JsonValue } from "../json.ts";
import { quote } from "../quote.ts";
import {
  type PackedMatrix,
  tensorBytes,
  type TensorInfo,
  type TensorType,
} from "../tensor_info.ts";
import {
  expected,
  FLOATS,
  type PackedFolder,
  part,
  unknownPacking,
  type Unpacked,
} from "./folder.ts";

/** Codes per 32-bit word. */
const PER_WORD = 8;

/** Columns of a block of 4-bit integers, which share a scale. */
const BLOCK = 32;

/** Yields the matrices of a folder written by AutoGPTQ, GPTQModel and similar programs. */
export function* gptqMatrices(folder: PackedFolder): Iterable<Unpacked> {
  const { path, settings, tensors } = folder;
  assertBits(folder, settings.bits);
  const format = settings.checkpoint_format ?? "gptq";
  if (format !== "gptq") throw unknownPacking(path, `GPTQ of the format ${quote(String(format))}`);
  if (isJsonObject(settings.dynamic) && Object.values(settings.dynamic).some(changesBits)) {
    throw unknownPacking(path, "GPTQ with other numbers of bits in some of its matrices");
  }
  for (const codes of tensors.values()) {
    const base = baseName(codes, ".qweight");
    if (base === undefined) continue;
    const [wordRows = 0, rows = 0] = codes.shape;
    const zeros = part(folder, `${base}.qzeros`), scales = part(folder, `${base}.scales`);
    const parts = [codes, zeros, scales] as const;
    const cols = wordRows * PER_WORD;
    const groups = expected(tensors.get(`${base}.g_idx`), [cols], ["I32"]);
    const nGroups = scales.shape[0] ?? 0;
    // If a row is one group, the order of the columns is irrelevant.
    if (settings.desc_act === true && nGroups > 1) part(folder, `${base}.g_idx`);
    const found = groups && columnGroups(readGroups(groups, nGroups), groupSize(settings, cols));
    const columnOrder = found?.kind === "ordered" ? found.order : undefined;
    const packed = { packing: "gptq", codes, zeros, scales, groups, columnOrder } as const;
    const type = found?.kind === "mixed" ? "F32" : settings.sym === true ? "Q4_1" : "Q5_0";
    const matrix = columnMatrix(folder, base, [rows, cols], type, packed);
    yield {
      matrix,
      parts: [...parts, ...(groups ? [groups] : []), ...emptyBias(folder, base, rows)],
    };
  }
}

/** Yields the matrices of a folder written by AutoAWQ for matrix products ("gemm"). */
export function* awqMatrices(folder: PackedFolder): Iterable<Unpacked> {
  const { path, settings, tensors } = folder;
  assertBits(folder, settings.bits ?? settings.w_bit);
  const version = String(settings.version ?? "gemm").toLowerCase();
  if (version !== "gemm") throw unknownPacking(path, `AWQ of the version ${quote(version)}`);
  for (const codes of tensors.values()) {
    const base = baseName(codes, ".qweight");
    if (base === undefined) continue;
    const [cols = 0, wordRows = 0] = codes.shape;
    const zeros = part(folder, `${base}.qzeros`), scales = part(folder, `${base}.scales`);
    const shape = [wordRows * PER_WORD, cols] as const;
    const packed = { packing: "awq", codes, zeros, scales } as const;
    yield {
      matrix: columnMatrix(folder, base, shape, "Q5_0", packed),
      parts: [codes, zeros, scales],
    };
  }
}

/**
 * Yields the matrices of a folder that compressed-tensors writes as "pack-quantized", without
 * zeros.
 */
export function* int4Matrices(folder: PackedFolder): Iterable<Unpacked> {
  const { path, settings, tensors } = folder;
  for (const codes of tensors.values()) {
    const base = baseName(codes, ".weight_packed");
    if (base === undefined || codes.type === "U8") continue; // NVFP4
    assertBits(folder, packedBits(settings));
    if (codes.type !== "I32") throw unknownPacking(path, `quantized to 4 bits in ${codes.type}`);
    if (tensors.has(`${base}.weight_zero_point`) || tensors.has(`${base}.weight_g_idx`)) {
      throw unknownPacking(path, "quantized with zero points or an order of columns");
    }
    const scales = part(folder, `${base}.weight_scale`);
    const size = tensors.get(`${base}.weight_shape`);
    const [rows = 0, words = 0] =
      expected(codes, [codes.shape[0] ?? 0, codes.shape[1] ?? 0], ["I32"])
        .shape;
    const cols = words * PER_WORD;
    const nGroups = scales.shape[1] ?? 0;
    expected(scales, [rows, nGroups], FLOATS);
    const packed = {
      packing: "int4",
      groupRows: 1,
      groupCols: groupCols(scales, cols, nGroups),
      codes,
      scales,
    } as const;
    yield {
      matrix: matrixOf(`${base}.weight`, "Q4_0", [rows, cols], packed),
      parts: [codes, scales, ...(size ? [size] : [])],
    };
  }
}

/** Builds a GPTQ or AWQ matrix from scales `[groups, rows]` and zeros `[groups, rows / 8]`. */
function columnMatrix(
  folder: PackedFolder,
  base: string,
  [rows, cols]: readonly [number, number],
  type: TensorType,
  packed: Omit<PackedMatrix, "groupRows" | "groupCols"> & {
    readonly zeros: TensorInfo;
    readonly scales: TensorInfo;
  },
): TensorInfo {
  const { codes, scales, zeros } = packed;
  expected(codes, codes.shape.slice(0, 2), ["I32"]);
  const nGroups = scales.shape[0] ?? 0;
  expected(scales, [nGroups, rows], FLOATS);
  expected(zeros, [nGroups, rows / PER_WORD], ["I32"]);
  const width = groupCols(scales, cols, nGroups, groupSize(folder.settings, cols));
  return matrixOf(`${base}.weight`, type, [rows, cols], {
    ...packed,
    groupRows: 1,
    groupCols: width,
  });
}

/** Returns the number of columns per scale in the settings, where -1 means whole rows. */
function groupSize({ group_size: size }: JsonObject, cols: number): number {
  return typeof size === "number" && size > 0 ? size : cols;
}

/** Layout of a row's columns in groups. */
type ColumnGroups =
  /** Groups are runs of neighbouring columns. */
  | { readonly kind: "runs" }
  /** Groups become whole blocks if the columns are reordered. */
  | { readonly kind: "ordered"; readonly order: Uint32Array<ArrayBuffer> }
  /** Groups are not whole blocks, so the rows become floats. */
  | { readonly kind: "mixed" };

/** Classifies groups of columns; runs have `width` columns each. */
function columnGroups(groupOf: Int32Array, width: number): ColumnGroups {
  if (groupOf.every((group, i) => group === Math.floor(i / width))) return { kind: "runs" };
  const sizes = new Map<number, number>();
  for (const group of groupOf) sizes.set(group, (sizes.get(group) ?? 0) + 1);
  if ([...sizes.values()].some((size) => size % BLOCK !== 0)) return { kind: "mixed" };
  const order = Uint32Array.from(groupOf, (_, column) => column);
  // The sort keeps the order of columns within a group.
  return { kind: "ordered", order: order.sort((a, b) => groupOf[a]! - groupOf[b]! || a - b) };
}

/**
 * Reads the group of each column.
 *
 * @throws {ForgeError} `bad_model` for a group that does not exist
 */
function readGroups(groups: TensorInfo, nGroups: number): Int32Array {
  using file = InputFile.open(groups.file);
  const bytes = new Uint8Array(groups.bytes);
  file.readAt(groups.offset, bytes);
  const groupOf = new Int32Array(bytes.buffer);
  const column = groupOf.findIndex((group) => group < 0 || group >= nGroups);
  if (column < 0) return groupOf;
  throw new ForgeError(
    "bad_model",
    `${quote(groups.file)}: tensor ${quote(groups.name)} puts column ${column} into group ` +
      `${groupOf[column]}; expected 0 to ${nGroups - 1}`,
  );
}

function matrixOf(
  name: string,
  type: TensorType,
  shape: readonly number[],
  packed: PackedMatrix,
): TensorInfo {
  const { file, offset } = packed.codes;
  const bytes = tensorBytes(type, shape);
  if (typeof bytes === "string") {
    throw new ForgeError("unsupported", `${quote(file)}: 4-bit matrix ${quote(name)}: ${bytes}`);
  }
  return { name, type, shape, file, offset, bytes, packed };
}

/** Returns the number of columns that share a scale, which must be whole blocks of 32. */
function groupCols(
  scales: TensorInfo,
  cols: number,
  nGroups: number,
  width = cols / nGroups,
): number {
  if (Math.ceil(cols / width) === nGroups && (width % 32 === 0 || width >= cols)) return width;
  throw new ForgeError(
    "unsupported",
    `${quote(scales.file)}: scales ${
      quote(scales.name)
    } have ${nGroups} groups in ${cols} columns; forge ` +
      "reads groups that are multiples of 32 columns, or whole rows",
  );
}

function baseName({ name }: TensorInfo, suffix: string): string | undefined {
  return name.endsWith(suffix) ? name.slice(0, -suffix.length) : undefined;
}

function assertBits({ path }: PackedFolder, bits: unknown): void {
  if (bits !== 4) throw unknownPacking(path, `quantized to ${quote(String(bits))} bits`);
}

function changesBits(settings: JsonValue | undefined): boolean {
  return isJsonObject(settings) && settings.bits !== undefined;
}

/**
 * Returns the number of bits of packed integers in the settings of compressed-tensors; of several,
 * the first that is not 4.
 */
function packedBits(settings: JsonObject): unknown {
  const groups = isJsonObject(settings.config_groups) ? Object.values(settings.config_groups) : [];
  const bits = groups.flatMap((group) => {
    const { weights, format = "pack-quantized" } = isJsonObject(group) ? group : {};
    // Groups of other formats, such as 8-bit floats, have no packed integers.
    if (!isJsonObject(weights) || weights.type === "float" || format !== "pack-quantized") {
      return [];
    }
    return [weights.num_bits];
  });
  return bits.find((each) => each !== 4) ?? bits[0];
}

/** Returns a bias of zeros, which older GPTQ writers add to every matrix and which is dropped. */
function emptyBias({ tensors }: PackedFolder, base: string, rows: number): TensorInfo[] {
  const bias = tensors.get(`${base}.bias`);
  // The model's loader rejects a bias of another length.
  if (bias === undefined || bias.shape.length !== 1 || bias.shape[0] !== rows) return [];
  using file = InputFile.open(bias.file);
  const bytes = new Uint8Array(bias.bytes);
  file.readAt(bias.offset, bytes);
  return bytes.some((byte) => byte !== 0) ? [] : [bias];
}

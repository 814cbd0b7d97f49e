import { ForgeError } from "../errors.ts";
import { quote } from "./quote.ts";

/** Storage of a tensor type. */
export interface TensorTypeInfo {
  /** Number of the type in GGUF files; `undefined` for types that only safetensors has. */
  readonly ggmlId: number | undefined;
  /** Number of the type for native code, if it has no number in GGUF. */
  readonly nativeId?: number;
  /** Elements that share one block. A row (the innermost dimension) is a whole number of blocks. */
  readonly blockElements: number;
  /** Bytes of one block. */
  readonly blockBytes: number;
  /**
   * True if forge computes with weights of this type. Other types can be listed, but not loaded.
   */
  readonly supported: boolean;
}

/** Name of a tensor type. */
export type TensorType =
  | "F32"
  | "F16"
  | "BF16"
  | "Q4_0"
  | "Q4_1"
  | "Q5_0"
  | "Q5_1"
  | "Q8_0"
  | "Q2_K"
  | "Q3_K"
  | "Q4_K"
  | "Q5_K"
  | "Q6_K"
  | "IQ4_NL"
  | "IQ4_XS"
  | "IQ3_S"
  | "TQ1_0"
  | "TQ2_0"
  | "IQ2_XXS"
  | "IQ2_XS"
  | "IQ2_S"
  | "IQ3_XXS"
  | "IQ1_S"
  | "IQ1_M"
  | "MXFP4"
  | "FP8"
  | "FP4"
  | "Q8_1"
  | "Q8_K"
  | "NVFP4"
  | "Q1_0"
  | "I8"
  | "I16"
  | "I32"
  | "I64"
  | "F64"
  | "BOOL"
  | "U8"
  | "U16"
  | "U32"
  | "U64"
  | "C64"
  | "F8_E4M3"
  | "F8_E5M2"
  | "F8_E8M0"
  | "F6_E2M3"
  | "F6_E3M2"
  | "F4";

/** All tensor types of the two formats, and those that packed matrices become. */
export const TENSOR_TYPES: Readonly<Record<TensorType, TensorTypeInfo>> = {
  F32: { ggmlId: 0, blockElements: 1, blockBytes: 4, supported: true },
  F16: { ggmlId: 1, blockElements: 1, blockBytes: 2, supported: true },
  BF16: { ggmlId: 30, blockElements: 1, blockBytes: 2, supported: true },
  Q4_0: { ggmlId: 2, blockElements: 32, blockBytes: 18, supported: true },
  Q4_1: { ggmlId: 3, blockElements: 32, blockBytes: 20, supported: true },
  Q5_0: { ggmlId: 6, blockElements: 32, blockBytes: 22, supported: true },
  Q5_1: { ggmlId: 7, blockElements: 32, blockBytes: 24, supported: true },
  Q8_0: { ggmlId: 8, blockElements: 32, blockBytes: 34, supported: true },
  Q2_K: { ggmlId: 10, blockElements: 256, blockBytes: 84, supported: true },
  Q3_K: { ggmlId: 11, blockElements: 256, blockBytes: 110, supported: true },
  Q4_K: { ggmlId: 12, blockElements: 256, blockBytes: 144, supported: true },
  Q5_K: { ggmlId: 13, blockElements: 256, blockBytes: 176, supported: true },
  Q6_K: { ggmlId: 14, blockElements: 256, blockBytes: 210, supported: true },
  IQ4_NL: { ggmlId: 20, blockElements: 32, blockBytes: 18, supported: true },
  IQ4_XS: { ggmlId: 23, blockElements: 256, blockBytes: 136, supported: true },
  IQ3_S: { ggmlId: 21, blockElements: 256, blockBytes: 110, supported: true },
  TQ1_0: { ggmlId: 34, blockElements: 256, blockBytes: 54, supported: true },
  TQ2_0: { ggmlId: 35, blockElements: 256, blockBytes: 66, supported: true },
  IQ2_XXS: { ggmlId: 16, blockElements: 256, blockBytes: 66, supported: true },
  IQ2_XS: { ggmlId: 17, blockElements: 256, blockBytes: 74, supported: true },
  IQ2_S: { ggmlId: 22, blockElements: 256, blockBytes: 82, supported: true },
  IQ3_XXS: { ggmlId: 18, blockElements: 256, blockBytes: 98, supported: true },
  IQ1_S: { ggmlId: 19, blockElements: 256, blockBytes: 50, supported: true },
  IQ1_M: { ggmlId: 29, blockElements: 256, blockBytes: 56, supported: true },
  MXFP4: { ggmlId: 39, blockElements: 32, blockBytes: 17, supported: true },
  /** 32 values in E4M3 and an F32 scale: the form of matrices stored in 8-bit floats. */
  FP8: { ggmlId: undefined, nativeId: 256, blockElements: 32, blockBytes: 36, supported: true },
  /** 64 values in E2M1, four scales in E4M3 and an F32 scale: the form of matrices in NVFP4. */
  FP4: { ggmlId: undefined, nativeId: 257, blockElements: 64, blockBytes: 40, supported: true },

  Q8_1: { ggmlId: 9, blockElements: 32, blockBytes: 36, supported: false },
  Q8_K: { ggmlId: 15, blockElements: 256, blockBytes: 292, supported: false },
  NVFP4: { ggmlId: 40, blockElements: 64, blockBytes: 36, supported: false },
  Q1_0: { ggmlId: 41, blockElements: 128, blockBytes: 18, supported: false },
  I8: { ggmlId: 24, blockElements: 1, blockBytes: 1, supported: false },
  I16: { ggmlId: 25, blockElements: 1, blockBytes: 2, supported: false },
  I32: { ggmlId: 26, blockElements: 1, blockBytes: 4, supported: false },
  I64: { ggmlId: 27, blockElements: 1, blockBytes: 8, supported: false },
  F64: { ggmlId: 28, blockElements: 1, blockBytes: 8, supported: false },
  BOOL: { ggmlId: undefined, blockElements: 1, blockBytes: 1, supported: false },
  U8: { ggmlId: undefined, blockElements: 1, blockBytes: 1, supported: false },
  U16: { ggmlId: undefined, blockElements: 1, blockBytes: 2, supported: false },
  U32: { ggmlId: undefined, blockElements: 1, blockBytes: 4, supported: false },
  U64: { ggmlId: undefined, blockElements: 1, blockBytes: 8, supported: false },
  C64: { ggmlId: undefined, blockElements: 1, blockBytes: 8, supported: false },
  F8_E4M3: { ggmlId: undefined, blockElements: 1, blockBytes: 1, supported: false },
  F8_E5M2: { ggmlId: undefined, blockElements: 1, blockBytes: 1, supported: false },
  F8_E8M0: { ggmlId: undefined, blockElements: 1, blockBytes: 1, supported: false },
  F6_E2M3: { ggmlId: undefined, blockElements: 4, blockBytes: 3, supported: false },
  F6_E3M2: { ggmlId: undefined, blockElements: 4, blockBytes: 3, supported: false },
  F4: { ggmlId: undefined, blockElements: 2, blockBytes: 1, supported: false },
};

/** Location and layout of one tensor. */
export interface TensorInfo {
  /** Name in the file. */
  readonly name: string;
  /** Type of its elements. */
  readonly type: TensorType;
  /** Row-major, outermost dimension first, as in PyTorch; GGUF's `ne` reversed. */
  readonly shape: readonly number[];
  /** Path of the file that holds the data. */
  readonly file: string;
  /** Byte offset of the data from the start of the file. */
  readonly offset: number;
  /** Bytes of data. */
  readonly bytes: number;
  /** Source of the rows of a packed matrix, which exists in the file only in this form. */
  readonly packed?: PackedMatrix;
}

/**
 * Packing of a matrix whose rows are not blocks of a type; see `FORGE_PACKED_…` in `csrc/forge.h`.
 */
export type Packing =
  | "f8_e4m3"
  | "int8"
  | "int4"
  | "gptq"
  | "awq"
  | "float"
  | "nvfp4"
  | "nvfp4_divided"
  | "nvfp4_blocks";

/** The tensors of a packed matrix. */
export interface PackedMatrix {
  /** Packing of the codes. */
  readonly packing: Packing;
  /** Number of rows that share a scale. */
  readonly groupRows: number;
  /** Number of columns that share a scale. */
  readonly groupCols: number;
  /** Bytes, 4-bit integers, or the values themselves. */
  readonly codes: TensorInfo;
  /** Factors of the codes. */
  readonly scales?: TensorInfo | undefined;
  /** Offsets subtracted from the codes before scaling. */
  readonly zeros?: TensorInfo | undefined;
  /** Group of each column, if GPTQ has reordered the columns. */
  readonly groups?: TensorInfo | undefined;
  /** Factors in E4M3 of 16 columns each, of NVFP4. */
  readonly blockScales?: TensorInfo | undefined;
  /** Source column of each column of the rows, if the columns are reordered. */
  readonly columnOrder?: Uint32Array<ArrayBuffer> | undefined;
}

/**
 * Returns the size in bytes of a tensor with this type and shape, or the reason why it is
 * impossible. A scalar has the shape `[]`.
 */
export function tensorBytes(type: TensorType, shape: readonly number[]): number | string {
  const { blockElements, blockBytes } = TENSOR_TYPES[type];
  let elements = 1;
  for (const size of shape) {
    if (!Number.isSafeInteger(size) || size < 1) {
      return `every dimension must be a whole number from 1 to ${Number.MAX_SAFE_INTEGER}`;
    }
    elements *= size;
    if (elements > Number.MAX_SAFE_INTEGER) return "it has more than 2^53 elements";
  }
  const row = shape.at(-1) ?? 1;
  if (row % blockElements !== 0) {
    return `the last dimension of ${type} must be a multiple of ${blockElements}`;
  }
  const bytes = elements / blockElements * blockBytes;
  return Number.isSafeInteger(bytes) ? bytes : "it has more than 2^53 bytes";
}

/**
 * Rejects a packed tensor where its stored bytes are required.
 *
 * @throws {ForgeError} `unsupported`, naming the tensor
 */
export function assertStored(tensor: TensorInfo): void {
  if (tensor.packed === undefined) return;
  throw new ForgeError(
    "unsupported",
    `tensor ${quote(tensor.name)} in ${quote(tensor.file)} is packed (${tensor.packed.packing}), ` +
      "and must be reordered, which forge supports only for unpacked tensors",
  );
}

/**
 * Rejects a tensor type that forge can list, but not compute with.
 *
 * @throws {ForgeError} `unsupported`, naming the type and the supported ones
 */
export function assertComputable(tensor: TensorInfo): void {
  if (TENSOR_TYPES[tensor.type].supported) return;
  const supported = Object.entries(TENSOR_TYPES)
    .filter(([, type]) => type.supported)
    .map(([name]) => name);
  const which = `tensor ${quote(tensor.name)} in ${quote(tensor.file)}`;
  throw new ForgeError(
    "unsupported",
    `${which} is stored as ${tensor.type}, which forge cannot compute with; it can with ${
      supported.join(", ")
    }`,
  );
}

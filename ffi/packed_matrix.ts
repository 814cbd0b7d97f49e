/** Packed matrices as structs of the ABI. */
import { type PackedMatrix, TENSOR_TYPES, type TensorInfo } from "../src/formats/tensor_info.ts";
import { PACKINGS } from "./abi/numbers.ts";

/** Bytes of a `forge_packed_matrix`. */
export const PACKED_MATRIX_BYTES = 40;

/** Bytes of a `forge_tensor_place`. */
export const TENSOR_PLACE_BYTES = 16;

/** Encodes a `forge_packed_matrix` whose rows have the type with this number. */
export function matrixStruct(
  { packing, groupRows, groupCols }: PackedMatrix,
  { shape }: TensorInfo,
  type: number,
): Uint8Array<ArrayBuffer> {
  const struct = new DataView(new ArrayBuffer(PACKED_MATRIX_BYTES));
  struct.setUint32(0, PACKINGS[packing], true);
  struct.setUint32(4, type, true);
  const rows = shape.slice(0, -1).reduce((product, size) => product * size, 1);
  [rows, shape.at(-1) ?? 1, groupRows, groupCols].forEach((size, i) => {
    struct.setBigUint64(8 + 8 * i, BigInt(size), true);
  });
  return new Uint8Array(struct.buffer);
}

/**
 * Encodes the `forge_tensor_place`s of its tensors. @param fileOf returns the handle of a mapped
 * file
 */
export function placeStructs(
  { codes, scales, zeros, groups, blockScales }: PackedMatrix,
  fileOf: (path: string) => number,
): Uint8Array<ArrayBuffer> {
  const tensors = [codes, scales, zeros, groups, blockScales];
  const structs = new DataView(new ArrayBuffer(tensors.length * TENSOR_PLACE_BYTES));
  tensors.forEach((tensor, i) => {
    if (tensor === undefined) return;
    const at = i * TENSOR_PLACE_BYTES;
    structs.setUint32(at, fileOf(tensor.file), true);
    structs.setUint32(at + 4, TENSOR_TYPES[tensor.type].ggmlId ?? 0, true);
    structs.setBigUint64(at + 8, BigInt(tensor.offset), true);
  });
  return new Uint8Array(structs.buffer);
}

import type { InputFile } from "../file.ts";
import type { GgufReader } from "./reader.ts";
import { REMOVED_TENSOR_TYPES, TENSOR_TYPE_BY_ID } from "./types.ts";
import { quote } from "../quote.ts";
import { tensorBytes, type TensorInfo, type TensorType } from "../tensor_info.ts";

const MAX_NAME_BYTES = 65535;
const MAX_DIMENSIONS = 4;

/** Minimum size of a tensor's entry: name length, rank, one dimension, type, offset. */
export const MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8;

/** A tensor's entry in the header, with its offset relative to the data. */
interface TensorEntry {
  readonly name: string;
  readonly type: TensorType;
  readonly shape: readonly number[];
  readonly dataOffset: number | bigint;
}

/**
 * Reads the entries of `count` tensors.
 *
 * @throws {ForgeError} `bad_model` if they are damaged or truncated, or a name is duplicated
 */
export function readTensorEntries(reader: GgufReader, count: number): TensorEntry[] {
  const entries: TensorEntry[] = [];
  const names = new Set<string>();
  for (let index = 0; index < count; index++) {
    reader.context = `tensor ${index} of ${count}`;
    const name = reader.string(MAX_NAME_BYTES);
    reader.context = `tensor ${quote(name)}`;
    if (names.has(name)) throw reader.error("appears twice");
    names.add(name);
    const shape = readShape(reader);
    const type = readTensorType(reader);
    entries.push({ name, type, shape, dataOffset: reader.u64() });
  }
  return entries;
}

function readShape(reader: GgufReader): number[] {
  const rank = reader.u32();
  if (rank < 1 || rank > MAX_DIMENSIONS) {
    throw reader.error(`has ${rank} dimensions; 1 to ${MAX_DIMENSIONS} are possible`);
  }
  const shape: number[] = [];
  for (let axis = 0; axis < rank; axis++) {
    const size = reader.u64();
    if (typeof size === "bigint" || size === 0) {
      throw reader.error(`has a dimension of ${size}; 1 to 2^53 - 1 are possible`);
    }
    shape.push(size);
  }
  return shape.reverse();
}

function readTensorType(reader: GgufReader): TensorType {
  const id = reader.u32();
  const type = TENSOR_TYPE_BY_ID.get(id);
  if (type !== undefined) return type;
  const removed = REMOVED_TENSOR_TYPES.get(id);
  if (removed !== undefined) {
    throw reader.error(`is stored as ${removed}, which ggml has removed: quantize the model again`);
  }
  const highest = Math.max(...TENSOR_TYPE_BY_ID.keys());
  throw reader.error(`has type number ${id}; known are 0 to ${highest}`);
}

/**
 * Locates a tensor in the file.
 *
 * @param dataStart byte offset of the tensor data
 * @throws {ForgeError} `bad_model` if the tensor is impossible or not inside the file
 */
export function placeTensor(
  reader: GgufReader,
  entry: TensorEntry,
  file: InputFile,
  dataStart: number,
  alignment: number,
): TensorInfo {
  const { name, type, shape, dataOffset } = entry;
  const bytes = tensorBytes(type, shape);
  if (typeof bytes === "string") {
    throw reader.error(`cannot have the shape [${shape.join(", ")}]: ${bytes}`);
  }
  const room = file.size - dataStart - bytes;
  if (dataOffset > room) {
    const needs = `${bytes} bytes at offset ${dataOffset} of the data`;
    const has = Math.max(0, file.size - dataStart);
    throw reader.error(
      `needs ${needs}, but the file has only ${has} bytes of data: it was cut short`,
    );
  }
  const offset = Number(dataOffset);
  if (offset % alignment !== 0) {
    throw reader.error(`starts at offset ${offset}; it must be a multiple of ${alignment}`);
  }
  return { name, type, shape, file: file.path, offset: dataStart + offset, bytes };
}

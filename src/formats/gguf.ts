import { ForgeError } from "../errors.ts";
import { InputFile } from "./file.ts";
import { GgufReader } from "./gguf_reader.ts";
import {
  type GgufNumberType,
  type GgufValue,
  REMOVED_TENSOR_TYPES,
  TENSOR_TYPE_BY_ID,
  VALUE_TYPES,
} from "./gguf_types.ts";
import { quote } from "./quote.ts";
import { tensorBytes, type TensorInfo, type TensorType } from "./tensor_info.ts";

export type { GgufValue } from "./gguf_types.ts";

/** What a GGUF file says before its tensor data. */
export interface GgufHeader {
  readonly version: number;
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  /** Byte offset at which the tensor data starts. */
  readonly dataOffset: number;
  /** Size of the whole file. */
  readonly fileBytes: number;
}

/** `GGUF` as a little-endian number. */
const MAGIC = 0x46554747;
const DEFAULT_ALIGNMENT = 32;
const MAX_ALIGNMENT = 2 ** 20;
const MAX_NAME_BYTES = 65535;
const MAX_ARRAY_DEPTH = 4;
const MAX_DIMENSIONS = 4;

/** The fewest bytes of a key with its value: length, no text, value type, one byte. */
const MIN_ENTRY_BYTES = 8 + 4 + 1;
/** The fewest bytes of a tensor's entry: name length, rank, one dimension, type, offset. */
const MIN_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8;

/**
 * Reads the header of a GGUF file, version 2 or 3, little-endian. Tensor data is not read. The
 * format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 *
 * @throws {ForgeError} `not_found` when the file cannot be read; `bad_model` when it is no GGUF file,
 * is damaged or cut off, or describes tensors that it cannot hold.
 */
export function readGguf(path: string): GgufHeader {
  using file = InputFile.open(path);
  const reader = new GgufReader(file);
  const version = readVersion(reader);
  reader.context = "the header";
  const tensorCount = reader.count("tensors", MIN_TENSOR_BYTES);
  const keyCount = reader.count("keys", MIN_ENTRY_BYTES);
  const metadata = readMetadata(reader, keyCount);
  const alignment = readAlignment(reader, metadata);
  const entries = readTensorEntries(reader, tensorCount);
  const dataOffset = Math.ceil(reader.position / alignment) * alignment;
  const tensors = new Map<string, TensorInfo>();
  for (const entry of entries) {
    reader.context = `tensor ${quote(entry.name)}`;
    tensors.set(entry.name, placeTensor(reader, entry, file, dataOffset, alignment));
  }
  return { version, metadata, tensors, dataOffset, fileBytes: file.size };
}

/** Whether the file at `path` starts as a GGUF file does. */
export function isGgufFile(path: string): boolean {
  using file = InputFile.open(path);
  if (file.size < 4) return false;
  const start = new Uint8Array(4);
  file.readAt(0, start);
  return new DataView(start.buffer).getUint32(0, true) === MAGIC;
}

function readVersion(reader: GgufReader): number {
  reader.context = "the file";
  const magic = reader.u32();
  if (magic !== MAGIC) {
    const found = magic.toString(16).padStart(8, "0");
    throw reader.error(`is no GGUF file: it starts with 0x${found}, not "GGUF" (0x46554747)`);
  }
  const version = reader.u32();
  if (version === 2 || version === 3) return version;
  if (version === 1) {
    throw reader.error("is GGUF version 1, of 2023; versions 2 and 3 are read: convert it again");
  }
  if (version === 0x02000000 || version === 0x03000000) {
    throw reader.error("is a big-endian GGUF file; only little-endian files are read");
  }
  throw reader.error(`is GGUF version ${version}; versions 2 and 3 are read`);
}

function readMetadata(reader: GgufReader, count: number): Map<string, GgufValue> {
  const metadata = new Map<string, GgufValue>();
  for (let index = 0; index < count; index++) {
    reader.context = `key ${index} of ${count}`;
    const key = reader.string(MAX_NAME_BYTES);
    reader.context = `key ${quote(key)}`;
    if (metadata.has(key)) throw reader.error("appears twice");
    metadata.set(key, readValue(reader));
  }
  return metadata;
}

function readValueType(reader: GgufReader): (typeof VALUE_TYPES)[number] {
  const id = reader.u32();
  const type = VALUE_TYPES[id];
  if (type === undefined) {
    throw reader.error(`has value type ${id}; known are 0 to ${VALUE_TYPES.length - 1}`);
  }
  return type;
}

function readValue(reader: GgufReader): GgufValue {
  const { name } = readValueType(reader);
  switch (name) {
    case "bool":
      return reader.bool();
    case "string":
      return reader.string();
    case "array":
      return readArray(reader, 1);
    default:
      return reader.number(name);
  }
}

function readArray(reader: GgufReader, depth: number): GgufValue {
  if (depth > MAX_ARRAY_DEPTH) {
    throw reader.error(`nests arrays more than ${MAX_ARRAY_DEPTH} deep`);
  }
  const { name, minBytes } = readValueType(reader);
  const count = reader.count(`values of type ${name}`, minBytes);
  switch (name) {
    case "bool":
      return Array.from({ length: count }, () => reader.bool());
    case "string":
      return reader.strings(count);
    case "array":
      return Array.from({ length: count }, () => readArray(reader, depth + 1));
    default:
      return numberArray(name, reader.bytes(count * minBytes));
  }
}

function numberArray(type: GgufNumberType, bytes: ArrayBuffer): GgufValue {
  switch (type) {
    case "u8":
      return new Uint8Array(bytes);
    case "i8":
      return new Int8Array(bytes);
    case "u16":
      return new Uint16Array(bytes);
    case "i16":
      return new Int16Array(bytes);
    case "u32":
      return new Uint32Array(bytes);
    case "i32":
      return new Int32Array(bytes);
    case "f32":
      return new Float32Array(bytes);
    case "u64":
      return new BigUint64Array(bytes);
    case "i64":
      return new BigInt64Array(bytes);
    case "f64":
      return new Float64Array(bytes);
  }
}

function readAlignment(reader: GgufReader, metadata: Map<string, GgufValue>): number {
  const alignment = metadata.get("general.alignment") ?? DEFAULT_ALIGNMENT;
  reader.context = 'key "general.alignment"';
  const valid = typeof alignment === "number" && Number.isInteger(Math.log2(alignment)) &&
    alignment >= 1 && alignment <= MAX_ALIGNMENT;
  if (!valid) {
    const shown = typeof alignment === "object" ? "an array" : String(alignment);
    throw reader.error(`is ${shown}; it must be a power of two from 1 to ${MAX_ALIGNMENT}`);
  }
  return alignment;
}

/** A tensor's entry in the header, its offset still relative to the data. */
interface TensorEntry {
  readonly name: string;
  readonly type: TensorType;
  readonly shape: readonly number[];
  readonly dataOffset: number | bigint;
}

function readTensorEntries(reader: GgufReader, count: number): TensorEntry[] {
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

function placeTensor(
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
    throw reader.error(`needs ${needs}, but the file has only ${has} bytes of data`);
  }
  const offset = Number(dataOffset);
  if (offset % alignment !== 0) {
    throw reader.error(`starts at offset ${offset}; it must be a multiple of ${alignment}`);
  }
  return { name, type, shape, file: file.path, offset: dataStart + offset, bytes };
}

/**
 * Reads a text value of GGUF metadata.
 *
 * @param path names the file in an error
 * @throws {ForgeError} `bad_model` when the key is there but holds no text.
 */
export function metadataText(
  metadata: ReadonlyMap<string, GgufValue>,
  key: string,
  path: string,
): string | undefined {
  const value = metadata.get(key);
  if (value === undefined || typeof value === "string") return value;
  const kind = typeof value === "object" ? "an array" : `a ${typeof value}`;
  throw new ForgeError("bad_model", `${quote(path)}: key ${quote(key)} is ${kind}, not text`);
}

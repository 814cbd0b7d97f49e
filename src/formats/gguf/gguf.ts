import { InputFile } from "../file.ts";
import { MIN_ENTRY_BYTES, readMetadata } from "./metadata.ts";
import { GgufReader } from "./reader.ts";
import { MIN_TENSOR_BYTES, placeTensor, readTensorEntries } from "./tensors.ts";
import type { GgufValue } from "./types.ts";
import { LIMITS } from "../limits.ts";
import { quote } from "../quote.ts";
import type { TensorInfo } from "../tensor_info.ts";

export type { GgufValue } from "./types.ts";

/** The header of a GGUF file. */
export interface GgufHeader {
  readonly version: number;
  readonly metadata: ReadonlyMap<string, GgufValue>;
  /** Range of bytes of each value with its type. */
  readonly valueRanges: ReadonlyMap<string, readonly [start: number, end: number]>;
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  /** Byte offset of the tensor data. */
  readonly dataOffset: number;
  /** Size of the complete file. */
  readonly fileBytes: number;
}

/** `GGUF` as a little-endian number. */
const MAGIC = 0x46554747;
const DEFAULT_ALIGNMENT = 32;
const MAX_ALIGNMENT = 2 ** 20;

/**
 * Reads the header of a GGUF file, version 2 or 3, little-endian. Does not read tensor data.
 * Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 *
 * @throws {ForgeError} `not_found` if the file cannot be read; `bad_model` if it is not a GGUF
 * file, is damaged or truncated, or describes tensors outside of the file
 */
export function readGguf(path: string): GgufHeader {
  using file = InputFile.open(path);
  const reader = new GgufReader(file);
  const version = readVersion(reader);
  reader.context = "the header";
  const tensorCount = reader.count("tensors", MIN_TENSOR_BYTES, LIMITS.ggufTensors);
  const keyCount = reader.count("keys", MIN_ENTRY_BYTES, LIMITS.ggufKeys);
  const { values: metadata, ranges: valueRanges } = readMetadata(reader, keyCount);
  const alignment = readAlignment(reader, metadata);
  const entries = readTensorEntries(reader, tensorCount);
  const dataOffset = Math.ceil(reader.position / alignment) * alignment;
  const tensors = new Map<string, TensorInfo>();
  for (const entry of entries) {
    reader.context = `tensor ${quote(entry.name)}`;
    tensors.set(entry.name, placeTensor(reader, entry, file, dataOffset, alignment));
  }
  return { version, metadata, valueRanges, tensors, dataOffset, fileBytes: file.size };
}

/** True if the file at `path` starts as a GGUF file. */
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
    const found = [0, 8, 16, 24].map((shift) => String.fromCharCode((magic >>> shift) & 0xff));
    throw reader.error(`is not a GGUF file: it starts with ${quote(found.join(""))}, not "GGUF"`);
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

import { join } from "node:path";
import { ForgeError } from "../errors.ts";
import { InputFile } from "./file.ts";
import {
  asJsonObject,
  decodeUtf8,
  findDuplicateKey,
  isJsonObject,
  type JsonObject,
  type JsonValue,
  kindOf,
  parseJsonBytes,
  readJsonObject,
} from "./json.ts";
import { LIMITS } from "./limits.ts";
import { quote } from "./quote.ts";
import { tensorBytes, type TensorInfo, type TensorType } from "./tensor_info.ts";

/** The header of a safetensors file. */
export interface SafetensorsHeader {
  /** Free text about the file, for example `{ format: "pt" }`. */
  readonly metadata: ReadonlyMap<string, string>;
  readonly tensors: ReadonlyMap<string, TensorInfo>;
  /** Size of the complete file. */
  readonly fileBytes: number;
}

/** The tensors of a checkpoint that is split into several safetensors files. */
interface SafetensorsShards {
  /** Paths of the files, sorted by name. */
  readonly files: readonly string[];
  readonly tensors: ReadonlyMap<string, TensorInfo>;
}

const MAX_DIMENSIONS = 8;

/** The dtypes of the format. Tensor types have the same names. */
const DTYPES: readonly TensorType[] = [
  "F32",
  "F16",
  "BF16",
  "F64",
  "I8",
  "I16",
  "I32",
  "I64",
  "U8",
  "U16",
  "U32",
  "U64",
  "BOOL",
  "C64",
  "F8_E4M3",
  "F8_E5M2",
  "F8_E8M0",
  "F6_E2M3",
  "F6_E3M2",
  "F4",
];

/**
 * Reads the header of a safetensors file. Does not read tensor data. Format:
 * https://github.com/huggingface/safetensors#format
 *
 * @throws {ForgeError} `not_found` if the file cannot be read; `bad_model` if it is damaged or
 * truncated, or describes tensors outside of the file
 */
export function readSafetensors(path: string): SafetensorsHeader {
  using file = InputFile.open(path);
  const headerBytes = readHeaderLength(file);
  const bytes = new Uint8Array(headerBytes);
  file.readAt(8, bytes);
  const source = `the header of ${quote(path)}`;
  const header = asJsonObject(parseJsonBytes(bytes, source), source);
  const twice = findDuplicateKey(decodeUtf8(bytes, source));
  if (twice !== undefined) {
    throw new ForgeError("bad_model", `${source} names ${quote(twice)} twice`);
  }
  const metadata = readMetadata(header, source);
  const tensors = new Map<string, TensorInfo>();
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    tensors.set(name, readTensor(name, entry, file, 8 + headerBytes));
  }
  return { metadata, tensors, fileBytes: file.size };
}

/**
 * Reads `model.safetensors.index.json` and the headers of the files it names. A tensor comes from
 * the file that the index gives for it.
 *
 * @param folder the folder of the index and its files
 * @param indexName the name of the index in that folder
 * @throws {ForgeError} `bad_model` if the index is damaged, leads out of the folder or names the
 * wrong file for a tensor; `not_found` if a file is missing
 */
export function readSafetensorsIndex(folder: string, indexName: string): SafetensorsShards {
  const indexPath = join(folder, indexName);
  const { weight_map: weightMap } = readJsonObject(indexPath);
  if (!isJsonObject(weightMap)) {
    const found = `"weight_map" is ${kindOf(weightMap)}`;
    throw new ForgeError("bad_model", `${quote(indexPath)}: ${found}, not an object`);
  }
  const shardNames = new Set<string>();
  for (const [tensor, shard] of Object.entries(weightMap)) {
    shardNames.add(checkShardName(tensor, shard, indexPath));
  }
  const shards = new Map<string, SafetensorsHeader>();
  for (const name of [...shardNames].sort()) {
    shards.set(name, readShard(join(folder, name), indexPath));
  }
  const tensors = new Map<string, TensorInfo>();
  for (const [name, shard] of Object.entries(weightMap)) {
    const info = shards.get(String(shard))?.tensors.get(name);
    if (info === undefined) {
      const claim = `${quote(indexPath)} says that tensor ${quote(name)} is in`;
      throw new ForgeError("bad_model", `${claim} ${quote(String(shard))}, but it is not`);
    }
    tensors.set(name, info);
  }
  return { files: Array.from(shards.keys(), (name) => join(folder, name)), tensors };
}

function readHeaderLength(file: InputFile): number {
  const room = file.size - 8;
  const most = Math.min(room, LIMITS.safetensorsHeaderBytes);
  if (room < 2) {
    const reason = `it has ${file.size} bytes, and the shortest has 10`;
    throw new ForgeError("bad_model", `${quote(file.path)} is not a safetensors file: ${reason}`);
  }
  const prefix = new Uint8Array(8);
  file.readAt(0, prefix);
  const length = new DataView(prefix.buffer).getBigUint64(0, true);
  if (length < 2n || length > most) {
    const claim = `its header claims ${length} bytes`;
    throw new ForgeError(
      "bad_model",
      `${quote(file.path)}: ${claim}; 2 to ${most} are possible in a file of ${file.size} bytes`,
    );
  }
  return Number(length);
}

function readMetadata(header: JsonObject, source: string): Map<string, string> {
  const { __metadata__: entries = {} } = header;
  if (!isJsonObject(entries)) {
    const found = `"__metadata__" that is ${kindOf(entries)}`;
    throw new ForgeError("bad_model", `${source} has a ${found}, not an object`);
  }
  const metadata = new Map<string, string>();
  for (const [key, value] of Object.entries(entries)) {
    if (typeof value !== "string") {
      const found = `metadata ${quote(key)} that is ${kindOf(value)}`;
      throw new ForgeError("bad_model", `${source} has ${found}, not a string`);
    }
    metadata.set(key, value);
  }
  return metadata;
}

function readTensor(
  name: string,
  entry: JsonValue | undefined,
  file: InputFile,
  dataStart: number,
): TensorInfo {
  const fail = (what: string): never => {
    throw new ForgeError("bad_model", `${quote(file.path)}: tensor ${quote(name)} ${what}`);
  };
  if (!isJsonObject(entry)) return fail(`is described by ${kindOf(entry)}, not an object`);
  const { dtype, shape, data_offsets: offsets } = entry;
  const type = DTYPES.find((known) => known === dtype);
  if (type === undefined) {
    const found = typeof dtype === "string" ? `dtype ${quote(dtype)}` : "no dtype";
    return fail(`has ${found}; valid is ${DTYPES.join(", ")}`);
  }
  if (!isCounts(shape) || shape.length > MAX_DIMENSIONS) {
    return fail(`has the shape ${show(shape)}; valid is a list of up to ${MAX_DIMENSIONS} sizes`);
  }
  if (!isCounts(offsets) || offsets.length !== 2) {
    return fail(`has the data_offsets ${show(offsets)}; valid is a list of begin and end`);
  }
  const [begin = 0, end = 0] = offsets;
  const room = file.size - dataStart;
  if (begin > end || end > room) {
    return fail(`has data_offsets [${begin}, ${end}]; the file has ${room} bytes of data`);
  }
  const bytes = tensorBytes(type, shape);
  if (typeof bytes === "string") return fail(`cannot have the shape ${show(shape)}: ${bytes}`);
  if (end - begin !== bytes) {
    return fail(`takes ${end - begin} bytes; ${type} of shape ${show(shape)} takes ${bytes}`);
  }
  return { name, type, shape, file: file.path, offset: dataStart + begin, bytes };
}

function isCounts(value: JsonValue | undefined): value is number[] {
  return Array.isArray(value) &&
    value.every((item) => typeof item === "number" && Number.isSafeInteger(item) && item >= 0);
}

function show(value: JsonValue | undefined): string {
  const text = JSON.stringify(value) ?? "missing";
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

/** Returns the name of a shard; rejects paths that lead out of the folder of the index. */
function checkShardName(tensor: string, shard: JsonValue | undefined, indexPath: string): string {
  const which = `${quote(indexPath)}: the file of tensor ${quote(tensor)}`;
  if (typeof shard !== "string") {
    throw new ForgeError("bad_model", `${which} is ${kindOf(shard)}, not a file name`);
  }
  const parts = shard.split("/");
  const inside = parts.every((part) => part !== "" && part !== "." && part !== "..");
  // A backslash or a colon is a separator or a drive on Windows; no real shard has one.
  if (!inside || /[\\:\0]/.test(shard)) {
    const valid = "it must be a file name inside the folder of the index";
    throw new ForgeError("bad_model", `${which} is ${quote(shard)}; ${valid}`);
  }
  return shard;
}

function readShard(path: string, indexPath: string): SafetensorsHeader {
  try {
    return readSafetensors(path);
  } catch (error) {
    if (error instanceof ForgeError && error.code === "not_found") {
      throw new ForgeError("not_found", `${error.message}; ${quote(indexPath)} needs it`);
    }
    throw error;
  }
}

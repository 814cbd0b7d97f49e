import { ForgeError } from "../../errors.ts";
import type { GgufReader } from "./reader.ts";
import { type GgufNumberType, type GgufValue, VALUE_TYPES } from "./types.ts";
import { quote } from "../quote.ts";

const MAX_KEY_BYTES = 65535;
const MAX_ARRAY_DEPTH = 4;

/** Minimum size of an entry: key length, empty key, value type, one byte. */
export const MIN_ENTRY_BYTES = 8 + 4 + 1;

/** Keys with their values, and with the bytes of each value and its type. */
interface Metadata {
  readonly values: Map<string, GgufValue>;
  readonly ranges: ReadonlyMap<string, readonly [start: number, end: number]>;
}

/**
 * Reads `count` keys with their values.
 *
 * @throws {ForgeError} `bad_model` if they are damaged or truncated, or a key is duplicated
 */
export function readMetadata(reader: GgufReader, count: number): Metadata {
  const values = new Map<string, GgufValue>();
  const ranges = new Map<string, readonly [number, number]>();
  for (let index = 0; index < count; index++) {
    reader.context = `key ${index} of ${count}`;
    const key = reader.string(MAX_KEY_BYTES);
    reader.context = `key ${quote(key)}`;
    if (values.has(key)) throw reader.error("appears twice");
    const start = reader.position;
    values.set(key, readValue(reader));
    ranges.set(key, [start, reader.position]);
  }
  return { values, ranges };
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
  switch (name) {
    case "bool":
      return Array.from({ length: reader.items(name, minBytes) }, () => reader.bool());
    case "string":
      return reader.strings(reader.items(name, minBytes));
    case "array":
      return Array.from(
        { length: reader.items(name, minBytes) },
        () => readArray(reader, depth + 1),
      );
    default:
      return numberArray(
        name,
        reader.bytes(reader.count(`values of type ${name}`, minBytes) * minBytes),
      );
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

/**
 * Returns a text value of GGUF metadata, if present.
 *
 * @param path names the file in an error
 * @throws {ForgeError} `bad_model` if the value is not text
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

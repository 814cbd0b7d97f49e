/** Writes GGUF files, such as those of synthetic models. */
import { type GgufNumberType, VALUE_TYPES } from "./types.ts";
import { TENSOR_TYPES } from "../tensor_info.ts";
import { ByteWriter } from "./byte_writer.ts";
import { dataParts, storedBytes, type TensorData, writeParts } from "../tensor_data.ts";

/** A metadata value with its type: `["u32", 4]`, `["array", "string", ["a", "b"]]`. */
export type GgufField =
  | readonly [type: GgufNumberType, value: number | bigint]
  | readonly [type: "bool", value: boolean]
  | readonly [type: "string", value: string]
  | readonly [type: "encoded", typeAndValue: Uint8Array]
  | GgufArrayField;

/** A metadata array: the type of its values and the values, which may be arrays. */
type GgufArrayField =
  | readonly [type: "array", of: GgufNumberType, values: ArrayLike<number | bigint>]
  | readonly [type: "array", of: "bool", values: ArrayLike<boolean>]
  | readonly [type: "array", of: "string", values: ArrayLike<string>]
  | readonly [type: "array", of: "array", values: ArrayLike<GgufArrayField>];

/** Contents of a GGUF file. */
export interface GgufContents {
  readonly metadata: Readonly<Record<string, GgufField>>;
  readonly tensors?: readonly TensorData[];
  /** Written as `general.alignment` if given. @default 32 */
  readonly alignment?: number;
  /** @default 3 */
  readonly version?: number;
}

/** Writes a GGUF file tensor by tensor, so that it may be larger than memory. */
export function writeGguf(path: string, contents: GgufContents): void {
  writeParts(path, ggufParts(contents));
}

/**
 * Yields the bytes of a GGUF file in parts.
 *
 * @throws {Error} for a tensor that GGUF cannot represent; contents come from the caller, not a
 * user
 */
export function* ggufParts(contents: GgufContents): Generator<Uint8Array> {
  yield ggufHeader(contents);
  for (const tensor of contents.tensors ?? []) {
    const bytes = storedBytes(tensor);
    yield* dataParts(tensor);
    yield new Uint8Array(padded(bytes, contents.alignment) - bytes);
  }
}

/** Contents of a header, whose tensors need no data. */
interface HeaderContents extends Omit<GgufContents, "tensors"> {
  readonly tensors?: readonly Omit<TensorData, "data">[];
}

/** Returns everything before the tensor data. Each tensor takes its bytes, {@linkcode padded}. */
export function ggufHeader(contents: HeaderContents): Uint8Array {
  const { metadata, tensors = [], alignment, version = 3 } = contents;
  const fields = Object.entries(metadata);
  if (alignment !== undefined) fields.push(["general.alignment", ["u32", alignment]]);
  const header = new ByteWriter();
  header.bytes(new TextEncoder().encode("GGUF"));
  header.u32(version).u64(tensors.length).u64(fields.length);
  for (const [key, field] of fields) {
    writeString(header, key);
    writeField(header, field);
  }
  let offset = 0;
  for (const tensor of tensors) {
    writeString(header, tensor.name);
    header.u32(tensor.shape.length);
    for (const size of tensor.shape.toReversed()) header.u64(size);
    header.u32(ggmlId(tensor)).u64(offset);
    offset += padded(storedBytes(tensor), alignment);
  }
  if (tensors.length > 0) header.align(alignment ?? DEFAULT_ALIGNMENT);
  return header.toBytes();
}

/** Alignment of tensors in files that do not state one. */
const DEFAULT_ALIGNMENT = 32;

/** Returns the bytes of a tensor's data with the padding after it. */
export function padded(bytes: number, alignment = DEFAULT_ALIGNMENT): number {
  return Math.ceil(bytes / alignment) * alignment;
}

function ggmlId(tensor: Omit<TensorData, "data">): number {
  const { ggmlId } = TENSOR_TYPES[tensor.type];
  if (ggmlId === undefined) throw new Error(`${tensor.name}: GGUF has no type ${tensor.type}`);
  return ggmlId;
}

function writeString(out: ByteWriter, text: string): void {
  const bytes = new TextEncoder().encode(text);
  out.u64(bytes.length).bytes(bytes);
}

function writeType(out: ByteWriter, type: string): void {
  out.u32(VALUE_TYPES.findIndex(({ name }) => name === type));
}

function writeField(out: ByteWriter, field: GgufField): void {
  if (field[0] === "encoded") {
    out.bytes(field[1]);
    return;
  }
  writeType(out, field[0]);
  switch (field[0]) {
    case "array":
      return writeArray(out, field);
    case "string":
      return writeString(out, field[1]);
    case "bool":
      out.u8(field[1] ? 1 : 0);
      return;
    default:
      return writeNumber(out, field[0], field[1]);
  }
}

function writeArray(out: ByteWriter, field: GgufArrayField): void {
  const [, of, values] = field;
  writeType(out, of);
  out.u64(values.length);
  switch (field[1]) {
    case "array":
      return each(field[2], (value) => writeArray(out, value));
    case "string":
      return each(field[2], (value) => writeString(out, value));
    case "bool":
      return each(field[2], (value) => out.u8(value ? 1 : 0));
    default: {
      const [, type, numbers] = field;
      return each(numbers, (value) => writeNumber(out, type, value));
    }
  }
}

function each<T>(values: ArrayLike<T>, write: (value: T) => void): void {
  for (let index = 0; index < values.length; index++) write(values[index]!);
}

function writeNumber(out: ByteWriter, type: GgufNumberType, value: number | bigint): void {
  if (type === "u64" || type === "i64") out[type](value);
  else out[type](Number(value));
}

import { TENSOR_TYPES, type TensorType, type TensorTypeInfo } from "../tensor_info.ts";

/**
 * A metadata value. 64-bit integers are numbers if they are safe integers, otherwise bigints.
 * Arrays of fixed-width numbers are typed arrays.
 */
export type GgufValue =
  | number
  | bigint
  | boolean
  | string
  | string[]
  | boolean[]
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | Float32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array
  | GgufValue[];

/** Value types of GGUF metadata by their number in the file, with the minimum size of a value. */
export const VALUE_TYPES = [
  { name: "u8", minBytes: 1 },
  { name: "i8", minBytes: 1 },
  { name: "u16", minBytes: 2 },
  { name: "i16", minBytes: 2 },
  { name: "u32", minBytes: 4 },
  { name: "i32", minBytes: 4 },
  { name: "f32", minBytes: 4 },
  { name: "bool", minBytes: 1 },
  { name: "string", minBytes: 8 },
  { name: "array", minBytes: 12 },
  { name: "u64", minBytes: 8 },
  { name: "i64", minBytes: 8 },
  { name: "f64", minBytes: 8 },
] as const;

/** Name of a metadata value type. */
type GgufValueType = (typeof VALUE_TYPES)[number]["name"];

/** Value types whose arrays become typed arrays. */
export type GgufNumberType = Exclude<GgufValueType, "bool" | "string" | "array">;

/** Tensor types that ggml has removed, by their numbers. */
export const REMOVED_TENSOR_TYPES: ReadonlyMap<number, string> = new Map([
  [4, "Q4_2"],
  [5, "Q4_3"],
  [31, "Q4_0_4_4"],
  [32, "Q4_0_4_8"],
  [33, "Q4_0_8_8"],
  [36, "IQ4_NL_4_4"],
  [37, "IQ4_NL_4_8"],
  [38, "IQ4_NL_8_8"],
]);

/** Tensor types by their numbers in GGUF files. */
export const TENSOR_TYPE_BY_ID: ReadonlyMap<number, TensorType> = new Map(
  (Object.entries(TENSOR_TYPES) as [TensorType, TensorTypeInfo][]).flatMap(([name, { ggmlId }]) =>
    ggmlId === undefined ? [] : [[ggmlId, name]]
  ),
);

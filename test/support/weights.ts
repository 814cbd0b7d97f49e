/** Random but realistic weights of every type that forge computes with. */
import {
  TENSOR_TYPES,
  tensorBytes,
  type TensorType,
  type TensorTypeInfo,
} from "../../src/formats/tensor_info.ts";
import type { Matrix } from "./matrix.ts";
import type { Random } from "./random.ts";

/** A weight in its file layout. */
export interface TestWeight {
  readonly type: TensorType;
  readonly rows: number;
  readonly cols: number;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** The fields that must not be random, so that the weights of a block are about 1. */
interface BlockScales {
  /** Byte offsets of f16 scales. */
  readonly scales: readonly number[];
  /** The largest product of fields that a scale multiplies. */
  readonly largest: number;
}

/** Block formats with separate f16 scales. */
const blockScales: Partial<Record<TensorType, BlockScales>> = {
  Q4_0: { scales: [0], largest: 8 },
  Q4_1: { scales: [0, 2], largest: 15 },
  Q5_0: { scales: [0], largest: 16 },
  Q5_1: { scales: [0, 2], largest: 31 },
  Q8_0: { scales: [0], largest: 128 },
  Q2_K: { scales: [80, 82], largest: 15 * 3 },
  Q3_K: { scales: [108], largest: 32 * 4 },
  Q4_K: { scales: [0, 2], largest: 63 * 15 },
  Q5_K: { scales: [0, 2], largest: 63 * 31 },
  Q6_K: { scales: [208], largest: 128 * 32 },
  IQ2_XXS: { scales: [0], largest: 15.5 / 4 * 43 },
  IQ2_XS: { scales: [0], largest: 15.5 / 4 * 43 },
  IQ2_S: { scales: [0], largest: 15.5 / 4 * 43 },
  IQ3_XXS: { scales: [0], largest: 15.5 / 2 * 62 },
  IQ3_S: { scales: [0], largest: 31 * 15 },
  IQ1_S: { scales: [0], largest: 15 },
  IQ4_NL: { scales: [0], largest: 127 },
  IQ4_XS: { scales: [0], largest: 32 * 127 },
  TQ1_0: { scales: [52], largest: 1 },
  TQ2_0: { scales: [64], largest: 1 },
};

/** Returns the ABI's number of a weight type: GGUF's, or one of forge's own. */
export function typeNumber(type: TensorType): number {
  const { ggmlId, nativeId }: TensorTypeInfo = TENSOR_TYPES[type];
  return (ggmlId ?? nativeId)!;
}

/** Types that forge computes with. */
export const computableTypes: readonly TensorType[] = (Object.keys(TENSOR_TYPES) as TensorType[])
  .filter((type) => TENSOR_TYPES[type].supported);

/** The bits of a positive f16 below `unit`, and at least a quarter of it. */
function randomScaleBits(random: Random, unit: number): number {
  const exponent = Math.floor(Math.log2(unit)) - 1;
  return (exponent + 15) << 10 | random.int(0, 0x3ff);
}

/** Sets the fields of a block that depend on its type. */
function fixBlock(random: Random, type: TensorType, block: DataView): void {
  const known = blockScales[type];
  if (known !== undefined) {
    for (const at of known.scales) {
      block.setUint16(at, randomScaleBits(random, 1 / known.largest), true);
    }
  } else if (type === "F32") {
    block.setFloat32(0, random.normal(), true);
  } else if (type === "FP8") {
    block.setFloat32(0, (0.25 + 0.75 * random.uniform()) / 480, true);
  } else if (type === "FP4") {
    block.setFloat32(0, (0.25 + 0.75 * random.uniform()) / (480 * 6), true);
  } else if (type === "F16") {
    block.setUint16(0, random.int(0, 1) << 15 | randomScaleBits(random, 1), true);
  } else if (type === "BF16") {
    block.setUint16(
      0,
      random.int(0, 1) << 15 | random.int(123, 127) << 7 | random.int(0, 127),
      true,
    );
  } else if (type === "MXFP4") {
    block.setUint8(0, random.int(121, 125));
  } else if (type === "IQ1_M") {
    // The f16 scale is in the upper nibbles of the four 16-bit words at the end.
    const bits = randomScaleBits(random, 1 / 15);
    for (let word = 0; word < 4; word++) {
      const at = 48 + 2 * word;
      const nibble = bits >> (4 * word) & 0xf;
      block.setUint16(at, block.getUint16(at, true) & 0x0fff | nibble << 12, true);
    }
  } else {
    throw new Error(`no random blocks of ${type}`);
  }
}

/** Random blocks of a type: fields take all their values, and weights are about 1. */
export function randomWeight(
  random: Random,
  type: TensorType,
  rows: number,
  cols: number,
): TestWeight {
  const size = tensorBytes(type, [rows, cols]);
  if (typeof size === "string") throw new Error(`${type} [${rows}, ${cols}]: ${size}`);
  const bytes = random.bytes(size);
  const { blockBytes } = TENSOR_TYPES[type];
  for (let at = 0; at < size; at += blockBytes) {
    fixBlock(random, type, new DataView(bytes.buffer, at, blockBytes));
  }
  return { type, rows, cols, bytes };
}

/** A matrix as an F32 weight. */
export function f32Weight({ rows, cols, data }: Matrix): TestWeight {
  return { type: "F32", rows, cols, bytes: new Uint8Array(data.slice().buffer) };
}

export function f16Weight({ rows, cols, data }: Matrix): TestWeight {
  return { type: "F16", rows, cols, bytes: new Uint8Array(new Float16Array(data).buffer) };
}

/** One row of float32 numbers, such as a norm's weight or a bias. */
export function f32Vector(values: ArrayLike<number>): TestWeight {
  return f32Weight({ rows: 1, cols: values.length, data: Float32Array.from(values) });
}

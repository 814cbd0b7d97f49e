/**
 * The block formats of GGUF that need no codebook, read one weight at a time: `weight(i)` of a
 * block is a formula over its bytes. The layouts are those of ggml's `ggml-common.h`.
 */
import type { TensorType } from "../../src/formats/tensor_info.ts";

/** The value of weight `i` of the block that starts at byte 0 of the view. */
type Formula = (block: DataView, i: number) => number;

const f16 = (block: DataView, at: number) => block.getFloat16(at, true);

/** Nibble of weight `i` of 32, stored in halves from byte `at` on. */
const halves = (block: DataView, at: number, i: number) =>
  block.getUint8(at + i % 16) >> (i < 16 ? 0 : 4) & 0xf;

/** Bit `i` of the 32-bit word at `at`. */
const bit = (block: DataView, at: number, i: number) => block.getUint32(at, true) >>> i & 1;

/**
 * Two bits of weight `i` of 256: 32 weights a shift, 128 weights for each 32 bytes from `at` on.
 */
const twoBits = (block: DataView, at: number, i: number) =>
  block.getUint8(at + 32 * (i >> 7) + i % 32) >> 2 * (i >> 5 & 3) & 3;

/** Nibble of weight `i` of 256 in Q4_K and Q5_K: 64 weights for each 32 bytes from `at` on. */
const kNibble = (block: DataView, at: number, i: number) =>
  block.getUint8(at + 32 * (i >> 6) + i % 32) >> 4 * (i >> 5 & 1) & 0xf;

/** The six-bit scale and minimum of 32 weights in Q4_K and Q5_K, whose 12 bytes start at 4. */
function scaleAndMin(block: DataView, s: number): [scale: number, min: number] {
  const at = (n: number) => block.getUint8(4 + n);
  return s < 4
    ? [at(s) & 63, at(s + 4) & 63]
    : [at(s + 4) & 15 | at(s - 4) >> 6 << 4, at(s + 4) >> 4 | at(s) >> 6 << 4];
}

/** The six-bit scale of 16 weights in Q3_K, whose 12 bytes start at 96. */
function q3Scale(block: DataView, s: number): number {
  const low = block.getUint8(96 + s % 8) >> (s < 8 ? 0 : 4) & 15;
  const high = block.getUint8(104 + s % 4) >> 2 * (s >> 2) & 3;
  return low | high << 4;
}

const iq4Levels = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
const e2m1Levels = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0, -0.5, -1, -1.5, -2, -3, -4, -6];

/** Digit `n` of five base-3 digits that a byte of TQ1_0 holds as a fraction of 256. */
const ternaryDigit = (byte: number, n: number) => (byte * 3 ** n % 256) * 3 >> 8;

/** The bfloat16 at `at`. */
function bf16(block: DataView, at: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint16(0, block.getUint16(at, true));
  return view.getFloat32(0);
}

/** The number of a code in E4M3, all ones being 480. */
function e4m3(code: number): number {
  const exponent = code >> 3 & 15, fraction = code & 7;
  const magnitude = exponent === 0 ? fraction * 2 ** -9 : (8 + fraction) * 2 ** (exponent - 10);
  return code & 128 ? -magnitude : magnitude;
}

export const formulas: Partial<Record<TensorType, Formula>> = {
  F32: (block) => block.getFloat32(0, true),
  F16: (block) => f16(block, 0),
  BF16: (block) => bf16(block, 0),
  Q4_0: (block, i) => f16(block, 0) * (halves(block, 2, i) - 8),
  Q4_1: (block, i) => f16(block, 0) * halves(block, 4, i) + f16(block, 2),
  Q5_0: (block, i) => f16(block, 0) * ((halves(block, 6, i) | bit(block, 2, i) << 4) - 16),
  Q5_1: (block, i) => f16(block, 0) * (halves(block, 8, i) | bit(block, 4, i) << 4) + f16(block, 2),
  Q8_0: (block, i) => f16(block, 0) * block.getInt8(2 + i),
  FP8: (block, i) => Math.fround(block.getFloat32(0, true) * e4m3(block.getUint8(4 + i))),
  Q2_K(block, i) {
    const scales = block.getUint8(i >> 4);
    return f16(block, 80) * (scales & 15) * twoBits(block, 16, i) - f16(block, 82) * (scales >> 4);
  },
  Q3_K(block, i) {
    const high = block.getUint8(i % 32) >> (i >> 5) & 1;
    return f16(block, 108) * (q3Scale(block, i >> 4) - 32) *
      ((twoBits(block, 32, i) | high << 2) - 4);
  },
  Q4_K(block, i) {
    const [scale, min] = scaleAndMin(block, i >> 5);
    return f16(block, 0) * scale * kNibble(block, 16, i) - f16(block, 2) * min;
  },
  Q5_K(block, i) {
    const [scale, min] = scaleAndMin(block, i >> 5);
    const q = kNibble(block, 48, i) | (block.getUint8(16 + i % 32) >> (i >> 5) & 1) << 4;
    return f16(block, 0) * scale * q - f16(block, 2) * min;
  },
  Q6_K(block, i) {
    const low = block.getUint8(64 * (i >> 7) + i % 64) >> 4 * (i >> 6 & 1) & 15;
    const q = low | twoBits(block, 128, i) << 4;
    return f16(block, 208) * block.getInt8(192 + (i >> 4)) * (q - 32);
  },
  IQ4_NL: (block, i) => f16(block, 0) * iq4Levels[halves(block, 2, i)]!,
  IQ4_XS(block, i) {
    const s = i >> 5;
    const low = block.getUint8(4 + (s >> 1)) >> 4 * (s & 1) & 15;
    const high = block.getUint16(2, true) >> 2 * s & 3;
    return f16(block, 0) * ((low | high << 4) - 32) *
      iq4Levels[halves(block, 8 + 16 * s, i % 32)]!;
  },
  TQ1_0(block, i) {
    // 5 digits each of 32 bytes, 5 of 16 bytes, 4 of 4 bytes.
    const [at, n] = i < 160
      ? [i % 32, i >> 5]
      : i < 240
      ? [32 + i % 16, i - 160 >> 4]
      : [48 + i % 4, i - 240 >> 2];
    return f16(block, 52) * (ternaryDigit(block.getUint8(at), n) - 1);
  },
  TQ2_0: (block, i) => f16(block, 64) * (twoBits(block, 0, i) - 1),
  MXFP4: (block, i) => 2 ** (block.getUint8(0) - 127) * e2m1Levels[halves(block, 1, i)]!,
  FP4(block, i) {
    const scale = Math.fround(block.getFloat32(0, true) * e4m3(block.getUint8(4 + (i >> 4))));
    return Math.fround(scale * e2m1Levels[halves(block, 8 + 16 * (i >> 5), i % 32)]!);
  },
};

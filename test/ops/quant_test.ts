/** Weight formats: the values of every type, and the error of quantising. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../src/errors.ts";
import { TENSOR_TYPES, type TensorType } from "../../src/formats/tensor_info.ts";
import { deviceTest } from "../support/devices.ts";
import { assertClose, type Matrix, matrixOfRows, rowsOf } from "../support/matrix.ts";
import { computableTypes, randomWeight, type TestWeight } from "../support/weights.ts";
import vectors from "./codebook_vectors.json" with { type: "json" };
import { formulas } from "./plain_dequantize.ts";

/** Asserts equal numbers; 0 equals -0. */
const exact = { absolute: 0, relative: 0 };

/** The weights of a matrix by the formula of its type. */
function byFormula({ type, rows, cols, bytes }: TestWeight): Matrix {
  const { blockElements, blockBytes } = TENSOR_TYPES[type];
  const formula = formulas[type]!;
  const perRow = cols / blockElements;
  return matrixOfRows(rows, cols, (row) =>
    Float64Array.from({ length: cols }, (_, col) => {
      const block = row * perRow + Math.floor(col / blockElements);
      return formula(
        new DataView(bytes.buffer, block * blockBytes, blockBytes),
        col % blockElements,
      );
    }));
}

Deno.test("every type has a formula or vectors", () => {
  const covered = [...Object.keys(formulas), ...Object.keys(vectors)].sort();
  assertEquals(covered, [...computableTypes].sort());
});

deviceTest("weights of the types without a codebook", (device, random) => {
  for (const type of Object.keys(formulas) as TensorType[]) {
    const { blockElements } = TENSOR_TYPES[type];
    const cols = blockElements === 1 ? 37 : 2 * blockElements;
    const weight = randomWeight(random, type, 7, cols);
    const expected = byFormula(weight);
    const handle = device.uploadWeight(type, 7, cols, weight.bytes);
    for (const [first, count] of [[0, 7], [2, 3], [6, 1]] as const) {
      const data = new Float32Array(device.readWeight(handle, first, count));
      const rows = rowsOf(expected, first, first + count);
      assertClose({ rows: count, cols, data }, rows, exact, `${type}, ${count} rows from ${first}`);
    }
  }
});

deviceTest("weights of the codebook types", async (device) => {
  for (const [name, { blocks, first, sha256 }] of Object.entries(vectors)) {
    const type = name as TensorType;
    const bytes = Uint8Array.fromBase64(blocks);
    const rows = bytes.length / TENSOR_TYPES[type].blockBytes;
    const weight = device.uploadWeight(type, rows, 256, bytes);
    const values = new Float32Array(device.readWeight(weight, 0, rows));
    assertEquals(Array.from(values.subarray(0, first.length)), first, type);
    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", values));
    assertEquals(
      digest.toHex(),
      sha256,
      `${type}: the first weights are right, later ones are not`,
    );
  }
});

deviceTest("every float16 and bfloat16", (device) => {
  const bits = Uint16Array.from({ length: 1 << 16 }, (_, i) => i);
  const bytes = new Uint8Array(bits.buffer);
  const half = device.readWeight(device.uploadWeight("F16", 256, 256, bytes), 0, 256);
  const halves = new Float16Array(bits.buffer);
  half.forEach((value, i) => assert(Object.is(value, halves[i]), `f16 ${i} is ${value}`));
  const brain = device.readWeight(device.uploadWeight("BF16", 256, 256, bytes), 0, 256);
  const upper = new Float32Array(Uint32Array.from(bits, (word) => word << 16).buffer);
  brain.forEach((value, i) => assert(Object.is(value, upper[i]), `bf16 ${i} is ${value}`));
});

deviceTest("scales at the ends of their formats", (device, random) => {
  // Zero, the smallest and the largest subnormal, the largest number, and the same below zero.
  const scales = [0x0000, 0x0001, 0x03ff, 0x7bff, 0x8000, 0x8001, 0x83ff, 0xfbff];
  for (const [type, at] of [["Q4_0", 0], ["Q8_0", 0], ["Q6_K", 208], ["TQ2_0", 64]] as const) {
    const { blockElements, blockBytes } = TENSOR_TYPES[type];
    const weight = randomWeight(random, type, scales.length, blockElements);
    const view = new DataView(weight.bytes.buffer);
    scales.forEach((bits, block) => view.setUint16(block * blockBytes + at, bits, true));
    const handle = device.uploadWeight(type, scales.length, blockElements, weight.bytes);
    const data = new Float32Array(device.readWeight(handle, 0, scales.length));
    const expected = byFormula(weight);
    assertClose({ ...expected, data }, expected, exact, type);
  }
  const exponents = Uint8Array.from({ length: 255 }, (_, e) => e);
  const blocks = new Uint8Array(255 * 17);
  exponents.forEach((e, block) => blocks.set([e, ...random.bytes(16)], 17 * block));
  const weight: TestWeight = { type: "MXFP4", rows: 255, cols: 32, bytes: blocks };
  const data = device.readWeight(device.uploadWeight("MXFP4", 255, 32, blocks), 0, 255);
  assertClose(
    { rows: 255, cols: 32, data: new Float32Array(data) },
    byFormula(weight),
    exact,
    "MXFP4",
  );
  // 255 is NaN in the specification.
  const nan = new Uint8Array(2 * 17).fill(0x11).fill(255, 0, 1).fill(127, 17, 18);
  const weights = device.readWeight(device.uploadWeight("MXFP4", 2, 32, nan), 0, 2);
  assert(weights.subarray(0, 32).every(Number.isNaN), "a block of NaN");
  assert(weights.subarray(32).every(Number.isFinite), "its neighbour");
});

/** The largest error of a weight, relative to the largest weight under the same scale. */
const errorBounds: Partial<Record<TensorType, readonly [group: number, error: number]>> = {
  F32: [1, 0],
  F16: [1, 2 ** -11],
  BF16: [1, 2 ** -8],
  // Half a step; and the scale itself is rounded to a float16.
  Q8_0: [32, 0.5 / 127 + 0.001],
  Q4_1: [32, 1 / 15 + 0.002],
  Q5_1: [32, 1 / 31 + 0.002],
  // With the step of least squares, the largest weight may be up to two levels off.
  Q4_0: [32, 2 / 8],
  Q5_0: [32, 2 / 16],
  Q2_K: [256, 2 * 2 / 3],
  Q3_K: [256, 2 / 4 + 0.05],
  Q4_K: [256, 2 * 2 / 15],
  Q5_K: [256, 2 * 2 / 31],
  Q6_K: [256, 2 / 32 + 0.01],
  // Levels are up to 24 apart.
  IQ4_NL: [32, 2 * 24 / 127],
  IQ4_XS: [256, 2 * 24 / 127],
};

/**
 * Bounds of the root mean squared error of normally distributed weights, relative to their
 * deviation: 4% above the mean over a million weights, more than five deviations of a sample of
 * 20,480. Steps that exactly span the weights give 0.0856 for Q4_0, 0.0426 for Q5_0, 0.0782 for
 * Q4_K and 0.0188 for Q6_K.
 */
const normalErrors: Partial<Record<TensorType, number>> = {
  Q8_0: 0.00557,
  Q6_K: 0.0180,
  Q5_1: 0.0393,
  Q5_0: 0.0418,
  Q4_1: 0.0814,
  Q4_K: 0.0744,
  Q4_0: 0.0842,
  Q5_K: 0.0374,
  Q3_K: 0.1494,
  Q2_K: 0.2822,
  IQ4_NL: 0.0763,
  IQ4_XS: 0.0774,
};

deviceTest("quantising finds scales with a small error", (device, random) => {
  for (const [name, most] of Object.entries(normalErrors)) {
    const type = name as TensorType, rows = 40, cols = 512;
    const values = random.normals(rows * cols, 0.02);
    const bytes = device.quantize(type, rows, cols, values);
    const back = device.readWeight(device.uploadWeight(type, rows, cols, bytes), 0, rows);
    const power = values.reduce((sum, value) => sum + value ** 2, 0);
    const error = values.reduce((sum, value, i) => sum + (value - back[i]!) ** 2, 0);
    const relative = Math.sqrt(error / power);
    assert(relative < most, `${type} is off by ${relative}, allowed ${most}`);
  }
});

deviceTest("the error of quantising is bounded", (device, random) => {
  for (const type of Object.keys(errorBounds) as TensorType[]) {
    const [group, error] = errorBounds[type]!;
    const rows = 40, cols = 512;
    // Around 0; and far from it, on either side.
    for (const [mean, deviation] of [[0, 1], [0, 0.02], [5, 0.1], [-5, 0.1]] as const) {
      const values = random.normals(rows * cols, deviation).map((value) => mean + value);
      const bytes = device.quantize(type, rows, cols, values);
      const back = device.readWeight(device.uploadWeight(type, rows, cols, bytes), 0, rows);
      for (let begin = 0; begin < values.length; begin += group) {
        const some = values.subarray(begin, begin + group);
        const largest = some.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
        const worst = some.reduce(
          (most, value, i) => Math.max(most, Math.abs(value - back[begin + i]!)),
          0,
        );
        // The smallest step of a float16 scale is 2^-24, times the largest field.
        const allowed = error * largest + (type === "F16" ? 2 ** -25 : 0);
        assert(worst <= allowed, `${type}: off by ${worst} of ${largest} from weight ${begin}`);
      }
    }
  }
});

deviceTest("important columns get smaller errors", (device, random) => {
  const rows = 40, cols = 512;
  const values = random.normals(rows * cols, 0.02);
  const importance = Float32Array.from({ length: cols }, () => Math.exp(2 * random.normals(1)[0]!));
  const errorOf = (type: TensorType, weights?: Float32Array<ArrayBuffer>) => {
    const bytes = device.quantize(type, rows, cols, values, weights);
    const back = device.readWeight(device.uploadWeight(type, rows, cols, bytes), 0, rows);
    return values.reduce(
      (sum, value, i) => sum + importance[i % cols]! * (value - back[i]!) ** 2,
      0,
    );
  };
  for (
    const type of [
      "Q4_0",
      "Q5_0",
      "Q2_K",
      "Q3_K",
      "Q4_K",
      "Q5_K",
      "Q6_K",
      "IQ4_NL",
      "IQ4_XS",
    ] as const
  ) {
    const [plain, weighted] = [errorOf(type), errorOf(type, importance)];
    assert(weighted < 0.93 * plain, `${type}: ${weighted} with importance, ${plain} without`);
  }
  // Columns without importance are still written.
  const none = device.quantize("Q4_K", rows, cols, values, new Float32Array(cols));
  const back = device.readWeight(device.uploadWeight("Q4_K", rows, cols, none), 0, rows);
  assert(back.every(Number.isFinite));
  const negative = new Float32Array(cols).fill(-1);
  const quantize = () => device.quantize("Q4_K", rows, cols, values, negative);
  assertThrows(quantize, ForgeError, "an importance is negative or not finite");
});

deviceTest("weights that a type represents exactly do not change", (device, random) => {
  for (const type of ["Q8_0", "Q4_0", "Q5_0", "F16", "BF16", "F32"] as const) {
    const { blockElements } = TENSOR_TYPES[type];
    const cols = 4 * Math.max(blockElements, 32);
    // Whole multiples of a power of two that reach the lowest field of each block.
    const lowest = type === "Q4_0" ? 8 : type === "Q5_0" ? 16 : 127;
    const values = Float32Array.from(
      { length: 3 * cols },
      (_, i) => (i % 32 === 0 ? -lowest : random.int(1 - lowest, lowest - 1)) / 64,
    );
    const bytes = device.quantize(type, 3, cols, values);
    const back = device.readWeight(device.uploadWeight(type, 3, cols, bytes), 0, 3);
    assertEquals(Array.from(back), Array.from(values), type);
  }
  // Scales of 16 weights have the lowest field of their integer, too.
  for (const [type, lowest, least] of [["Q3_K", 4, 32], ["Q6_K", 32, 128]] as const) {
    const scales = Array.from(
      { length: 16 },
      (_, s) => s === 3 ? -least : random.int(1, least - 1) * random.pick([-1, 1]),
    );
    const values = Float32Array.from(
      { length: 256 },
      (_, i) =>
        (i % 16 === 0 ? -lowest : random.int(1 - lowest, lowest - 1)) * scales[i >> 4]! / 64,
    );
    const bytes = device.quantize(type, 1, 256, values);
    const back = device.readWeight(device.uploadWeight(type, 1, 256, bytes), 0, 1);
    assertEquals(Array.from(back), Array.from(values), type);
  }
  // Sub-blocks with a minimum: the least and the largest scale and minimum, and none.
  for (
    const [type, size, top, most] of [
      ["Q2_K", 16, 3, 15],
      ["Q4_K", 32, 15, 63],
      ["Q5_K", 32, 31, 63],
    ] as const
  ) {
    const fit = (s: number) =>
      s === 1 ? [most, 0] : s === 2 ? [1, most] : [random.int(1, most), random.int(0, most)];
    const fits = Array.from({ length: 256 / size }, (_, s) => fit(s));
    const values = Float32Array.from({ length: 256 }, (_, i) => {
      const [scale, min] = fits[Math.floor(i / size)]!;
      const field = i % size === 0 ? 0 : i % size === 1 ? top : random.int(0, top);
      return (scale! * field - min!) / 64;
    });
    const bytes = device.quantize(type, 1, 256, values);
    const back = device.readWeight(device.uploadWeight(type, 1, 256, bytes), 0, 1);
    assertEquals(Array.from(back), Array.from(values), type);
  }
  const zeros = new Float32Array(256);
  for (const type of Object.keys(errorBounds) as TensorType[]) {
    const bytes = device.quantize(type, 1, 256, zeros);
    const back = device.readWeight(device.uploadWeight(type, 1, 256, bytes), 0, 1);
    assert(back.every((value) => value === 0), `${type}: zeros stay zeros`);
  }
});

deviceTest(
  "levels and integer scales end at their limits under a rounded scale",
  (device, random) => {
    // The scale of a block would be 1.4 of this, the smallest float16.
    const unit = 2 ** -24;
    const check = (type: TensorType, values: readonly number[], expected: readonly number[]) => {
      const bytes = device.quantize(type, 1, 256, Float32Array.from(values));
      const back = device.readWeight(device.uploadWeight(type, 1, 256, bytes), 0, 1);
      back.forEach((value, i) => assert(value === expected[i], `${type}: ${value} at ${i}`));
    };
    for (
      const [type, low, high, scale] of [
        ["Q8_0", -127, 127, 1],
        ["Q4_0", -8, 7, 1],
        ["Q5_0", -16, 15, 1],
        ["Q4_1", 0, 15, 1],
        ["Q5_1", 0, 31, 1],
        ["Q3_K", -4, 3, 32],
        ["Q6_K", -32, 31, 128],
        ["Q2_K", 0, 3, 15],
        ["Q4_K", 0, 15, 63],
        ["Q5_K", 0, 31, 63],
      ] as const
    ) {
      const levels = Array.from(
        { length: 256 },
        (_, i) => i % 16 === 0 ? low : i % 16 === 1 ? high : random.int(low, high),
      );
      // Signed scales of every other sub-block have the other sign, whose limit is one less.
      const scaleOf = (i: number) => low < 0 && scale > 1 && (i >> 4) % 2 === 1 ? 1 - scale : scale;
      const excess = (i: number) => scaleOf(i) < 0 ? -1.35 * scale : 1.4 * scale;
      const nearest = levels.map((level, i) =>
        Math.max(low, Math.min(high, Math.round(level * excess(i) / scaleOf(i))))
      );
      check(
        type,
        levels.map((level, i) => level * excess(i) * unit),
        nearest.map((level, i) => level * scaleOf(i) * unit),
      );
      if (!/[245]_K/.test(type)) continue;
      const minimum = -scale * unit;
      check(type, levels.map(() => 1.4 * minimum), levels.map(() => minimum));
    }
  },
);

deviceTest("weights that cannot be quantised are rejected", (device) => {
  const ones = new Float32Array(256).fill(1);
  for (const type of computableTypes.filter((type) => errorBounds[type] === undefined)) {
    const error = assertThrows(() => device.quantize(type, 1, 256, ones), ForgeError, type);
    assertEquals(error.code, "unsupported");
  }
  for (const bad of [NaN, Infinity]) {
    const values = ones.slice();
    values[100] = bad;
    assertThrows(() => device.quantize("Q8_0", 1, 256, values), ForgeError);
  }
  // No block's scale or minimum in F16 reaches these, whether all weights are equal or not.
  for (
    const type of (Object.keys(errorBounds) as TensorType[])
      .filter((type) => type !== "F32" && type !== "BF16")
  ) {
    for (const value of [1e9, -1e9]) {
      for (const values of [ones.map(() => value), ones.map((_, i) => i === 0 ? value : 0)]) {
        assertThrows(() => device.quantize(type, 1, 256, values), ForgeError);
      }
    }
  }
  // The largest float32 rounds to infinity in 16 bits.
  const largest = ones.map(() => 3.4028234e38);
  assertThrows(() => device.quantize("BF16", 1, 256, largest), ForgeError, "too large for BF16");
  const half = new Float32Array(128);
  assertThrows(() => device.quantize("Q8_0", 1, 256, half), ForgeError, "got 512 bytes");
});

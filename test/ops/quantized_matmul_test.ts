/**
 * Products with quantised weights, for which devices may round activations to signed bytes under one
 * scale for every 32 columns: how far the results may be off, and what must not be lost.
 */
import { assert } from "@std/assert";
import type { Backend } from "../../src/backend.ts";
import { TENSOR_TYPES, type TensorType } from "../../src/formats/tensor_info.ts";
import { deviceTest } from "../support/devices.ts";
import {
  assertSameBits,
  type Matrix,
  matrixOf,
  matrixOfRows,
  randomMatrix,
  rowOf,
  rowsOf,
} from "../support/matrix.ts";
import type { Random } from "../support/random.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";
import { computableTypes, randomWeight, type TestWeight } from "../support/weights.ts";
import { products } from "./plain_matmul.ts";

const quantizedTypes = computableTypes.filter((type) => TENSOR_TYPES[type].blockElements > 1);

function multiply(device: Backend, x: Matrix, weight: TestWeight): Promise<Matrix> {
  return runStep(device, tokenInputs(x.rows), (graph) => ({
    value: graph.recorder.matmul(graph.input(x), graph.weight(weight)),
    cols: weight.rows,
  }));
}

function valuesOf(device: Backend, { type, rows, cols, bytes }: TestWeight): Matrix {
  const weight = device.uploadWeight(type, rows, cols, bytes);
  return { rows, cols, data: new Float32Array(device.readWeight(weight, 0, rows)) };
}

/**
 * How much each of a row of activations may change: half a step, when the largest of the 32 becomes
 * 124 or more.
 */
function roundingErrors(x: Float32Array): Float64Array {
  return Float64Array.from(x, (_, col) => {
    const block = x.subarray(col - col % 32, col - col % 32 + 32);
    return Math.max(...block.map(Math.abs)) / 124 / 2;
  });
}

/** Fails where a product is off by more than the rounding of its activations can explain. */
function assertRounded(actual: Matrix, x: Matrix, values: Matrix, what: string): void {
  const magnitudes = { ...values, data: values.data.map(Math.abs) };
  for (let token = 0; token < x.rows; token++) {
    const row = rowOf(x, token);
    const allowed = products(roundingErrors(row), magnitudes);
    const sizes = products(row.map(Math.abs), magnitudes);
    products(row, values).forEach((expected, i) => {
      const off = Math.abs(rowOf(actual, token)[i]! - expected);
      const limit = 1.001 * allowed[i]! + 1e-5 * sizes[i]!;
      assert(off <= limit, `${what}: [${token}, ${i}] is off by ${off}, at most ${limit}`);
    });
  }
}

function sizes(random: Random, type: TensorType): [tokens: number, rows: number, cols: number] {
  const block = Math.max(32, TENSOR_TYPES[type].blockElements);
  return [random.pick([1, 2, 5, 8, 9, 23]), random.int(1, 70), block * random.int(1, 3)];
}

deviceTest("activations are rounded to no less than 8 bits", async (device, random) => {
  for (const type of quantizedTypes) {
    for (let round = 0; round < 3; round++) {
      const [tokens, rows, cols] = sizes(random, type);
      const x = randomMatrix(random, tokens, cols);
      const weight = randomWeight(random, type, rows, cols);
      const what = `${tokens} tokens, ${type} [${rows}, ${cols}]`;
      assertRounded(await multiply(device, x, weight), x, valuesOf(device, weight), what);
    }
  }
});

deviceTest("activations of all sizes in one row", async (device, random) => {
  for (const type of quantizedTypes) {
    const cols = Math.max(32, TENSOR_TYPES[type].blockElements);
    const weight = randomWeight(random, type, 19, cols);
    // A block of zeros, and others from 1e-30 to 1e30.
    const x = matrixOf(9, cols, (row, col) => {
      const scale = row % 3 === 0 && col < 32 ? 0 : 10 ** (7.5 * ((row + (col >> 5)) % 9 - 4));
      return scale * random.normal();
    });
    assertRounded(await multiply(device, x, weight), x, valuesOf(device, weight), type);
    const zeros = matrixOf(1, cols, () => 0);
    assert((await multiply(device, zeros, weight)).data.every((value) => value === 0), type);
  }
});

/** The bytes of a block that hold scales and no fields: how many at its start, and at its end. */
const SCALE_BYTES: Partial<Record<TensorType, readonly [start: number, end: number]>> = {
  Q4_0: [2, 0],
  Q4_1: [4, 0],
  Q5_0: [2, 0],
  Q5_1: [4, 0],
  Q8_0: [2, 0],
  Q2_K: [16, 4],
  Q3_K: [0, 14],
  Q4_K: [16, 0],
  Q5_K: [16, 0],
  Q6_K: [0, 18],
  IQ4_NL: [2, 0],
  IQ4_XS: [8, 0],
  MXFP4: [1, 0],
};

/** A weight whose fields are the bits of one byte, over and over. */
function fieldsOf(weight: TestWeight, byte: number): TestWeight {
  const { blockBytes } = TENSOR_TYPES[weight.type];
  const [start, end] = SCALE_BYTES[weight.type]!;
  const bytes = weight.bytes.slice();
  for (let at = 0; at < bytes.length; at += blockBytes) {
    bytes.fill(byte, at + start, at + blockBytes - end);
  }
  return { ...weight, bytes };
}

deviceTest("the largest fields by the largest activations", async (device, random) => {
  for (const type of quantizedTypes.filter((type) => SCALE_BYTES[type] !== undefined)) {
    const cols = Math.max(32, TENSOR_TYPES[type].blockElements);
    const weight = randomWeight(random, type, 21, cols);
    for (const tokens of [4, 13]) {
      const x = matrixOf(
        tokens,
        cols,
        (row, col) => [1, -1, (-1) ** col, (-1) ** (col >> 1)][row % 4]!,
      );
      for (const byte of [0x00, 0x77, 0x7f, 0x80, 0x81, 0x88, 0xff]) {
        const largest = fieldsOf(weight, byte);
        const what = `${tokens} tokens, ${type} of ${byte}`;
        assertRounded(await multiply(device, x, largest), x, valuesOf(device, largest), what);
      }
    }
  }
});

deviceTest(
  "an activation that is no number spoils its row and no other",
  async (device, random) => {
    for (const type of quantizedTypes) {
      for (const tokens of [1, 3, 11]) {
        const cols = Math.max(64, TENSOR_TYPES[type].blockElements);
        const weight = randomWeight(random, type, 37, cols);
        const clean = randomMatrix(random, tokens, cols);
        const expected = await multiply(device, clean, weight);
        for (const bad of [NaN, Infinity, -Infinity]) {
          const x = matrixOfRows(tokens, cols, (row) => rowOf(clean, row).slice());
          const token = random.int(0, tokens - 1);
          rowOf(x, token)[random.int(0, cols - 1)] = bad;
          const actual = await multiply(device, x, weight);
          const what = `${tokens} tokens, ${type}, ${bad}`;
          assert(!rowOf(actual, token).some(Number.isFinite), what);
          for (const [begin, end] of [[0, token], [token + 1, tokens]] as const) {
            assertSameBits(rowsOf(actual, begin, end), rowsOf(expected, begin, end), what);
          }
        }
      }
    }
  },
);

/**
 * Products with quantised weights, for which processors may round activations to signed bytes under
 * one scale for every 32 columns, and GPUs to 16 bits under one for each row: the bound of the
 * error, and the cases that must be exact.
 */
import { assert } from "@std/assert";
import type { Backend } from "../../src/backend.ts";
import { TENSOR_TYPES, type TensorType } from "../../src/formats/tensor_info.ts";
import type { NativeBackend } from "../../ffi/native_backend.ts";
import { deviceTest, isEmulated, isGpu } from "../support/devices.ts";
import {
  assertSameBits,
  HALF_PRODUCTS,
  type Matrix,
  matrixOf,
  matrixOfRows,
  randomByteMatrix,
  randomMatrix,
  rowOf,
  rowsOf,
} from "../support/matrix.ts";
import { opTest } from "../support/operations.ts";
import type { Random } from "../support/random.ts";
import { limitsOf, runStep, StepGraph, tokenInputs } from "../support/step_graph.ts";
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
 * Returns the largest rounding error of each activation of a row: half a step, if the largest of 32
 * becomes 124 or more. In F16, under one power of two for a row, steps are also at least 2^-24 of
 * the largest number of the row.
 */
function roundingErrors(device: NativeBackend, x: Float32Array): Float64Array {
  const sizes = x.map(Math.abs);
  const least = isGpu(device) ? Math.max(...sizes) * 2 ** -24 : 0;
  return Float64Array.from(x, (_, col) => {
    const block = sizes.subarray(col - col % 32, col - col % 32 + 32);
    return Math.max(Math.max(...block) / 124 / 2, least);
  });
}

/**
 * Asserts that the error of a product is within the rounding of its activations, and on GPUs of
 * weights to F16, whose smallest steps are 2^-24.
 */
function assertRounded(
  device: NativeBackend,
  actual: Matrix,
  x: Matrix,
  values: Matrix,
  what: string,
): void {
  const magnitudes = { ...values, data: values.data.map(Math.abs) };
  for (let token = 0; token < x.rows; token++) {
    const row = rowOf(x, token);
    const allowed = products(roundingErrors(device, row), magnitudes);
    const sizes = products(row.map(Math.abs), magnitudes);
    const ofWeights = isGpu(device) ? row.reduce((sum, x) => sum + Math.abs(x), 0) * 2 ** -25 : 0;
    products(row, values).forEach((expected, i) => {
      const off = Math.abs(rowOf(actual, token)[i]! - expected);
      const limit = 1.001 * allowed[i]! + 1e-5 * sizes[i]! + ofWeights;
      assert(off <= limit, `${what}: [${token}, ${i}] is off by ${off}, at most ${limit}`);
    });
  }
}

function sizes(random: Random, type: TensorType): [tokens: number, rows: number, cols: number] {
  const block = Math.max(32, TENSOR_TYPES[type].blockElements);
  return [random.pick([1, 2, 5, 8, 9, 23]), random.int(1, 70), block * random.int(1, 3)];
}

deviceTest("activations are rounded to at least 8 bits", async (device, random) => {
  for (const type of quantizedTypes) {
    for (let round = 0; round < 3; round++) {
      const [tokens, rows, cols] = sizes(random, type);
      const x = randomMatrix(random, tokens, cols);
      const weight = randomWeight(random, type, rows, cols);
      const what = `${tokens} tokens, ${type} [${rows}, ${cols}]`;
      const actual = await multiply(device, x, weight);
      assertRounded(device, actual, x, valuesOf(device, weight), what);
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
    const actual = await multiply(device, x, weight);
    assertRounded(device, actual, x, valuesOf(device, weight), type);
    const zeros = matrixOf(1, cols, () => 0);
    assert((await multiply(device, zeros, weight)).data.every((value) => value === 0), type);
  }
});

deviceTest(
  "activations on a grid of 124 to 127 steps keep their values",
  async (device, random) => {
    for (const type of quantizedTypes) {
      const cols = Math.max(32, TENSOR_TYPES[type].blockElements);
      const weight = randomWeight(random, type, 19, cols);
      const x = matrixOf(8, cols, (row, col) => {
        const steps = 124 + row % 4;
        return (col % 32 === 0 ? steps : random.int(-steps, steps)) * 0.013;
      });
      const values = valuesOf(device, weight);
      const magnitudes = { ...values, data: values.data.map(Math.abs) };
      const actual = await multiply(device, x, weight);
      // GPUs round both factors to 11 bits, and before that the float32 scale of FP8, by one error
      // for a whole block. Of MXFP4, whose weights are exact in BF16, CUDA rounds
      // activations to 8 bits. A wrong number of steps rounds to fewer.
      const rounding = device.kind === "cuda" && type === "MXFP4"
        ? 2.1e-3
        : type === "FP8"
        ? 6e-4 + 2 ** -11
        : 6e-4;
      for (let token = 0; token < x.rows; token++) {
        const row = rowOf(x, token);
        const sizes = products(row.map(Math.abs), magnitudes);
        products(row, values).forEach((expected, i) => {
          const off = Math.abs(rowOf(actual, token)[i]! - expected);
          const limit = rounding * sizes[i]!;
          assert(off <= limit, `${type}: [${token}, ${i}] is off by ${off}, at most ${limit}`);
        });
      }
    }
  },
);

/** Number of bytes of scales at the start and at the end of a block. */
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
  FP4: [8, 0],
};

/** A weight whose fields repeat the bits of one byte. */
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
        const actual = await multiply(device, x, largest);
        assertRounded(device, actual, x, valuesOf(device, largest), what);
      }
    }
  }
});

deviceTest(
  "a NaN or infinite activation changes only its own row",
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

/**
 * The products of a first run and of a later one, before which devices may have packed the weight.
 */
async function multiplyTwice(device: Backend, x: Matrix, weight: TestWeight): Promise<Matrix> {
  const inputs = tokenInputs(x.rows);
  const recorder = device.record(limitsOf(inputs));
  const graph = new StepGraph(device, recorder);
  const value = recorder.matmul(graph.input(x), graph.weight(weight));
  recorder.keep(value);
  const step = await recorder.finish();
  const run = async (): Promise<Matrix> => {
    await step.run(inputs);
    const data = new Float32Array(step.read(value, weight.rows, 0, x.rows));
    return { rows: x.rows, cols: weight.rows, data };
  };
  try {
    const first = await run();
    assertSameBits(await run(), first, "a later run");
    return first;
  } finally {
    step.release();
  }
}

/**
 * Widths of published models, around which kernels cut columns into pieces: one piece, one and a
 * remainder, several whole ones. Rows end inside of a panel and of a task, at the end of either, or
 * are a single panel; tokens are few, one more than few, and fill tiles.
 */
const WIDE: readonly (readonly [tokens: number, rows: number, cols: number])[] = [
  [8, 16, 2048],
  [3, 48, 2304],
  // An emulated GPU takes seconds for the others.
  ...(isEmulated ? [] : [
    [9, 83, 2048],
    [13, 64, 2304],
    [10, 17, 4096],
    [9, 19, 14336],
  ] as const),
];

/** More tokens than one task takes, over several tasks of rows. */
const MANY_TOKENS = [260, 70, 2304] as const;

function hasManyTokens(type: TensorType): boolean {
  return !isEmulated && (type === "Q4_K" || type === "F16");
}

opTest<{ readonly x: Matrix; readonly weight: TestWeight }>(
  "products as wide as those of published models",
  {
    cases: (random) =>
      computableTypes.flatMap((type) =>
        [...WIDE, ...(hasManyTokens(type) ? [MANY_TOKENS] : [])].map((shape) => {
          const [tokens, rows, cols] = shape;
          const x = randomByteMatrix(random, tokens, cols, 1 / Math.sqrt(cols));
          const weight = randomWeight(random, type, rows, cols);
          return [`${tokens} tokens, ${type} [${rows}, ${cols}]`, { x, weight }] as const;
        })
      ),
    run: (device, { x, weight }) => multiplyTwice(device, x, weight),
    plain({ x, weight }, read) {
      const values = read(weight);
      return matrixOfRows(x.rows, weight.rows, (token) => products(rowOf(x, token), values));
    },
    tolerance: { absolute: 1e-5, relative: 1e-5 },
    gpuTolerance: HALF_PRODUCTS,
  },
);

/** Matrices of float32 numbers and their comparison. */
import { assertEquals } from "@std/assert";
import type { Random } from "./random.ts";

/** Row-major. */
export interface Matrix {
  readonly rows: number;
  readonly cols: number;
  readonly data: Float32Array<ArrayBuffer>;
}

/** The matrix whose entries are `entry(row, col)`, rounded to float32. */
export function matrixOf(
  rows: number,
  cols: number,
  entry: (row: number, col: number) => number,
): Matrix {
  const data = new Float32Array(rows * cols);
  for (let row = 0; row < rows; row++) {
    for (let col = 0; col < cols; col++) data[row * cols + col] = entry(row, col);
  }
  return { rows, cols, data };
}

/** The matrix whose rows are `entries(row)`, rounded to float32. */
export function matrixOfRows(
  rows: number,
  cols: number,
  entries: (row: number) => ArrayLike<number>,
): Matrix {
  const data = new Float32Array(rows * cols);
  for (let row = 0; row < rows; row++) data.set(entries(row), row * cols);
  return { rows, cols, data };
}

/** Normally distributed entries. */
export function randomMatrix(random: Random, rows: number, cols: number, deviation = 1): Matrix {
  return { rows, cols, data: random.normals(rows * cols, deviation) };
}

/**
 * Entries of a magnitude of about `deviation` that a signed byte and a power of two per 32 columns
 * represent exactly: devices that round activations to 8 bits lose nothing.
 */
export function randomByteMatrix(
  random: Random,
  rows: number,
  cols: number,
  deviation = 1,
): Matrix {
  const exponent = Math.round(Math.log2(deviation / 73));
  const largest = { column: 0, scale: 1 };
  return matrixOf(rows, cols, (_, col) => {
    const inBlock = col % 32;
    if (inBlock === 0) {
      largest.column = random.int(0, Math.min(31, cols - 1 - col));
      largest.scale = 2 ** (exponent + random.int(-1, 1));
    }
    return largest.scale *
      (inBlock === largest.column ? random.pick([-127, 127]) : random.int(-127, 127));
  });
}

/** A row, as a view. */
export function rowOf(matrix: Matrix, row: number): Float32Array<ArrayBuffer> {
  return matrix.data.subarray(row * matrix.cols, (row + 1) * matrix.cols);
}

/** Rows `begin` to `end - 1`, as a view. */
export function rowsOf(matrix: Matrix, begin: number, end: number): Matrix {
  const data = matrix.data.subarray(begin * matrix.cols, end * matrix.cols);
  return { rows: end - begin, cols: matrix.cols, data };
}

/** The rows of matrices of equal width, one after another. */
export function stack(parts: readonly Matrix[]): Matrix {
  const cols = parts[0]?.cols ?? 0;
  const rows = parts.reduce((sum, part) => sum + part.rows, 0);
  const data = new Float32Array(rows * cols);
  let at = 0;
  for (const part of parts) {
    data.set(part.data, at);
    at += part.data.length;
  }
  return { rows, cols, data };
}

/** Allowed difference of two results: `|a - b| <= absolute + relative * max |row of b|`. */
export interface Tolerance {
  readonly absolute: number;
  readonly relative: number;
}

/**
 * Tolerance for GPU products of magnitude 1. Their matrix units round both factors of a term to
 * float16, each with an error of up to 2^-11 of itself. For random terms this gives a deviation of
 * 2e-4 to 3e-4 of the sum for any number of terms. Ten deviations are allowed.
 */
export const HALF_PRODUCTS: Tolerance = { absolute: 3e-3, relative: 1e-3 };

/** Fails if `actual` differs from `expected` by more than allowed; NaN always fails. */
export function assertClose(
  actual: Matrix,
  expected: Matrix,
  tolerance: Tolerance,
  what: string,
): void {
  assertEquals([actual.rows, actual.cols], [expected.rows, expected.cols], `${what}: shape`);
  for (let row = 0; row < expected.rows; row++) {
    const a = rowOf(actual, row), b = rowOf(expected, row);
    let largest = 0;
    for (const value of b) if (Number.isFinite(value)) largest = Math.max(largest, Math.abs(value));
    const allowed = tolerance.absolute + tolerance.relative * largest;
    for (let col = 0; col < b.length; col++) {
      // Infinities must be equal; NaN fails both comparisons.
      if (a[col] === b[col] || Math.abs(a[col]! - b[col]!) <= allowed) continue;
      throw new Error(
        `${what}: [${row}, ${col}] of [${b.length} columns] is ${a[col]}, expected ${b[col]}; ` +
          `off by ${Math.abs(a[col]! - b[col]!)}, allowed ${allowed}`,
      );
    }
  }
}

/**
 * Fails unless both have the same bits; any NaN equals any other, since compilers may choose which
 * of two NaNs a sum returns.
 */
export function assertSameBits(actual: Matrix, expected: Matrix, what: string): void {
  assertEquals([actual.rows, actual.cols], [expected.rows, expected.cols], `${what}: shape`);
  const differs = (i: number) => !Object.is(actual.data[i], expected.data[i]);
  const at = expected.data.findIndex((_, i) => differs(i));
  if (at < 0) return;
  const row = Math.floor(at / expected.cols);
  const differing = expected.data.reduce((count, _, i) => count + (differs(i) ? 1 : 0), 0);
  throw new Error(
    `${what}: ${differing} of ${expected.data.length} numbers differ; the first, [${row}, ` +
      `${at % expected.cols}], is ${actual.data[at]} instead of ${expected.data[at]}`,
  );
}

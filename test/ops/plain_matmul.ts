/** Products in float64. */
import { type Matrix, rowOf } from "../support/matrix.ts";

/** The sum of `a[i] * b[i]`. */
export function dot(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i]! * b[i]!;
  return sum;
}

/** The products of a vector with each row of a matrix. */
export function products(x: ArrayLike<number>, weight: Matrix): Float64Array {
  return Float64Array.from({ length: weight.rows }, (_, row) => dot(x, rowOf(weight, row)));
}

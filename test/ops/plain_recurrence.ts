/** Convolutions over tokens and the gated delta rule, in plain TypeScript. */
import type { HeadOrder } from "../../src/backend.ts";
import { type Matrix, matrixOfRows, rowOf } from "../support/matrix.ts";
import { firstRows, type Schedule } from "../support/recurrence.ts";

export const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

/** `bias + sum of weight[c][i] x[t - (width - 1) + i][c]`, sequence by sequence. */
export function plainConv1d(
  schedule: Schedule,
  x: Matrix,
  weight: Matrix,
  bias: Float32Array | undefined,
): Matrix {
  const rows: number[][] = [];
  const first = firstRows(schedule);
  schedule.lengths.forEach((length, sequence) => {
    for (let t = 0; t < length; t++) {
      rows[first[sequence]! + t] = Array.from({ length: x.cols }, (_, c) => {
        let sum = bias?.[c] ?? 0;
        for (let i = 0; i < weight.cols; i++) {
          const from = t - (weight.cols - 1) + i;
          if (from >= 0) sum += rowOf(weight, c)[i]! * rowOf(x, first[sequence]! + from)[c]!;
        }
        return sum;
      });
    }
  });
  return matrixOfRows(x.rows, x.cols, (row) => rows[row]!);
}

export interface DeltaShape {
  readonly nKHeads: number;
  readonly nVHeads: number;
  readonly kDim: number;
  readonly vDim: number;
  readonly headOrder: HeadOrder;
}

/** The state of a head, `[kDim][vDim]`, and its update by one token. */
class DeltaState {
  readonly rows: number[][];

  constructor(kDim: number, vDim: number) {
    this.rows = Array.from({ length: kDim }, () => new Array<number>(vDim).fill(0));
  }

  step(q: number[], k: number[], v: ArrayLike<number>, beta: number, decay: number): number[] {
    for (const row of this.rows) row.forEach((s, j) => row[j] = s * decay);
    return Array.from(v, (value, j) => {
      const known = this.rows.reduce((sum, row, i) => sum + k[i]! * row[j]!, 0);
      this.rows.forEach((row, i) => row[j]! += k[i]! * beta * (value - known));
      return this.rows.reduce((sum, row, i) => sum + q[i]! * row[j]!, 0);
    });
  }
}

function normalized(x: Float32Array, eps: number, scale: number): number[] {
  const length = Math.sqrt(x.reduce((sum, value) => sum + value * value, eps));
  return Array.from(x, (value) => value * scale / length);
}

export function plainDeltaRule(
  schedule: Schedule,
  shape: DeltaShape,
  inputs: {
    readonly qkv: Matrix;
    readonly ba: Matrix;
    readonly rate: Float32Array;
    readonly dtBias: Float32Array;
    readonly scale: number;
    readonly eps: number;
  },
): Matrix {
  const { nKHeads, nVHeads, kDim, vDim, headOrder } = shape;
  const { qkv, ba, rate, dtBias, scale, eps } = inputs;
  const out: number[][] = [];
  const first = firstRows(schedule);
  schedule.lengths.forEach((length, sequence) => {
    const states = Array.from({ length: nVHeads }, () => new DeltaState(kDim, vDim));
    for (let t = first[sequence]!; t < first[sequence]! + length; t++) {
      const row = rowOf(qkv, t);
      out[t] = states.flatMap((state, head) => {
        const keyHead = headOrder === "tiled"
          ? head % nKHeads
          : Math.floor(head / (nVHeads / nKHeads));
        const q = row.subarray(keyHead * kDim, (keyHead + 1) * kDim);
        const k = row.subarray((nKHeads + keyHead) * kDim, (nKHeads + keyHead + 1) * kDim);
        const vBegin = 2 * nKHeads * kDim + head * vDim;
        const [b, a] = [rowOf(ba, t)[head]!, rowOf(ba, t)[nVHeads + head]!];
        return state.step(
          normalized(q, eps, scale),
          normalized(k, eps, 1),
          row.subarray(vBegin, vBegin + vDim),
          sigmoid(b),
          Math.exp(rate[head]! * Math.log1p(Math.exp(a + dtBias[head]!))),
        );
      });
    }
  });
  return matrixOfRows(qkv.rows, nVHeads * vDim, (row) => out[row]!);
}

/** Convolutions over tokens, the gated delta rule and the scan of Mamba-2, in plain TypeScript. */
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

export interface ScanShape {
  readonly nHeads: number;
  readonly nGroups: number;
  readonly headDim: number;
  readonly dState: number;
}

export function plainSelectiveScan(
  schedule: Schedule,
  { nHeads, nGroups, headDim, dState }: ScanShape,
  inputs: {
    readonly xbc: Matrix;
    readonly dt: Matrix;
    readonly gate: Matrix | undefined;
    readonly rate: Float32Array;
    readonly dtBias: Float32Array;
    readonly skip: Float32Array;
    readonly dtLimits: readonly [number, number];
  },
): Matrix {
  const { xbc, dt, gate, rate, dtBias, skip, dtLimits: [least, most] } = inputs;
  const inner = nHeads * headDim;
  const out: number[][] = [];
  const first = firstRows(schedule);
  schedule.lengths.forEach((length, sequence) => {
    const states = Array.from({ length: inner }, () => new Array<number>(dState).fill(0));
    for (let t = first[sequence]!; t < first[sequence]! + length; t++) {
      const row = rowOf(xbc, t);
      out[t] = states.map((state, column) => {
        const head = Math.floor(column / headDim);
        const group = Math.floor(head / (nHeads / nGroups));
        const softplus = Math.log1p(Math.exp(rowOf(dt, t)[head]! + dtBias[head]!));
        const step = Math.min(Math.max(softplus, least), most);
        const x = row[column]!;
        let sum = skip[head]! * x;
        for (let i = 0; i < dState; i++) {
          const b = row[inner + group * dState + i]!;
          const c = row[inner + (nGroups + group) * dState + i]!;
          state[i] = Math.exp(rate[head]! * step) * state[i]! + b * step * x;
          sum += c * state[i]!;
        }
        const by = gate && rowOf(gate, t)[column]!;
        return by === undefined ? sum : sum * by * sigmoid(by);
      });
    }
  });
  return matrixOfRows(xbc.rows, inner, (row) => out[row]!);
}

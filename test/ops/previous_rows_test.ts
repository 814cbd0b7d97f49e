/** Rows kept by position, and the rows of the positions before. */
import type { KvShape, StepInputs } from "../../src/backend.ts";
import { type Matrix, matrixOf, randomMatrix } from "../support/matrix.ts";
import { opTest } from "../support/operations.ts";
import type { Random } from "../support/random.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";

const PAGE_TOKENS = 4;
const PAGE_TABLES = [[2, 0, 3], [5, 4, 1]];

/** A run: its tokens as [sequence, position], in order. */
type Run = readonly (readonly [sequence: number, position: number])[];

interface Case {
  readonly shape: KvShape;
  /** Runs that store the rows of `x`, one after the other. */
  readonly stored: readonly Run[];
  readonly x: Matrix;
  /** Last run. Its rows of `x` follow those of the others, unless it only reads. */
  readonly last: Run;
  readonly stores: boolean;
}

function inputsOf(run: Run): StepInputs {
  return {
    ...tokenInputs(run.length),
    sequences: run.map(([sequence]) => sequence),
    positions: run.map(([, position]) => position),
    pageTables: PAGE_TABLES,
  };
}

/** A part of a sequence, from `first` on. */
function part(sequence: number, first: number, length: number): Run {
  return Array.from({ length }, (_, i) => [sequence, first + i]);
}

function caseOf(
  random: Random,
  [nKvHeads, dim]: readonly [number, number],
  type: "F32" | "F16" | "BF16",
  stores: boolean,
): Case {
  const length = random.int(2, 5);
  const stored = [part(0, 0, length), [...part(0, length, 3), ...part(1, 0, 6)]];
  // Some positions are stored a second time, as draft tokens are after a rejection.
  const last = [...part(0, random.int(1, length + 2), 2), ...part(1, random.int(0, 6), 1)];
  const rows = stored.flat().length + last.length;
  const shape = { type, nPages: 6, pageTokens: PAGE_TOKENS, valuesInKeys: true } as const;
  return {
    shape: { ...shape, nKvHeads, kHeadDim: dim, vHeadDim: dim },
    stored,
    // Numbers that 16 bits hold exactly.
    x: type === "F32"
      ? randomMatrix(random, rows, nKvHeads * dim)
      : matrixOf(rows, nKvHeads * dim, () => random.int(-127, 127) / 16),
    last,
    stores,
  };
}

opTest<Case>("previous_rows", {
  cases: (random) =>
    ([[1, 1], [1, 5], [2, 8], [3, 64], [1, 200]] as const).flatMap((size) =>
      (["F32", "F16", "BF16"] as const).flatMap((type) =>
        [true, false].map((stores) =>
          [
            `${size[0]} heads of ${size[1]} in ${type}${stores ? "" : ", reading only"}`,
            caseOf(random, size, type, stores),
          ] as const
        )
      )
    ),
  run: async (device, { shape, stored, x, last, stores }) => {
    const kv = device.createKv(shape);
    let row = 0;
    const record = (run: Run, storing: boolean) => {
      const first = row;
      row += run.length;
      const rows = matrixOf(run.length, x.cols, (i, col) => x.data[(first + i) * x.cols + col]!);
      return runStep(device, inputsOf(run), (graph) => ({
        value: graph.recorder.previousRows(storing ? graph.input(rows) : undefined, kv),
        cols: x.cols,
      }));
    };
    for (const run of stored) await record(run, true);
    return await record(last, stores);
  },
  plain: ({ stored, x, last, stores }) => {
    const rows = new Map<string, number>();
    let row = 0;
    for (const run of stores ? [...stored, last] : stored) {
      for (const [sequence, position] of run) rows.set(`${sequence} ${position}`, row++);
    }
    return matrixOf(last.length, x.cols, (i, col) => {
      const [sequence, position] = last[i]!;
      return position === 0 ? 0 : x.data[rows.get(`${sequence} ${position - 1}`)! * x.cols + col]!;
    });
  },
  tolerance: { absolute: 0, relative: 0 },
});

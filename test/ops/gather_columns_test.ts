/** Columns of several values gathered in groups. */
import { type Matrix, matrixOfRows, randomMatrix, rowOf } from "../support/matrix.ts";
import { opTest } from "../support/operations.ts";
import type { Random } from "../support/random.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";

interface Piece {
  readonly x: Matrix;
  readonly width: number;
  readonly first: number;
  readonly step: number;
  readonly scale: number;
}

interface GatherCase {
  readonly pieces: readonly Piece[];
  readonly nGroups: number;
}

function gatherCase(random: Random, rows: number, nPieces: number, nGroups: number): GatherCase {
  const pieces = Array.from({ length: nPieces }, () => {
    const width = random.int(1, 70);
    const first = random.pick([0, 0, 1, 5]), step = random.pick([0, 1, 2, 40]);
    const cols = first + (nGroups - 1) * step + width + random.int(0, 3);
    const scale = random.pick([1, 1, -0.5, 3]);
    return { x: randomMatrix(random, rows, cols), width, first, step, scale };
  });
  return { pieces, nGroups };
}

const colsOf = ({ pieces, nGroups }: GatherCase) =>
  nGroups * pieces.reduce((total, { width }) => total + width, 0);

opTest<GatherCase>("gather_columns", {
  cases: (random) =>
    [[1, 1, 1], [3, 1, 4], [2, 2, 1], [70, 2, 16], [5, 3, 1], [9, 3, 33]]
      .map(([rows = 0, nPieces = 0, nGroups = 0]) => [
        `${nPieces} pieces in ${nGroups} groups of ${rows} rows`,
        gatherCase(random, rows, nPieces, nGroups),
      ]),
  run: (device, inputs) =>
    runStep(device, tokenInputs(inputs.pieces[0]!.x.rows), (graph) => ({
      value: graph.recorder.gatherColumns(
        inputs.pieces.map(({ x, width, first, step, scale }) => ({
          value: graph.input(x),
          width,
          // Numbers that equal the defaults are left out.
          ...(first === 0 ? {} : { first }),
          ...(step === 0 ? {} : { step }),
          ...(scale === 1 ? {} : { scale }),
        })),
        inputs.nGroups,
      ),
      cols: colsOf(inputs),
    })),
  plain: (inputs) =>
    matrixOfRows(
      inputs.pieces[0]!.x.rows,
      colsOf(inputs),
      (row) =>
        Array.from({ length: inputs.nGroups }, (_, group) =>
          inputs.pieces.flatMap(({ x, width, first, step, scale }) => {
            const begin = first + group * step;
            return Array.from(rowOf(x, row).subarray(begin, begin + width), (value) =>
              scale * value);
          })).flat(),
    ),
  tolerance: { absolute: 0, relative: 0 },
});

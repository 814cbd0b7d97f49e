/** Products with weights of every type and with all epilogues. */
import type { Activation } from "../../src/backend.ts";
import { TENSOR_TYPES, type TensorType } from "../../src/formats/tensor_info.ts";
import {
  HALF_PRODUCTS,
  type Matrix,
  matrixOfRows,
  randomByteMatrix,
  randomMatrix,
  rowOf,
  type Tolerance,
} from "../support/matrix.ts";
import { opTest } from "../support/operations.ts";
import type { Random } from "../support/random.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";
import { computableTypes, randomWeight, type TestWeight } from "../support/weights.ts";
import { activate, activations } from "./plain_activations.ts";
import { products } from "./plain_matmul.ts";

interface MatmulCase {
  readonly x: Matrix;
  readonly weight: TestWeight;
  readonly bias?: TestWeight | undefined;
  readonly alpha?: number;
  readonly activation?: Activation;
  readonly residual?: Matrix | undefined;
}

/**
 * A product of `tokens` rows whose results are about 1 for any number of columns, with
 * activations that signed bytes can express (see `quantized_matmul_test.ts` for others).
 */
function product(
  random: Random,
  type: TensorType,
  [tokens, rows, cols]: readonly [tokens: number, rows: number, cols: number],
): MatmulCase {
  return {
    x: randomByteMatrix(random, tokens, cols, 1 / Math.sqrt(cols)),
    weight: randomWeight(random, type, rows, cols),
  };
}

function label({ x, weight, bias, alpha, activation, residual }: MatmulCase): string {
  return [
    `${x.rows} tokens, ${weight.type} [${weight.rows}, ${weight.cols}]`,
    ...(bias ? ["bias"] : []),
    ...(alpha === undefined ? [] : [`alpha ${alpha}`]),
    ...(activation ? [activation] : []),
    ...(residual ? ["residual"] : []),
  ].join(", ");
}

function scaled({ absolute, relative }: Tolerance, factor: number): Tolerance {
  return { absolute: absolute * factor, relative: relative * factor };
}

/** @param factor allowed error, relative to that of a product alone */
function matmulTest(
  name: string,
  cases: (random: Random) => MatmulCase[],
  factor: number = 1,
): void {
  opTest<MatmulCase>(name, {
    cases: (random) => cases(random).map((inputs) => [label(inputs), inputs]),
    run: (device, { x, weight, bias, alpha, activation, residual }) =>
      runStep(device, tokenInputs(x.rows), (graph) => ({
        value: graph.recorder.matmul(graph.input(x), graph.weight(weight), {
          bias: graph.optionalWeight(bias),
          alpha,
          activation,
          residual: residual && graph.input(residual),
        }),
        cols: weight.rows,
      })),
    plain({ x, weight, bias, alpha = 1, activation = "identity", residual }, read) {
      const values = read(weight);
      const shift = bias && read(bias).data;
      return matrixOfRows(
        x.rows,
        weight.rows,
        (token) =>
          products(rowOf(x, token), values).map((sum, row) =>
            (residual ? rowOf(residual, token)[row]! : 0) +
            Math.fround(alpha) * activate(activation, sum + (shift?.[row] ?? 0))
          ),
      );
    },
    // Terms are about 1, and a product may be the small difference of two of them.
    tolerance: scaled({ absolute: 4e-6, relative: 4e-6 }, factor),
    gpuTolerance: scaled(HALF_PRODUCTS, factor),
  });
}

// One token, few, and more than any kernel takes at once; rows and columns around the tile sizes of
// kernels.
const shapes = [
  [1, 1, 1],
  [1, 3, 5],
  [2, 33, 31],
  [3, 4, 64],
  [4, 31, 17],
  [5, 100, 96],
  [6, 65, 33],
  [7, 32, 128],
  [16, 37, 257],
  [33, 64, 40],
  [70, 129, 50],
  [300, 9, 40],
  [1, 5, 1024],
  [2, 40, 1030],
  [13, 6, 2100],
  [1, 7, 4099],
] as const;

matmulTest("matmul", (random) => shapes.map((shape) => product(random, "F32", shape)));

matmulTest("matmul with weights of every type", (random) =>
  computableTypes.flatMap((type) => {
    const { blockElements } = TENSOR_TYPES[type];
    const block = Math.max(32, blockElements);
    // Rows of prompts that GPUs round are padded where columns may be any number.
    const odd = blockElements === 1 ? 5 : 0;
    // One chunk of columns, a partial one, and several.
    return [[1, 35, 3 * block], [1, 9, 1024 + block], [4, 33, block], [7, 6, 1024 + block], [
      70,
      5,
      2 * block + odd,
    ]]
      .map(([tokens = 0, rows = 0, cols = 0]) => product(random, type, [tokens, rows, cols]));
  }));

matmulTest(
  "matmul with epilogues",
  (random) =>
    [1, 5, 70, 260].flatMap((tokens) =>
      activations.flatMap((activation) =>
        [true, false].flatMap((biased) =>
          [true, false].map((residual) => {
            const rows = random.pick([1, 19, 32, 48, 77]);
            return {
              ...product(random, random.pick(["F32", "BF16", "Q8_0", "Q4_K"]), [tokens, rows, 256]),
              bias: biased
                ? randomWeight(random, random.pick(["F32", "F16", "BF16"]), 1, rows)
                : undefined,
              alpha: random.pick([1, 0.25, -2.5]),
              activation,
              residual: residual ? randomMatrix(random, tokens, rows) : undefined,
            };
          })
        )
      )
    ),
  // alpha multiplies the error of a sum by 2.5, and squaring a sum of three deviations by 2 * 3
  // more, for which half of the tolerance of a sum suffices.
  8,
);

// 2^-127 and 2^-126 times levels of 2 and more: the scales are subnormal or almost, the weights are
// not. GPUs may take subnormal numbers for 0.
matmulTest(
  "matmul with the smallest scales of MXFP4",
  (random) =>
    ([[1, 9, 64], [3, 33, 32]] as const).map((shape) => {
      const { x, weight } = product(random, "MXFP4", shape);
      const bytes = weight.bytes.map((byte, i) => i % 17 === 0 ? byte & 1 : byte | 0x44);
      return {
        x: { ...x, data: x.data.map((value) => value * 2 ** 100) },
        weight: { ...weight, bytes },
        alpha: 2 ** 24,
      };
    }),
);

/** Mixture of experts: routing, products with the chosen experts and their weighted sum. */
import type { Backend, MoeRouteOptions } from "../../src/backend.ts";
import type { TensorType } from "../../src/formats/tensor_info.ts";
import { deviceTest } from "../support/devices.ts";
import {
  assertSameBits,
  HALF_PRODUCTS,
  type Matrix,
  matrixOf,
  matrixOfRows,
  randomByteMatrix,
  randomMatrix,
  rowOf,
} from "../support/matrix.ts";
import { opTest } from "../support/operations.ts";
import type { Random } from "../support/random.ts";
import { runStep, tokenInputs } from "../support/step_graph.ts";
import { f32Vector, f32Weight, randomWeight, type TestWeight } from "../support/weights.ts";
import { products } from "./plain_matmul.ts";

/** A chosen expert. */
interface Choice {
  readonly expert: number;
  readonly weight: number;
}

type CommonOptions = Omit<MoeRouteOptions, "bias" | "expertScales">;

/** The options of a routing, with weights not yet on a device. */
interface RouteOptions extends CommonOptions {
  readonly bias?: Matrix | undefined;
  readonly expertScales?: Matrix | undefined;
}

/** The experts of the largest scores first, ties to the lower one. */
function route(logits: ArrayLike<number>, options: RouteOptions): Choice[] {
  const values = Array.from(logits);
  const scores = options.scores === "sigmoid"
    ? values.map((logit) => 1 / (1 + Math.exp(-logit)))
    : options.scores === "sparsemixer"
    ? sparseScores(values, options.topK, options.threshold!)
    : softmax(values);
  const bias = options.bias?.data;
  // Equal logits must give equal scores, although their exponentials may round differently.
  const worth = bias === undefined ? values : scores.map((score, expert) => score + bias[expert]!);
  const chosen = expertsOfBestGroups(worth, options)
    .sort((a, b) => worth[b]! - worth[a]! || a - b)
    .slice(0, options.topK);
  const total = options.normalize ? sum(chosen.map((expert) => scores[expert]!)) : 1;
  const scale = Math.fround(options.scale ?? 1);
  return chosen.map((expert) => {
    const factor = options.expertScales?.data[expert] ?? 1;
    return { expert, weight: scores[expert]! / total * scale * factor };
  });
}

/** The scores of sparsemixer, as Phi-MoE's published code computes them: masks, then a softmax. */
function sparseScores(logits: readonly number[], topK: number, threshold: number): number[] {
  const scores = new Array<number>(logits.length).fill(0);
  let rest = logits;
  for (let k = 0; k < topK; k++) {
    const most = Math.max(...rest), best = rest.indexOf(most);
    const masked = rest.map((logit, expert) => {
      const factor = Math.max(Math.abs(logits[expert]!), most);
      return (most - logits[expert]!) / factor > Math.fround(threshold) ? -Infinity : logit;
    });
    scores[best] = softmax(masked)[best]!;
    rest = rest.with(best, -Infinity);
  }
  return scores;
}

function expertsOfBestGroups(worth: readonly number[], options: RouteOptions): number[] {
  const { nGroups = 1, topGroups = nGroups, bias } = options;
  const size = worth.length / nGroups;
  const ofGroup = Array.from({ length: nGroups }, (_, group) => {
    const members = worth.slice(group * size, (group + 1) * size).sort((a, b) => b - a);
    return bias === undefined ? members[0]! : members[0]! + (members[1] ?? 0);
  });
  const best = ofGroup.map((_, group) => group)
    .sort((a, b) => ofGroup[b]! - ofGroup[a]! || a - b)
    .slice(0, topGroups);
  return worth.map((_, expert) => expert)
    .filter((expert) => best.includes(Math.floor(expert / size)));
}

function softmax(logits: readonly number[]): number[] {
  const largest = Math.max(...logits);
  const exponentials = logits.map((logit) => Math.exp(logit - largest));
  const total = sum(exponentials);
  return exponentials.map((value) => value / total);
}

function sum(items: readonly number[]): number {
  return items.reduce((total, item) => total + item, 0);
}

interface RouteCase {
  readonly logits: Matrix;
  readonly options: RouteOptions;
}

/** Scores of either kind, with a bias on the choice, from some groups of experts. */
function biasedRoute(
  random: Random,
  [tokens, experts, topK, nGroups, topGroups]: readonly [number, number, number, number, number],
): RouteCase {
  return {
    logits: randomMatrix(random, tokens, experts, 2),
    options: {
      ...routeOptions(random, topK),
      scores: random.pick(["softmax", "sigmoid"]),
      bias: random.chance(0.7) ? randomMatrix(random, 1, experts) : undefined,
      expertScales: random.chance(0.5) ? randomMatrix(random, 1, experts) : undefined,
      nGroups,
      topGroups,
    },
  };
}

function routeOptions(random: Random, topK: number): CommonOptions {
  return { topK, normalize: random.chance(0.5), scale: random.pick([undefined, 2.5]) };
}

/**
 * Expert numbers in the upper half of the rows, their weights in the lower: they differ in size.
 */
function separate(choices: Matrix): Matrix {
  const { rows, cols } = choices;
  return matrixOfRows(2 * rows, cols / 2, (row) => {
    const choice = rowOf(choices, row % rows);
    return row < rows ? choice.subarray(0, cols / 2) : choice.subarray(cols / 2);
  });
}

const routing = {
  run: async (device: Backend, { logits, options }: RouteCase) =>
    separate(
      await runStep(device, tokenInputs(logits.rows), (graph) => {
        const weightOf = (values: Matrix | undefined) =>
          values && graph.weight(f32Vector(values.data));
        return {
          value: graph.recorder.moeRoute(graph.input(logits), {
            ...options,
            bias: weightOf(options.bias),
            expertScales: weightOf(options.expertScales),
          }),
          cols: 2 * options.topK,
        };
      }),
    ),
  plain: ({ logits, options }: RouteCase) =>
    separate(matrixOfRows(logits.rows, 2 * options.topK, (row) => {
      const choices = route(rowOf(logits, row), options);
      return [...choices.map(({ expert }) => expert), ...choices.map(({ weight }) => weight)];
    })),
  tolerance: { absolute: 1e-7, relative: 2e-6 },
};

opTest<RouteCase>("moe_route", {
  ...routing,
  cases: (random) =>
    [[1, 1, 1], [3, 4, 2], [70, 8, 2], [9, 60, 4], [5, 64, 8], [2, 128, 8], [4, 512, 10], [
      1,
      2000,
      64,
    ]]
      .flatMap(([tokens = 0, experts = 0, topK = 0]) => [
        [`${topK} of ${experts}`, {
          logits: randomMatrix(random, tokens, experts, random.pick([0.1, 3])),
          options: routeOptions(random, topK),
        }],
        // Most scores are 0, and exponentials of the logits themselves would not be finite.
        [`${topK} of ${experts} far apart`, {
          logits: randomMatrix(random, tokens, experts, 1000),
          options: routeOptions(random, topK),
        }],
        [`${topK} of ${experts} with ties`, {
          logits: matrixOf(tokens, experts, () => random.int(-1, 1)),
          options: routeOptions(random, topK),
        }],
      ]),
});

const BIASED_SHAPES = [
  [3, 160, 6, 1, 1],
  [70, 64, 4, 8, 3],
  [2, 64, 2, 32, 1],
  [5, 30, 9, 3, 2],
  [4, 8, 1, 8, 3],
] as const;

opTest<RouteCase>("moe_route by other scores, of groups", {
  ...routing,
  cases: (random) =>
    BIASED_SHAPES.flatMap((shape) =>
      [0, 1, 2].map((i) => {
        const { logits, options } = biasedRoute(random, shape);
        // Also groups of one expert, which has no second to add.
        const bias = i === 0 ? randomMatrix(random, 1, logits.cols) : options.bias;
        return [`${shape}, ${options.scores}`, { logits, options: { ...options, bias } }] as const;
      })
    ),
});

opTest<RouteCase>("moe_route by sparsemixer", {
  ...routing,
  cases: (random) =>
    [[1, 1, 1], [70, 16, 2], [5, 40, 2], [3, 8, 8]].flatMap(([tokens = 0, experts = 0, topK = 0]) =>
      [0.02, 0.5].map((threshold) => {
        const options = {
          ...routeOptions(random, topK),
          scores: "sparsemixer",
          threshold,
        } as const;
        const logits = randomMatrix(random, tokens, experts, random.pick([0.1, 3, 1000]));
        return [`${topK} of ${experts} within ${threshold}`, { logits, options }] as const;
      })
    ),
});

opTest<RouteCase>("moe_route of groups with equal experts", {
  ...routing,
  cases: (random) =>
    BIASED_SHAPES.map((shape) => {
      const { logits, options } = biasedRoute(random, shape);
      const equal = matrixOf(logits.rows, logits.cols, () => random.int(0, 1));
      return [`${shape}`, { logits: equal, options: { ...options, bias: undefined } }] as const;
    }),
});

interface ProductCase {
  readonly x: Matrix;
  readonly logits: Matrix;
  readonly options: CommonOptions;
  readonly weight: TestWeight;
  readonly bias: Matrix | undefined;
}

const PRODUCT_TYPES = ["F32", "BF16", "Q8_0", "Q4_K", "Q6_K", "IQ2_S", "MXFP4"] as const;

function productCase(
  random: Random,
  type: TensorType,
  tokens: number,
  experts: number,
  topK: number,
): ProductCase {
  const rows = random.pick([1, 7, 32, 45]), cols = random.pick([256, 512, 1280]);
  const width = random.chance(0.5) ? cols : topK * cols;
  return {
    x: randomByteMatrix(random, tokens, width, 1 / Math.sqrt(cols)),
    logits: randomMatrix(random, tokens, experts),
    options: routeOptions(random, topK),
    weight: randomWeight(random, type, experts * rows, cols),
    bias: random.chance(0.5) ? randomMatrix(random, experts, rows) : undefined,
  };
}

opTest<ProductCase>("moe_matmul", {
  cases: (random) =>
    [[1, 1, 1], [1, 8, 2], [1, 4, 4], [3, 5, 2], [6, 16, 3], [70, 4, 2], [33, 32, 4]]
      .flatMap(([tokens = 0, experts = 0, topK = 0], shape) =>
        [0, 1, 2].map((i) => {
          // Between them, the two prompts at the end have all types but F32.
          const type = PRODUCT_TYPES[(3 * shape + i) % PRODUCT_TYPES.length]!;
          const inputs = productCase(random, type, tokens, experts, topK);
          const { x, weight, bias } = inputs;
          return [
            `${tokens} x ${x.cols}, ${topK} of ${experts}, ${weight.type} [${weight.rows}, ` +
            `${weight.cols}]${bias ? ", bias" : ""}`,
            inputs,
          ] as const;
        })
      ),
  run: (device, { x, logits, options, weight, bias }) =>
    runStep(device, tokenInputs(x.rows), (graph) => ({
      value: graph.recorder.moeMatmul(
        graph.input(x),
        graph.recorder.moeRoute(graph.input(logits), options),
        graph.weight(weight),
        logits.cols,
        graph.optionalWeight(bias && f32Weight(bias)),
      ),
      cols: options.topK * weight.rows / logits.cols,
    })),
  plain({ x, logits, options, weight, bias }, read) {
    const values = read(weight);
    const rows = weight.rows / logits.cols;
    return matrixOfRows(
      x.rows,
      options.topK * rows,
      (token) =>
        route(rowOf(logits, token), options).flatMap(({ expert }, slot) => {
          const row = rowOf(x, token);
          const input = x.cols === weight.cols
            ? row
            : row.subarray(slot * weight.cols, (slot + 1) * weight.cols);
          const block = {
            rows,
            cols: weight.cols,
            data: values.data.subarray(
              expert * rows * weight.cols,
              (expert + 1) * rows * weight.cols,
            ),
          };
          return Array.from(
            products(input, block),
            (sum, i) => sum + (bias ? rowOf(bias, expert)[i]! : 0),
          );
        }),
    );
  },
  // As of matmul: rows of one product are what terms of about 1 leave.
  tolerance: { absolute: 4e-6, relative: 4e-6 },
  gpuTolerance: HALF_PRODUCTS,
});

interface CombineCase {
  readonly x: Matrix;
  readonly logits: Matrix;
  readonly options: CommonOptions;
  readonly residual: Matrix | undefined;
}

opTest<CombineCase>("moe_combine", {
  cases: (random) =>
    [[1, 1, 1, 1], [1, 2, 8, 64], [5, 3, 5, 33], [70, 4, 16, 20], [2, 8, 64, 2050]]
      .flatMap(([tokens = 0, topK = 0, experts = 0, cols = 0]) =>
        [true, false].map((residual) =>
          [
            `${tokens} x ${cols}, ${topK} of ${experts}${residual ? ", residual" : ""}`,
            {
              x: randomMatrix(random, tokens, topK * cols),
              logits: randomMatrix(random, tokens, experts),
              options: routeOptions(random, topK),
              residual: residual ? randomMatrix(random, tokens, cols) : undefined,
            },
          ] as const
        )
      ),
  run: (device, { x, logits, options, residual }) =>
    runStep(device, tokenInputs(x.rows), (graph) => ({
      value: graph.recorder.moeCombine(
        graph.input(x),
        graph.recorder.moeRoute(graph.input(logits), options),
        residual && graph.input(residual),
      ),
      cols: x.cols / options.topK,
    })),
  plain({ x, logits, options, residual }) {
    const cols = x.cols / options.topK;
    return matrixOfRows(x.rows, cols, (token) => {
      const choices = route(rowOf(logits, token), options);
      return Float64Array.from({ length: cols }, (_, col) =>
        choices.reduce(
          (sum, { weight }, slot) => sum + weight * rowOf(x, token)[slot * cols + col]!,
          residual ? rowOf(residual, token)[col]! : 0,
        ));
    });
  },
  tolerance: { absolute: 1e-6, relative: 2e-6 },
});

deviceTest(
  "products of two routes of a program use the experts of each, and a dense one all rows",
  async (device, random) => {
    const tokens = 9, experts = 8, topK = 2, rows = 32;
    const x = randomByteMatrix(random, tokens, 256, 1 / 16);
    const weight = randomWeight(random, "Q8_0", experts * rows, x.cols);
    const routes = [randomMatrix(random, tokens, experts), randomMatrix(random, tokens, experts)];
    const product = (...operands: (Matrix | "dense")[]) =>
      runStep(device, tokenInputs(tokens), (graph) => {
        const { recorder } = graph;
        const input = graph.input(x), all = graph.weight(weight);
        const values = operands.map((own) => {
          if (own === "dense") return { value: recorder.matmul(input, all), cols: weight.rows };
          const route = recorder.moeRoute(graph.input(own), { topK, normalize: true });
          return { value: recorder.moeMatmul(input, route, all, experts), cols: topK * rows };
        });
        for (const { value } of values) recorder.keep(value);
        return values.at(-1)!;
      });
    for (const last of [...routes, "dense"] as const) {
      const alone = await product(last);
      for (const other of [...routes, "dense"] as const) {
        if (other !== last) assertSameBits(await product(other, last), alone, "the last product");
      }
    }
  },
);

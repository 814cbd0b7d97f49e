/** Contradictory recordings. */
import type {
  Backend,
  KvCache,
  KvShape,
  Recorder,
  StepLimits,
  Value,
  Weight,
} from "../../src/backend.ts";
import { matrixOf } from "../support/matrix.ts";
import { StepGraph } from "../support/step_graph.ts";
import { f32Vector, f32Weight } from "../support/weights.ts";

export const limits: StepLimits = { maxTokens: 4, maxOutputs: 2, maxSequences: 2, maxPages: 3 };

const kvShape: KvShape = {
  type: "F32",
  nPages: 4,
  pageTokens: 16,
  nKvHeads: 2,
  kHeadDim: 4,
  vHeadDim: 4,
};

/** Caches of rows of 8. */
const rowShape: KvShape = { ...kvShape, valuesInKeys: true };

/** The parts of the recordings below. */
export interface Parts {
  readonly recorder: Recorder;
  /** `[4 tokens, 8]` */
  readonly x: Value;
  /** `[2 outputs, 8]` */
  readonly outputs: Value;
  /** `[4 tokens, cols]` */
  readonly tokens: (cols: number) => Value;
  readonly matrix: (rows: number, cols: number) => Weight;
  readonly vector: (cols: number) => Weight;
  /** Column numbers, `cols` a row. */
  readonly order: (cols: number, columns: readonly number[]) => Weight;
  readonly kv: KvCache;
  readonly device: Backend;
}

/** Begins a recording with some values. */
export function begin(device: Backend): Parts {
  const recorder = device.record(limits);
  const graph = new StepGraph(device, recorder);
  const ones = (rows: number, cols: number) => matrixOf(rows, cols, () => 1);
  const x = graph.input(ones(4, 8));
  return {
    recorder,
    x,
    outputs: recorder.gatherOutputs(x),
    tokens: (cols) => graph.input(ones(4, cols)),
    matrix: (rows, cols) => graph.weight(f32Weight(ones(rows, cols))),
    order: (cols, columns) =>
      graph.weight(
        f32Weight(matrixOf(columns.length / cols, cols, (row, col) => columns[row * cols + col]!)),
      ),
    vector: (cols) => graph.weight(f32Vector(new Float32Array(cols))),
    kv: graph.kv(kvShape),
    device,
  };
}

function latentKv({ device }: Parts): KvCache {
  return device.createKv({ ...kvShape, vHeadDim: 2, valuesInKeys: true });
}

const unknown = 99 as Value;
const none = 0 as Value;
export const norm = { eps: 1e-5 };
const append = { nHeads: 4, eps: 1e-5, ropeLayout: "half" } as const;
export const attention = { nHeads: 4, scale: 0.5 };
const route = { topK: 2, normalize: true };
// 4 query heads, 2 key heads and 2 value heads of 4.
const qkvCols = 32;

/** The mistake of a recording, and a part of the error. */
export type Refusal = readonly [message: string, record: (parts: Parts) => unknown];

interface LoraMistake {
  readonly x?: Value;
  readonly y?: Value;
  readonly aCols?: number;
  readonly bRows?: number;
  readonly bCols?: number;
  readonly ranks?: readonly number[];
  readonly matrix?: Weight;
  readonly nAdapters?: number;
  readonly nBlocks?: number;
  readonly residual?: Value;
  readonly route?: Value;
}

/** Records two ranks of two adapters, with a mistake. */
function lora(mistake: LoraMistake): (parts: Parts) => unknown {
  return (p) => {
    const { x = p.x, y = p.x, aCols = 8, bRows = 2, bCols = 8, nAdapters = 2 } = mistake;
    const { ranks = [0, 0, 8, 1, 0, 8], nBlocks = 1, residual, route } = mistake;
    const { matrix = p.order(3, ranks) } = mistake;
    const [a, b] = [p.matrix(2, aCols), p.matrix(bRows, bCols)];
    const adapters = { a, b, ranks: matrix, targets: [], nAdapters, nBlocks };
    return p.recorder.lora(y, x, adapters, { residual, route });
  };
}

/** Contradictory recordings, by the operation that refuses them. */
export const refusals: Readonly<Record<string, readonly Refusal[]>> = {
  rms_norm: [
    [
      "x is 99, which is no value of this step",
      (p) => p.recorder.rmsNorm(unknown, p.vector(8), norm),
    ],
    ["x is 0, which is no value of this step", (p) => p.recorder.rmsNorm(none, p.vector(8), norm)],
    [
      "weight is [1, 7]; expected [1, 8], a divisor",
      (p) => p.recorder.rmsNorm(p.x, p.vector(7), norm),
    ],
    ["weight is [2, 8]; expected [1, 8]", (p) => p.recorder.rmsNorm(p.x, p.matrix(2, 8), norm)],
    [
      "residual has 7 columns; expected 8",
      (p) => p.recorder.rmsNorm(p.x, p.vector(8), { ...norm, residual: p.tokens(7) }),
    ],
    [
      "residual has 8 columns; expected 8 and the rows of the result",
      (p) => p.recorder.rmsNorm(p.x, p.vector(8), { ...norm, residual: p.outputs }),
    ],
    ["residual is 99", (p) => p.recorder.rmsNorm(p.x, p.vector(8), { ...norm, residual: unknown })],
  ],
  add_embedding: [
    ["x is 99", (p) => p.recorder.addEmbedding(unknown, p.matrix(3, 8))],
    ["x has 8 columns; expected the 7", (p) => p.recorder.addEmbedding(p.x, p.matrix(3, 7))],
    ["x has 8 columns; expected the 8", (p) => p.recorder.addEmbedding(p.outputs, p.matrix(3, 8))],
    ["period is 3; expected the", (p) => p.recorder.addEmbedding(p.x, p.matrix(2, 8), 3)],
  ],
  layer_norm: [
    ["x is 99", (p) => p.recorder.layerNorm(unknown, p.vector(8), undefined, 1e-5)],
    ["weight is [1, 9]", (p) => p.recorder.layerNorm(p.x, p.vector(9), undefined, 1e-5)],
    ["bias is [1, 9]", (p) => p.recorder.layerNorm(p.x, p.vector(8), p.vector(9), 1e-5)],
  ],
  matmul: [
    ["x is 99", (p) => p.recorder.matmul(unknown, p.matrix(3, 8))],
    ["x has 8 columns, the weight 7", (p) => p.recorder.matmul(p.x, p.matrix(3, 7))],
    [
      "bias is [1, 8]; expected [1, 3]",
      (p) => p.recorder.matmul(p.x, p.matrix(3, 8), { bias: p.vector(8) }),
    ],
    [
      "residual has 8 columns; expected 3",
      (p) => p.recorder.matmul(p.x, p.matrix(3, 8), { residual: p.x }),
    ],
    [
      "residual has 8 columns; expected 8 and the rows",
      (p) => p.recorder.matmul(p.x, p.matrix(8, 8), { residual: p.outputs }),
    ],
  ],
  head_matmul: [
    ["x is 99", (p) => p.recorder.headMatmul(unknown, p.matrix(6, 4), 2)],
    ["0 heads", (p) => p.recorder.headMatmul(p.x, p.matrix(6, 4), 0)],
    ["4097 heads", (p) => p.recorder.headMatmul(p.x, p.matrix(6, 4), 4097)],
    [
      "7 rows are not 2 heads of equal size",
      (p) => p.recorder.headMatmul(p.x, p.matrix(7, 4), 2),
    ],
    [
      "x has 8 columns; expected 2 heads of 3",
      (p) => p.recorder.headMatmul(p.x, p.matrix(6, 3), 2),
    ],
  ],
  lora: [
    ["x is 99", lora({ x: unknown })],
    ["y is 99", lora({ y: unknown })],
    ["x and y must have the same rows", (p) => lora({ x: p.outputs })(p)],
    ["x has 8 columns, a 7", lora({ aCols: 7 })],
    ["a has 2 ranks, b 3, ranks 2 for 1 blocks", lora({ bRows: 3 })],
    ["a has 2 ranks, b 2, ranks 1 for 1 blocks", lora({ ranks: [0, 0, 8] })],
    ["a has 2 ranks, b 6, ranks 2 for 2 blocks", lora({ bRows: 6, nBlocks: 2, aCols: 4 })],
    ["0 blocks; valid is 1 to 4096", lora({ nBlocks: 0 })],
    ["y has 8 columns for 3 blocks", lora({ nBlocks: 3 })],
    ["a rank ends at column 8 of 4", lora({ nBlocks: 2, aCols: 4 })],
    ["route is 99", lora({ route: unknown })],
    ["route is no moe_route value; expected 2", (p) => lora({ nBlocks: 2, route: p.x })(p)],
    [
      "route is over other experts or rows; expected 2",
      (p) => lora({ nBlocks: 2, route: p.recorder.moeRoute(p.x, route) })(p),
    ],
    [
      "route is over other experts or rows; expected 8",
      (p) => lora({ nBlocks: 8, route: p.recorder.moeRoute(p.outputs, route) })(p),
    ],
    [
      "ranks is [3, 2]; expected [ranks, 3]",
      (p) => lora({ matrix: p.order(2, [0, 0, 8, 0, 0, 8]) })(p),
    ],
    ["a rank is of adapter 2 of 2", lora({ ranks: [0, 0, 8, 2, 0, 8] })],
    ["a rank ends at column 9 of 8", lora({ ranks: [0, 0, 8, 1, 4, 5] })],
    ["a rank has 8 columns; b has 7", lora({ bCols: 7 })],
    ["ranks holds 0.5", lora({ ranks: [0, 0.5, 8, 1, 0, 8] })],
    ["ranks holds -1", lora({ ranks: [0, 0, 8, -1, 0, 8] })],
    ["residual has 7 columns", (p) => lora({ residual: p.tokens(7) })(p)],
    ...([[3, 2], [2, 3]] as const).map(([later, earlier]): Refusal => [
      `${later} adapters, after an operation with ${earlier}`,
      (p) => {
        lora({ nAdapters: earlier })(p);
        lora({ nAdapters: later })(p);
      },
    ]),
  ],
  "embedding with adapters of products": [
    ['an adapter changes the matrix "lm_head", which forge cannot adapt', (p) => {
      // Its products have corrections, but the rows of the embedding have none.
      const [a, b] = [p.matrix(2, 8), p.matrix(4, 2)];
      const ranks = p.order(3, [0, 0, 8, 1, 0, 8]);
      const adapters = { a, b, ranks, targets: ["lm_head"], nAdapters: 2 };
      p.recorder.embed(Object.create(p.matrix(4, 8), { adapters: { value: adapters } }));
    }],
  ],
  rope_table: [
    ["inv_freq is [2, 4]; expected [1, 4]", (p) => p.recorder.ropeTable(p.matrix(2, 4), 1)],
  ],
  rope_append: [
    ["qkv is 99", (p) => p.recorder.ropeAppend(unknown, p.kv, append)],
    [
      "qkv has 8 columns; expected 32 (16 + 8 + 8)",
      (p) => p.recorder.ropeAppend(p.x, p.kv, append),
    ],
    [
      "3 heads are no multiple of 2 kv heads",
      (p) => p.recorder.ropeAppend(p.tokens(qkvCols), p.kv, { ...append, nHeads: 3 }),
    ],
    [
      "0 heads are no multiple",
      (p) => p.recorder.ropeAppend(p.tokens(qkvCols), p.kv, { ...append, nHeads: 0 }),
    ],
    [
      "qkv has 32 columns",
      (p) => p.recorder.ropeAppend(p.recorder.gatherOutputs(p.tokens(qkvCols)), p.kv, append),
    ],
    [
      "q_norm is [1, 8]; expected [1, 4] or [1, 16]",
      (p) => p.recorder.ropeAppend(p.tokens(qkvCols), p.kv, { ...append, qNorm: p.vector(8) }),
    ],
    [
      "k_norm is [1, 16]; expected [1, 4] or [1, 8]",
      (p) => p.recorder.ropeAppend(p.tokens(qkvCols), p.kv, { ...append, kNorm: p.vector(16) }),
    ],
    [
      "rope is 99",
      (p) => p.recorder.ropeAppend(p.tokens(qkvCols), p.kv, { ...append, rope: unknown }),
    ],
    [
      "the rope table rotates 6 elements of heads of 4",
      (p) =>
        p.recorder.ropeAppend(p.tokens(qkvCols), p.kv, {
          ...append,
          rope: p.recorder.ropeTable(p.vector(3), 1),
        }),
    ],
    [
      "qkv has 32 columns; expected 24 (16 + 8 + 0)",
      (p) => p.recorder.ropeAppend(p.tokens(qkvCols), latentKv(p), append),
    ],
    [
      "the rope table rotates 4 elements of heads of 4, of which the first 2 are values",
      (p) =>
        p.recorder.ropeAppend(p.tokens(24), latentKv(p), {
          ...append,
          rope: p.recorder.ropeTable(p.vector(2), 1),
        }),
    ],
  ],
  attention: [
    ["q is 99", (p) => p.recorder.attention(unknown, p.kv, attention)],
    ["q has 8 columns; expected 4 heads of 4", (p) => p.recorder.attention(p.x, p.kv, attention)],
    [
      "5 heads are no multiple of 2",
      (p) => p.recorder.attention(p.tokens(20), p.kv, { ...attention, nHeads: 5 }),
    ],
    [
      "softcap is -1",
      (p) => p.recorder.attention(p.tokens(16), p.kv, { ...attention, softcap: -1 }),
    ],
    [
      "softcap is nan",
      (p) => p.recorder.attention(p.tokens(16), p.kv, { ...attention, softcap: NaN }),
    ],
    [
      "softcap is inf",
      (p) => p.recorder.attention(p.tokens(16), p.kv, { ...attention, softcap: Infinity }),
    ],
    [
      "sinks is [1, 3]; expected [1, 4]",
      (p) => p.recorder.attention(p.tokens(16), p.kv, { ...attention, sinks: p.vector(3) }),
    ],
    [
      "chunks need a window and causality",
      (p) => p.recorder.attention(p.tokens(16), p.kv, { ...attention, chunked: true }),
    ],
    [
      "chunks need a window and causality",
      (p) =>
        p.recorder.attention(p.tokens(16), p.kv, {
          ...attention,
          chunked: true,
          window: 4,
          causal: false,
        }),
    ],
    ["masked attention of 2 heads, after masked attention of 4", (p) => {
      p.recorder.attention(p.tokens(16), p.kv, { ...attention, masked: true });
      p.recorder.attention(p.tokens(8), p.kv, { ...attention, nHeads: 2, masked: true });
    }],
    ["this cache has pages of 32 tokens, an earlier one of 16", (p) => {
      p.recorder.attention(p.tokens(16), p.kv, attention);
      const other = p.device.createKv({ ...kvShape, pageTokens: 32 });
      p.recorder.attention(p.tokens(16), other, attention);
    }],
  ],
  glu: [
    ["x is 99", (p) => p.recorder.glu(unknown, 4, "silu")],
    ["8 columns, which are no groups of twice 3", (p) => p.recorder.glu(p.x, 3, "silu")],
    ["no groups of twice 0", (p) => p.recorder.glu(p.x, 0, "silu")],
    ["no groups of twice 8", (p) => p.recorder.glu(p.x, 8, "silu")],
    ["no groups of twice 2147483652", (p) => p.recorder.glu(p.x, 0x80000004, "silu")],
  ],
  moe_route: [
    ["logits is 99", (p) => p.recorder.moeRoute(unknown, route)],
    ["top_k is 0; valid is 1 to 8", (p) => p.recorder.moeRoute(p.x, { ...route, topK: 0 })],
    ["top_k is 9; valid is 1 to 8", (p) => p.recorder.moeRoute(p.x, { ...route, topK: 9 })],
    [
      "top_k is 65; valid is 1 to 64",
      (p) => p.recorder.moeRoute(p.tokens(100), { ...route, topK: 65 }),
    ],
    ["5000 experts; at most 4096", (p) => p.recorder.moeRoute(p.tokens(5000), route)],
    [
      "bias is [1, 7]; expected [1, 8]",
      (p) => p.recorder.moeRoute(p.x, { ...route, bias: p.vector(7) }),
    ],
    [
      "expert_scales is [1, 9]; expected [1, 8]",
      (p) => p.recorder.moeRoute(p.x, { ...route, expertScales: p.vector(9) }),
    ],
    [
      "3 groups of 8 experts; valid is a divisor of up to 32",
      (p) => p.recorder.moeRoute(p.x, { ...route, nGroups: 3 }),
    ],
    [
      "64 groups of 128 experts; valid is a divisor of up to 32",
      (p) => p.recorder.moeRoute(p.tokens(128), { ...route, nGroups: 64 }),
    ],
    [
      "2 experts of 1 of 8 groups of 1",
      (p) => p.recorder.moeRoute(p.x, { ...route, nGroups: 8, topGroups: 1 }),
    ],
    [
      "2 experts of 5 of 4 groups of 2",
      (p) => p.recorder.moeRoute(p.x, { ...route, nGroups: 4, topGroups: 5 }),
    ],
    [
      "sparsemixer has no bias and one group",
      (p) => p.recorder.moeRoute(p.x, { ...route, scores: "sparsemixer", nGroups: 2 }),
    ],
    [
      "sparsemixer has no bias and one group",
      (p) => p.recorder.moeRoute(p.x, { ...route, scores: "sparsemixer", bias: p.vector(8) }),
    ],
  ],
  gather_columns: [
    ["value is 99", (p) => p.recorder.gatherColumns([{ value: unknown, width: 1 }], 1)],
    ["0 pieces; valid is 1 to 3", (p) => p.recorder.gatherColumns([], 1)],
    [
      "4 pieces; valid is 1 to 3",
      (p) => p.recorder.gatherColumns(Array(4).fill({ value: p.x, width: 1 }), 1),
    ],
    ["0 groups", (p) => p.recorder.gatherColumns([{ value: p.x, width: 1 }], 0)],
    [
      "a result of 536870912 columns; valid is 1 to 268435456",
      (p) => p.recorder.gatherColumns([{ value: p.x, width: 2 }], 2 ** 28),
    ],
    [
      "268435457 groups; valid is 1 to 268435456",
      (p) => p.recorder.gatherColumns([{ value: p.x, width: 1 }], 2 ** 28 + 1),
    ],
    [
      "a piece ends at column 9 of a value with 8",
      (p) => p.recorder.gatherColumns([{ value: p.x, width: 4, first: 1, step: 2 }], 3),
    ],
    [
      "a piece ends at column 4 of a value with 8; it must have columns",
      (p) => p.recorder.gatherColumns([{ value: p.x, width: 0, first: 4 }], 1),
    ],
    [
      "a piece ends at column 8 of a value with 8; it must have columns, and the rows of the first",
      (p) =>
        p.recorder.gatherColumns([{ value: p.x, width: 8 }, { value: p.outputs, width: 8 }], 1),
    ],
    [
      "a scale is inf",
      (p) => p.recorder.gatherColumns([{ value: p.x, width: 8, scale: Infinity }], 1),
    ],
  ],
  permute_columns: [
    ["x is 99", (p) => p.recorder.permuteColumns(unknown, p.order(1, [0]))],
    [
      "the order names column 8 of 8",
      (p) => p.recorder.permuteColumns(p.x, p.order(8, [0, 1, 2, 3, 4, 5, 6, 8])),
    ],
    [
      "the order names column 0.5 of 8",
      (p) => p.recorder.permuteColumns(p.x, p.order(8, [0, 0.5, 2, 3, 4, 5, 6, 7])),
    ],
    [
      "the order names column -1 of 1",
      (p) => p.recorder.permuteColumns(p.x, p.order(1, [-1])),
    ],
    [
      "x has 8 columns; the order is of 2 for 1",
      (p) => p.recorder.permuteColumns(p.x, p.order(2, [1, 0])),
    ],
    [
      "x has 8 columns; the order is of 8 for 2",
      (p) => p.recorder.permuteColumns(p.x, p.order(8, Array(16).fill(0))),
    ],
    [
      "no moe_route value",
      (p) => p.recorder.permuteColumns(p.x, p.order(8, Array(8).fill(0)), p.x),
    ],
    ["over another number of experts", (p) => {
      const chosen = p.recorder.moeRoute(p.x, route);
      return p.recorder.permuteColumns(p.x, p.order(8, Array(16).fill(0)), chosen);
    }],
    ["x has 8 columns; expected 8 or 16, and the rows of route", (p) => {
      const chosen = p.recorder.moeRoute(p.outputs, route);
      return p.recorder.permuteColumns(p.x, p.order(8, Array(64).fill(0)), chosen);
    }],
    ["x has 8 columns; expected 2 or", (p) => {
      const chosen = p.recorder.moeRoute(p.x, route);
      return p.recorder.permuteColumns(p.x, p.order(2, Array(16).fill(0)), chosen);
    }],
  ],
  moe_matmul: [
    [
      "x is 99",
      (p) => p.recorder.moeMatmul(unknown, p.recorder.moeRoute(p.x, route), p.matrix(16, 8), 8),
    ],
    ["route is 99", (p) => p.recorder.moeMatmul(p.x, unknown, p.matrix(16, 8), 8)],
    ["no moe_route value", (p) => p.recorder.moeMatmul(p.x, p.x, p.matrix(16, 8), 8)],
    [
      "another number of experts",
      (p) => p.recorder.moeMatmul(p.x, p.recorder.moeRoute(p.x, route), p.matrix(16, 8), 4),
    ],
    [
      "expected 0 experts",
      (p) => p.recorder.moeMatmul(p.x, p.recorder.moeRoute(p.x, route), p.matrix(16, 8), 0),
    ],
    [
      "17 rows are not 8 experts of equal size",
      (p) => p.recorder.moeMatmul(p.x, p.recorder.moeRoute(p.x, route), p.matrix(17, 8), 8),
    ],
    [
      "x has 8 columns; expected 5 or 10",
      (p) => p.recorder.moeMatmul(p.x, p.recorder.moeRoute(p.x, route), p.matrix(16, 5), 8),
    ],
    ["bias is [8, 3]; expected [8, 2]", (p) =>
      p.recorder.moeMatmul(
        p.x,
        p.recorder.moeRoute(p.x, route),
        p.matrix(16, 8),
        8,
        p.matrix(8, 3),
      )],
    [
      "x has 8 columns",
      (p) => p.recorder.moeMatmul(p.outputs, p.recorder.moeRoute(p.x, route), p.matrix(16, 8), 8),
    ],
  ],
  moe_combine: [
    ["x is 99", (p) => p.recorder.moeCombine(unknown, p.recorder.moeRoute(p.x, route))],
    ["no moe_route value", (p) => p.recorder.moeCombine(p.x, p.x)],
    [
      "x has 7 columns for 2 experts",
      (p) => p.recorder.moeCombine(p.tokens(7), p.recorder.moeRoute(p.x, route)),
    ],
    [
      "residual has 8 columns; expected 4",
      (p) => p.recorder.moeCombine(p.x, p.recorder.moeRoute(p.x, route), p.x),
    ],
  ],
  previous_rows: [
    ["x is 99", (p) => p.recorder.previousRows(unknown, p.device.createKv(rowShape))],
    ["the cache has values apart from its keys", (p) => p.recorder.previousRows(p.x, p.kv)],
    [
      "x has 8 columns; expected 12",
      (p) => p.recorder.previousRows(p.x, p.device.createKv({ ...rowShape, kHeadDim: 6 })),
    ],
    [
      "x has 8 columns; expected 8, for each token",
      (p) => p.recorder.previousRows(p.outputs, p.device.createKv(rowShape)),
    ],
    [
      "the cache is quantised",
      (p) => p.recorder.previousRows(p.x, p.device.createKv({ ...rowShape, type: "Q8_0" })),
    ],
  ],
  gather_outputs: [
    ["x is 99", (p) => p.recorder.gatherOutputs(unknown)],
    ["x has outputs for rows already", (p) => p.recorder.gatherOutputs(p.outputs)],
  ],
  softcap: [
    ["x is 99", (p) => p.recorder.softcap(unknown, 1)],
    ["cap is 0", (p) => p.recorder.softcap(p.x, 0)],
    ["cap is -2", (p) => p.recorder.softcap(p.x, -2)],
    ["cap is nan", (p) => p.recorder.softcap(p.x, NaN)],
    ["cap is inf", (p) => p.recorder.softcap(p.x, Infinity)],
  ],
  clamp: [
    ["x is 99", (p) => p.recorder.clamp(unknown, 1)],
    ["limit is 0", (p) => p.recorder.clamp(p.x, 0)],
    ["limit is -2", (p) => p.recorder.clamp(p.x, -2)],
    ["limit is nan", (p) => p.recorder.clamp(p.x, NaN)],
    ["limit is inf", (p) => p.recorder.clamp(p.x, Infinity)],
  ],
  sample: [
    ["logits is 99", (p) => p.recorder.sample(unknown, 0)],
    ["logits must have outputs for rows", (p) => p.recorder.sample(p.x, 0)],
    ["max_top is 9 of 8 logits", (p) => p.recorder.sample(p.outputs, 9)],
    ["nothing can follow the sample operation", (p) => {
      p.recorder.sample(p.outputs, 0);
      p.recorder.softcap(p.x, 1);
    }],
    ["nothing can follow the sample operation", (p) => {
      p.recorder.sample(p.outputs, 0);
      p.recorder.sample(p.outputs, 0);
    }],
  ],
  keep: [
    ["value is 99", (p) => p.recorder.keep(unknown)],
    ["value is 0", (p) => p.recorder.keep(none)],
  ],
};

/** A size with the least and the largest valid one; those next to them are refused. */
export interface Limit {
  readonly what: string;
  readonly least: number;
  readonly most: number;
  /** Calls the interface with a size. */
  readonly use: (parts: Parts, size: number) => unknown;
}

const limitOf = (what: string, least: number, most: number, use: Limit["use"]): Limit => {
  return { what, least, most, use };
};

/** Creates a small KV cache but for one size. */
const kvOf = (change: (size: number) => Partial<KvShape>): Limit["use"] => (p, size) =>
  p.device.createKv({ ...kvShape, nPages: 1, pageTokens: 1, ...change(size) });

const recordOf = (change: (size: number) => Partial<StepLimits>): Limit["use"] => (p, size) =>
  p.device.record({ ...limits, ...change(size) });

const routeOf =
  (cols: (size: number) => number, change: (size: number) => object) => (p: Parts, size: number) =>
    p.recorder.moeRoute(p.tokens(cols(size)), { topK: 1, normalize: true, ...change(size) });

/** Limits of sizes that all devices share. */
export const sizeLimits: readonly Limit[] = [
  limitOf("tokens of a step", 2, 2 ** 20, recordOf((maxTokens) => ({ maxTokens }))),
  limitOf("outputs of a step", 1, 4, recordOf((maxOutputs) => ({ maxOutputs }))),
  limitOf("sequences of a step", 1, 4, recordOf((maxSequences) => ({ maxSequences }))),
  limitOf("pages of a sequence", 1, 2 ** 24, recordOf((maxPages) => ({ maxPages }))),
  limitOf("tokens of a page", 1, 4096, kvOf((pageTokens) => ({ pageTokens }))),
  limitOf("heads of keys", 1, 4096, kvOf((nKvHeads) => ({ nKvHeads }))),
  limitOf("a head of keys", 1, 4096, kvOf((kHeadDim) => ({ kHeadDim }))),
  limitOf("a head of values", 1, 4096, kvOf((vHeadDim) => ({ vHeadDim }))),
  limitOf("values in keys", 1, 4, kvOf((vHeadDim) => ({ vHeadDim, valuesInKeys: true }))),
  limitOf("slots", 1, 2 ** 16, (p, nSlots) => p.device.createState({ nSlots, rows: 1, cols: 1 })),
  limitOf("heads of a product", 1, 4096, (p, n) => {
    return p.recorder.headMatmul(p.tokens(n || 1), p.matrix(n || 1, 1), n);
  }),
  limitOf("chosen experts", 1, 64, routeOf(() => 70, (topK) => ({ topK }))),
  limitOf("all experts chosen", 1, 8, routeOf(() => 8, (topK) => ({ topK }))),
  limitOf("experts", 1, 4096, routeOf((n) => n, () => ({}))),
  limitOf("groups of experts", 1, 32, routeOf((n) => 2 * n || 2, (nGroups) => ({ nGroups }))),
  limitOf("best groups", 1, 4, routeOf(() => 8, (topGroups) => ({ nGroups: 4, topGroups }))),
  limitOf("experts of best groups", 1, 4, (p, topK) => {
    const some = { nGroups: 4, topGroups: 2, normalize: true };
    return p.recorder.moeRoute(p.x, { ...some, topK });
  }),
  limitOf("rotated numbers of a head", 1, 2, (p, pairs) => {
    const rope = p.recorder.ropeTable(p.vector(pairs), 1);
    return p.recorder.ropeAppend(p.tokens(qkvCols), p.kv, { ...append, rope });
  }),
  limitOf("pieces of columns", 1, 3, (p, n) => {
    return p.recorder.gatherColumns(Array(n).fill({ value: p.x, width: 1 }), 1);
  }),
  limitOf("columns of a piece", 1, 8, (p, width) => {
    return p.recorder.gatherColumns([{ value: p.x, width }], 1);
  }),
  limitOf("groups of columns", 1, 3, (p, groups) => {
    return p.recorder.gatherColumns([{ value: p.x, width: 2, first: 2, step: 2 }], groups);
  }),
  limitOf("tokens of a convolution", 2, 64, (p, width) => {
    const state = p.device.createState({ nSlots: 1, rows: width - 1 || 1, cols: 8 });
    return p.recorder.causalConv1d(p.x, p.matrix(8, width), state, { activation: "silu" });
  }),
  limitOf("adapter of a rank", 0, 1, (p, adapter) => {
    return lora({ ranks: [0, 0, 8, adapter, 0, 8] })(p);
  }),
  limitOf("columns of a rank", 0, 4, (p, cols) => lora({ ranks: [0, 0, 8, 1, 4, cols] })(p)),
  limitOf("first column of a rank", 0, 4, (p, first) => lora({ ranks: [0, 0, 8, 1, first, 4] })(p)),
  limitOf("reported tokens", 0, 8, (p, maxTop) => p.recorder.sample(p.outputs, maxTop)),
];

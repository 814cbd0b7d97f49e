/** Tests the defaults of recorded operations, and which of them take adapted weights. */
import { assertEquals, assertThrows } from "@std/assert";
import { type Operand, Recorder, type Value, type Weight } from "../../../src/backend.ts";
import { ForgeError } from "../../../src/errors.ts";

type Adapters = NonNullable<Weight["adapters"]>;

/** A recorder whose values are numbered from 1, and what it has recorded. */
function recording() {
  const calls: unknown[][] = [];
  let nValues = 0;
  const recorder = new Recorder({
    record: (name, operands: Readonly<Record<string, Operand>>) => {
      calls.push([name, operands]);
      return ++nValues as Value;
    },
    keep: (value) => void calls.push(["keep", value]),
    finish: () => Promise.reject(new Error("not finished")),
  });
  return { recorder, calls };
}

const [x, y] = [100, 101] as Value[] as [Value, Value];
const matrix = (handle: number, more: Partial<Weight> = {}): Weight => ({
  ...{ handle, rows: 4, cols: 8 },
  ...more,
});
const [weight, bias] = [matrix(1), matrix(2)];
const [a, b, ranks] = [matrix(11), matrix(12), matrix(13)];
const adapters: Adapters = { a, b, ranks, targets: ["model.q"], nAdapters: 3 };
const cache = { handle: 9 } as
  & Parameters<Recorder["attention"]>[1]
  & Parameters<Recorder["gatedDeltaRule"]>[2];
const none = undefined;

Deno.test("options of operations have the defaults that turn them off", () => {
  const { recorder, calls } = recording();
  recorder.embed(weight);
  recorder.addEmbedding(x, weight);
  recorder.rmsNorm(x, weight, { eps: 1e-5 });
  recorder.matmul(x, weight);
  recorder.ropeAppend(x, cache, { nHeads: 2, eps: 1e-6, ropeLayout: "half" });
  recorder.attention(x, cache, { nHeads: 2, scale: 0.5 });
  recorder.selectiveScan(x, y, cache, { rate: a, dtBias: b, skip: ranks, nGroups: 2 });
  recorder.moeRoute(x, { topK: 2, normalize: true });
  recorder.moeRoute(x, { topK: 2, normalize: false, nGroups: 4 });
  assertEquals(calls, [
    ["embed", { weight, scale: 1 }],
    ["add_embedding", { x, weight, period: 0 }],
    ["rms_norm", { x, weight, eps: 1e-5, weight_offset: 0, residual: none }],
    ["matmul", { x, weight, bias: none, alpha: 1, activation: "identity", residual: none }],
    ["rope_append", {
      ...{ qkv: x, kv: cache, n_heads: 2, q_norm: none, k_norm: none, eps: 1e-6 },
      ...{ weight_offset: 0, rope: none, rope_layout: "half" },
    }],
    ["attention", {
      ...{ q: x, kv: cache, n_heads: 2, scale: 0.5, window: 0, softcap: 0, sinks: none },
      ...{ causal: true, masked: false, chunked: false },
    }],
    ["selective_scan", {
      ...{ xbc: x, dt: y, gate: none, rate: a, dt_bias: b, skip: ranks, state: cache },
      ...{ n_groups: 2, dt_min: 0, dt_max: Infinity },
    }],
    ...[[true, 1], [false, 4]].map(([normalize, groups]) => ["moe_route", {
      ...{ logits: x, top_k: 2, normalize, scale: 1, scores: "softmax", bias: none },
      ...{ expert_scales: none, n_groups: groups, top_groups: groups, threshold: 0 },
    }]),
  ]);
});

Deno.test("adapters correct a product before its epilogue, and the order of columns comes first", () => {
  const { recorder, calls } = recording();
  const order = matrix(3, { rows: 1 });
  const adapted = matrix(1, { adapters: { ...adapters, nBlocks: 4 }, columnOrder: order });
  const products: unknown[] = [];
  recorder.onProduct = (...product) => void products.push(product);
  const options = { bias, alpha: 0.5, activation: "silu", residual: y } as const;
  assertEquals(recorder.matmul(x, adapted, options), 3);
  const route = recorder.moeRoute(x, { topK: 2, normalize: true });
  assertEquals(recorder.moeMatmul(x, route, adapted, 8, bias), 7);
  recorder.headMatmul(x, matrix(1, { adapters }), 2);
  const rows = matrix(4);
  recorder.embed(matrix(1, { adapters: { ...adapters, rows } }), 3);
  const low = { a, b, ranks, n_adapters: 3, n_blocks: 4 };
  const plain = { alpha: 1, activation: "identity", residual: none };
  assertEquals(calls.filter(([name]) => name !== "moe_route"), [
    ["permute_columns", { x, route: none, order }],
    ["matmul", { x: 1, weight: adapted, bias, alpha: 1, activation: "identity" }],
    ["lora", { y: 2, x, route: none, ...low, alpha: 0.5, activation: "silu", residual: y }],
    ["permute_columns", { x, route, order }],
    ["moe_matmul", { x: 5, route, weight: adapted, bias, n_experts: 8 }],
    ["lora", { y: 6, x, route, ...low, ...plain }],
    ["head_matmul", { x, weight: matrix(1, { adapters }), n_heads: 2 }],
    ["lora", { y: 8, x, route: none, ...low, n_blocks: 1, ...plain }],
    ["embed", { weight: matrix(1, { adapters: { ...adapters, rows } }), scale: 3 }],
    ["embed", { weight: rows, scale: 3 }],
    ["lora", { y: 10, x: 11, route: none, ...low, n_blocks: 1, ...plain }],
  ]);
  assertEquals(products, [[adapted, x], [adapted, x, { route, nExperts: 8, topK: 2 }]]);
});

Deno.test("weights with adapters or reordered columns are for products alone", () => {
  const { recorder } = recording();
  const adapted = matrix(1, { adapters }), reordered = matrix(1, { columnOrder: weight });
  const adapter = 'an adapter changes the matrix "model.q", which forge cannot adapt';
  const columns =
    "a matrix whose columns GPTQ has reordered (desc_act) can be used in products only";
  const cases: [() => unknown, string][] = [
    [() => recorder.embed(adapted), adapter],
    [() => recorder.embed(reordered), columns],
    [() => recorder.addEmbedding(x, adapted), adapter],
    [() => recorder.addEmbedding(x, reordered), columns],
    [() => recorder.headMatmul(x, reordered, 2), columns],
  ];
  for (const [use, message] of cases) {
    const error = assertThrows(use, ForgeError);
    assertEquals([error.code, error.message], ["unsupported", message]);
  }
});

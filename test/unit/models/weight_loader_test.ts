import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import type { TensorInfo } from "../../../src/formats/tensor_info.ts";
import type { TensorRows } from "../../../src/models/gguf_rules.ts";
import type { ModelPart } from "../../../src/models/weights/division.ts";
import { type TensorName, WeightLoader } from "../../../src/models/weights/weight_loader.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { FakeBackend, fakeCheckpoint, type FakeTensor } from "./fakes.ts";

const GGUF = { "general.architecture": "llama" };
const Q: TensorName = ["self_attn.q_proj", "attn_q"];
const K: TensorName = ["self_attn.k_proj", "attn_k"];
const NORM: TensorName = ["norm", "output_norm"];

function loader(
  tensors: Record<string, FakeTensor>,
  options: { gguf?: boolean; backend?: FakeBackend; part?: ModelPart } = {},
): WeightLoader {
  const { gguf = false, backend = new FakeBackend(), part } = options;
  const checkpoint = fakeCheckpoint({ tensors, ...(gguf ? { metadata: GGUF } : {}) });
  return WeightLoader.for(backend, checkpoint, undefined, undefined, part);
}

/** The part of a stage or of a rank. */
const stageOf = (index: number, memory: number[]): ModelPart => {
  return { rank: { index: 0, count: 1 }, stage: { index, memory } };
};
const rankOf = (index: number, count: number): ModelPart => {
  return { rank: { index, count }, stage: { index: 0, memory: [1] } };
};

function assertRefused(load: () => unknown, code: string, message: string): void {
  const error = assertThrows(load, ForgeError);
  assertEquals([error.code, error.message], [code, message]);
}

Deno.test("tensors have the prefixes of their format and layer", () => {
  const names = {
    whole: ["model.embed_tokens.weight", "model.layers.1.self_attn.q_proj.weight"],
    gguf: ["token_embd.weight", "blk.1.attn_q.weight"],
  };
  for (const [kind, [embedding, query]] of Object.entries(names)) {
    const weights = loader({ [embedding!]: [8, 4], [query!]: [4, 4] }, { gguf: kind === "gguf" });
    assertEquals(weights.has(["embed_tokens", "token_embd"]), true);
    assertEquals(weights.layer(1).has(Q), true);
    assertEquals(weights.layer(0).has(Q), false);
    assertEquals(weights.has(Q), false);
  }
});

Deno.test("the output matrix lacks the decoder's prefix", () => {
  const name: TensorName = ["lm_head", "output"];
  const whole = loader({ "model.embed_tokens.weight": [8, 4], "lm_head.weight": [8, 4] });
  assertEquals(whole.has(name), true);
  assertEquals(loader({ "model.lm_head.weight": [8, 4] }).has(name), false);
  assertEquals(loader({ "output.weight": [8, 4] }, { gguf: true }).has(name), true);
  for (const head of ["classifier", "score", "head.dense"]) {
    assertEquals(loader({ [`${head}.weight`]: [2, 4] }).has([head, undefined]), true);
  }
});

Deno.test("a matrix is one slice, and several are rows of one weight", () => {
  const backend = new FakeBackend();
  const weights = loader({
    "model.layers.0.self_attn.q_proj.weight": [8, 4],
    "model.layers.0.self_attn.k_proj.weight": [2, 4],
  }, { backend }).layer(0);
  assertEquals(weights.matrix(Q, 8, 4).rows, 8);
  const both = weights.concat([[Q, 8], [K, 2]], 4);
  assertEquals([both.rows, both.cols], [10, 4]);
  assertEquals(
    backend.mapped.map(({ parts }) => parts.map(({ tensor }) => tensor.name.slice(-13, -7))),
    [["q_proj"], ["q_proj", "k_proj"]],
  );
});

Deno.test("a missing tensor is named in full", () => {
  assertRefused(
    () => loader({}).layer(3).matrix(Q, 8, 4),
    "bad_model",
    `"model" has no tensor "model.layers.3.self_attn.q_proj.weight", which a "llama" model needs`,
  );
  assertRefused(
    () => loader({}, { gguf: true }).layer(3).vector(Q, 8, "bias"),
    "bad_model",
    `"model.gguf" has no tensor "blk.3.attn_q.bias", which a "llama" model needs`,
  );
  assertRefused(
    () => loader({}).matrix([undefined, "attn_qkv"], 8, 4),
    "bad_model",
    `"model" has no tensor "attn_qkv", which a "llama" model needs`,
  );
});

Deno.test("a tensor of another shape is rejected", () => {
  const weights = loader({
    "model.norm.weight": [8],
    "model.layers.0.self_attn.q_proj.weight": [8, 4],
  });
  const shape = (actual: string, expected: string, name: string) =>
    `"model": tensor "${name}" has the shape [${actual}]; the configuration implies [${expected}]`;
  const norm = "model.norm.weight";
  const query = "model.layers.0.self_attn.q_proj.weight";
  assertRefused(() => weights.vector(NORM, 9), "bad_model", shape("8", "9", norm));
  assertRefused(() => weights.matrix(NORM, 8, 1), "bad_model", shape("8", "8,1", norm));
  assertRefused(() => weights.layer(0).matrix(Q, 4, 8), "bad_model", shape("8,4", "4,8", query));
  const huge = () => weights.layer(0).matrix(Q, 2 ** 26, 4);
  assertRefused(huge, "bad_model", shape("8,4", "67108864,4", query));
});

Deno.test("a type that forge cannot compute with is rejected", () => {
  const weights = loader({ "model.norm.weight": { type: "F64", shape: [8] } });
  const error = assertThrows(() => weights.vector(NORM, 8), ForgeError, "stored as F64");
  assertEquals(error.code, "unsupported");
});

Deno.test("HF's experts are stacked, each with its parts in order", () => {
  const backend = new FakeBackend();
  const tensors: Record<string, FakeTensor> = {};
  for (const expert of [0, 1]) {
    tensors[`model.layers.0.mlp.experts.${expert}.gate_proj.weight`] = [6, 4];
    tensors[`model.layers.0.mlp.experts.${expert}.up_proj.weight`] = [6, 4];
  }
  const gate: TensorName = ["mlp.experts.{}.gate_proj", "ffn_gate_exps"];
  const up: TensorName = ["mlp.experts.{}.up_proj", "ffn_up_exps"];
  const weights = loader(tensors, { backend }).layer(0);
  assertEquals(weights.experts([[gate, 6], [up, 6]], 2, 4).rows, 24);
  assertEquals(
    backend.mapped[0]?.parts.map(({ tensor }) => tensor.name.slice("model.layers.0.mlp.".length)),
    [
      "experts.0.gate_proj.weight",
      "experts.0.up_proj.weight",
      "experts.1.gate_proj.weight",
      "experts.1.up_proj.weight",
    ],
  );
  assertRefused(
    () => weights.experts([[gate, 6]], 3, 4),
    "bad_model",
    `"model" has no tensor "model.layers.0.mlp.experts.2.gate_proj.weight", which a "llama" model needs`,
  );
});

Deno.test("GGUF's stacked experts are split", () => {
  const backend = new FakeBackend();
  const gate: TensorName = [undefined, "ffn_gate_exps"];
  const up: TensorName = [undefined, "ffn_up_exps"];
  const weights = loader(
    { "blk.0.ffn_gate_exps.weight": [2, 6, 4], "blk.0.ffn_up_exps.weight": [2, 5, 4] },
    { gguf: true, backend },
  ).layer(0);
  assertEquals(weights.experts([[gate, 6], [up, 5]], 2, 4).rows, 22);
  assertEquals(
    backend.mapped[0]?.parts.map(({ tensor, firstRow, nRows }) => [
      tensor.name.slice(6, 12),
      firstRow,
      nRows,
    ]),
    [["ffn_ga", 0, 6], ["ffn_up", 0, 5], ["ffn_ga", 6, 6], ["ffn_up", 5, 5]],
  );
  assertRefused(
    () => weights.experts([[gate, 6]], 2 ** 26, 4),
    "bad_model",
    `"model.gguf": tensor "blk.0.ffn_gate_exps.weight" has the shape [2,6,4]; the configuration ` +
      "implies [67108864,6,4]",
  );
});

Deno.test("biases are joined as numbers, whatever their types", () => {
  const backend = new FakeBackend({
    "model.layers.0.self_attn.q_proj.bias": [1, 2],
    "model.layers.0.self_attn.k_proj.bias": [3],
  });
  const weights = loader({
    "model.layers.0.self_attn.q_proj.bias": { type: "BF16", shape: [2] },
    "model.layers.0.self_attn.k_proj.bias": [1],
  }, { backend }).layer(0);
  assertEquals(weights.concatVectors([[Q, 2], [K, 1]], "bias").cols, 3);
  assertEquals(backend.uploaded, [Float32Array.of(1, 2, 3)]);
});

Deno.test("some of the numbers of a vector are loaded by themselves", () => {
  const backend = new FakeBackend({ "model.norm.weight": [1, 2, 3, 4, 5, 6] });
  const weights = loader({ "model.norm.weight": [6] }, { backend });
  assertEquals(weights.vector(NORM, 6, "weight", [[0, 2], [2, 4]]).cols, 6);
  assertEquals(backend.uploaded, [], "all of them");
  for (const spans of [[[0, 2]], [[2, 4]], [[1, 1], [4, 2]]] as const) {
    assertEquals(weights.vector(NORM, 6, "weight", spans).cols, backend.uploaded.at(-1)?.length);
  }
  assertEquals(backend.uploaded.map((values) => [...values]), [[1, 2], [3, 4, 5, 6], [2, 5, 6]]);
});

Deno.test("the biases of experts are joined expert by expert", () => {
  const backend = new FakeBackend({ "gate.bias": [1, 2, 3, 4, 5, 6], "up.bias": [7, 8, 9] });
  const weights = loader({ "gate.bias": [3, 2], "up.bias": [3, 1] }, { gguf: true, backend });
  const [gate, up] = [[undefined, "gate"], [undefined, "up"]] as const;
  const { rows, cols } = weights.expertBiases([[gate, 2], [up, 1]], 3);
  assertEquals([rows, cols], [3, 3]);
  weights.expertBiases([[up, 1], [gate, 2, [[1, 1]]], [up, 1]], 3);
  assertEquals(backend.uploaded.map((values) => [...values]), [
    [1, 2, 7, 3, 4, 8, 5, 6, 9],
    [7, 2, 7, 8, 4, 8, 9, 6, 9],
  ]);
});

Deno.test("a row is a vector or a matrix of one row", () => {
  const weights = loader({
    "model.a.weight": [4],
    "model.b.weight": [1, 4],
    "model.c.weight": [5],
  });
  for (const name of ["a", "b"]) {
    for (const usual of [[4], [1, 4]]) {
      const { rows, cols } = weights.row([name, undefined], 4, usual);
      assertEquals([rows, cols], [1, 4]);
    }
  }
  assertRefused(
    () => weights.row(["c", undefined], 4, [1, 4]),
    "bad_model",
    '"model": tensor "model.c.weight" has the shape [5]; the configuration implies [1,4]',
  );
});

Deno.test("a number has no dimension or one, and possibly a default", () => {
  const backend = new FakeBackend({ "model.a": [2], "model.b": [3] });
  const weights = loader({ "model.a": [], "model.b": [1], "model.c": [2] }, { backend });
  const number = (name: string, fallback?: number) => weights.number([name, undefined], fallback);
  assertEquals([number("a"), number("b"), number("a", 7), number("d", 7)], [2, 3, 2, 7]);
  assertThrows(() => number("d"), ForgeError, 'has no tensor "model.d"');
  assertThrows(() => number("c", 7), ForgeError, "has the shape [2]");
});

Deno.test("a tensor of bytes must be stored as bytes", () => {
  const weights = loader({ "model.a": { type: "U8", shape: [4] }, "model.b": [4] });
  assertEquals(weights.bytes(["a", undefined], [4]).type, "U8");
  const message = '"model": tensor "model.b" is stored as F32, not U8';
  assertRefused(() => weights.bytes(["b", undefined], [4]), "bad_model", message);
});

/** Which tensors, rows and columns a device mapped. */
const slicesOf = ({ mapped }: FakeBackend) =>
  mapped.map(({ parts }) =>
    parts.map(({ firstRow, nRows, columns }) => [firstRow, nRows, columns])
  );

Deno.test("columns of a matrix are whole blocks", () => {
  const backend = new FakeBackend();
  const weights = loader({
    "model.a.weight": [2, 16],
    "model.b.weight": { type: "Q4_0", shape: [2, 64] },
  }, { backend });
  assertEquals(weights.columns(["a", undefined], 2, 16, [8, 8]).cols, 8);
  // As many elements as the matrix has in all columns.
  assertEquals(weights.columns(["a", undefined], 2, 16, [4, 4]).cols, 4);
  assertEquals(weights.columns(["a", undefined], 2, 16, [0, 16]).cols, 16);
  assertEquals(slicesOf(backend), [
    [[0, 2, [8, 8]]],
    [[0, 2, [4, 4]]],
    [[undefined, undefined, undefined]],
  ]);
  const inside = () => weights.columns(["b", undefined], 2, 64, [16, 32]);
  assertThrows(inside, ForgeError, "its blocks have 32 columns");
});

Deno.test("parts of stacked experts begin at each expert's first row", () => {
  const backend = new FakeBackend();
  const weights = loader({ "model.a": [3, 4, 16] }, { backend });
  const tensor = weights.tensor(["a", undefined], "", [3, 4, 16]);
  assertEquals(weights.stackedParts(tensor, [[1, 1], [3, 1]], [0, 16]).rows, 6);
  assertEquals(weights.stackedParts(tensor, [[0, 4]], [8, 8]).cols, 8);
  const all = undefined;
  assertEquals(slicesOf(backend), [
    [[1, 1, all], [3, 1, all], [5, 1, all], [7, 1, all], [9, 1, all], [11, 1, all]],
    [[0, 4, [8, 8]], [4, 4, [8, 8]], [8, 4, [8, 8]]],
  ]);
});

Deno.test("ranks share the columns of an embedding unless there are too few", () => {
  for (const [cols, spans] of [[24, [[0, 8], [8, 16]]], [16, [[0, 8], [8, 8]]]] as const) {
    for (const [index, span] of spans.entries()) {
      const backend = new FakeBackend();
      const options = { backend, part: rankOf(index, 2) };
      const weights = loader({ "model.a.weight": [4, cols] }, options);
      const [weight, columns] = weights.embeddingPart(["a", undefined], 4, cols);
      assertEquals([weight.cols, columns], [span[1], span]);
      assertEquals(slicesOf(backend), [[[0, 4, span]]]);
    }
  }
  for (const [cols, count] of [[8, 2], [16, 1]] as const) {
    const weights = loader({ "model.a.weight": [4, cols] }, { part: rankOf(0, count) });
    const [weight, columns] = weights.embeddingPart(["a", undefined], 4, cols);
    assertEquals([weight.cols, columns], [cols, [0, cols]]);
  }
});

Deno.test("stages divide layers by the bytes of their tensors and of those at the ends", () => {
  const tensors = (first: number) => ({
    "model.embed_tokens.weight": [1000, 4],
    "model.layers.0.a.weight": [first, 4],
    ...Object.fromEntries([1, 2, 3].map((i) => [`model.layers.${i}.a.weight`, [10, 4]])),
  });
  const spans = (first: number, ends: readonly [number, number], nStages = 2) =>
    Array.from({ length: nStages }, (_, index) => {
      const part = stageOf(index, Array(nStages).fill(1));
      return loader(tensors(first), { part }).ownLayers(4, ends);
    });
  assertEquals(spans(10, [0, 0], 1), [[0, 4]]);
  assertEquals(spans(10, [0, 0]), [[0, 2], [2, 2]]);
  assertEquals(spans(30, [0, 0]), [[0, 1], [1, 3]]);
  assertEquals(spans(10, [320, 0]), [[0, 1], [1, 3]]);
  assertEquals(spans(10, [0, 320]), [[0, 3], [3, 1]]);
  const ends = [0, 1, 2].map((index) => {
    const { isFirstStage, isLastStage } = loader({}, { part: stageOf(index, [1, 1, 1]) });
    return [isFirstStage, isLastStage];
  });
  assertEquals(ends, [[true, false], [false, false], [false, true]]);
});

Deno.test("a sink receives the rows of each tensor of a GGUF file", () => {
  const noted: [string, Omit<TensorRows, "weight">][] = [];
  const tensor = (name: string, { weight: _, ...rows }: TensorRows) =>
    void noted.push([name, rows]);
  const sink = { tensor, setting: () => {}, numbers: () => {} };
  const checkpoint = fakeCheckpoint({
    tensors: {
      "model.layers.0.conv.weight": [6, 1, 4],
      "model.layers.0.narrow.weight": [6, 1],
      "model.layers.0.experts": [2, 5, 4],
      "model.layers.0.biases": [2, 5],
    },
  });
  const weights = WeightLoader.for(new FakeBackend(), checkpoint, sink).layer(0);
  weights.tensor(["conv", "ssm_conv1d"], "weight", [6, 1, 4]);
  weights.tensor(["narrow", "ssm_dt"], "weight", [6, 1]);
  const experts = weights.mapWhole(weights.tensor(["experts", undefined], "", [2, 5, 4]), 4);
  weights.noteExperts(experts, [["gate", 2], ["up", 3]], 2);
  const biases = weights.mapWhole(weights.tensor(["biases", undefined], "", [2, 5]), 5);
  weights.noteExpertBiases(biases, [["gate", 2], ["up", 3]]);
  assertEquals(noted, [
    ["blk.0.ssm_conv1d.weight", { ranges: [[0, 6]], shape: [6, 4] }],
    ["blk.0.ssm_dt.weight", { ranges: [[0, 6]], shape: [6, 1] }],
    ["blk.0.gate.weight", { ranges: [[0, 2], [5, 2]], shape: [2, 2, 4] }],
    ["blk.0.up.weight", { ranges: [[2, 3], [7, 3]], shape: [2, 3, 4] }],
    ["blk.0.gate.bias", { ranges: [[0, 2]], columns: [0, 2], shape: [2, 2] }],
    ["blk.0.up.bias", { ranges: [[0, 2]], columns: [2, 3], shape: [2, 3] }],
  ]);
});

Deno.test("tensors are the same if all their bytes are", () => {
  using folder = new TempFolder();
  // More than what is compared at a time.
  const bytes = 2 ** 20 + 8, size = bytes / 4;
  const content = new Uint8Array(3 * bytes + 16).fill(1);
  // The second tensor differs in its last byte, the third is like the first.
  content[16 + 2 * bytes - 1] = 2;
  const file = folder.write("model.safetensors", content);
  const names = ["a", "b", "c", "d", "e"];
  const checkpoint = fakeCheckpoint({});
  const tensors = names.map((name, i): [string, TensorInfo] => {
    const tensor = { name, type: "F32", shape: [size], file, bytes } as const;
    return [`model.${name}.weight`, { ...tensor, offset: 16 + i % 3 * bytes }];
  });
  const [, , , d, e] = tensors.map(([, tensor]) => tensor);
  const packing = { packing: "float", groupRows: 1, groupCols: size, codes: e! } as const;
  const all = new Map<string, TensorInfo>([
    ...tensors.slice(0, 3),
    ["model.d.weight", { ...d!, type: "I32" }],
    ["model.e.weight", { ...e!, offset: 16, packed: packing }],
  ]);
  const weights = WeightLoader.for(new FakeBackend(), { ...checkpoint, tensors: all });
  const same = (one: string, other: string) =>
    weights.holdSame([one, undefined], [other, undefined]);
  assertEquals([same("a", "c"), same("c", "a"), same("a", "a")], [true, true, true]);
  for (const other of ["b", "d", "e", "f"]) {
    assert(!same("a", other), other);
    assert(!same(other, "a"), other);
  }
});

Deno.test("a tensor of another layer is one of a layer that was not loaded", () => {
  const names = ["norm", "layers.0.a", "layers.1.a"].map((name) => `model.${name}.weight`);
  const weights = loader(Object.fromEntries(names.map((name) => [name, [4]])));
  weights.layer(0);
  const others = [...names, "model.layers.2.a.weight"].map((name) => weights.isOfOtherLayer(name));
  assertEquals(others, [false, false, true, false]);
});

Deno.test("optional tensors may be absent", () => {
  const weights = loader({ "rope_freqs.weight": [2] }, {
    gguf: true,
    backend: new FakeBackend({ "rope_freqs.weight": [1, 8] }),
  });
  assertEquals(weights.optionalNumbers([undefined, "rope_freqs"]), Float32Array.of(1, 8));
  assertEquals(weights.optionalNumbers([undefined, "rope_factors_long"]), undefined);
  assertEquals(weights.optionalVector(NORM, 8), undefined);
});

Deno.test("tensors that were not requested are listed", () => {
  const weights = loader({
    "model.norm.weight": [8],
    "model.layers.0.self_attn.q_proj.weight": [8, 4],
    "model.layers.1.self_attn.q_proj.weight": [8, 4],
    "vision.weight": [3],
  });
  weights.vector(NORM, 8);
  weights.layer(0).matrix(Q, 8, 4);
  const surplus = ["model.layers.1.self_attn.q_proj.weight", "vision.weight"];
  assertEquals(weights.unusedTensors(), surplus);
  // Layers that were not loaded and tensors outside the layers are ignored.
  weights.assertLayersUsed();
});

Deno.test("a tensor is used if a loader of one of the devices requests it", () => {
  const tensors = {
    "model.layers.0.self_attn.q_proj.weight": [8, 4],
    "model.layers.1.self_attn.q_proj.weight": [8, 4],
    "model.layers.1.self_attn.other.weight": [8, 4],
  };
  const loaders = [0, 1].map((layer) => {
    const own = loader(tensors);
    own.layer(layer).matrix(Q, 8, 4);
    return own;
  });
  const surplus = "model.layers.1.self_attn.other.weight";
  assertEquals(loaders[0]!.unusedTensors(loaders), [surplus]);
  assertThrows(() => loaders[0]!.assertLayersUsed(loaders), ForgeError, surplus);
});

Deno.test("the caches of loaded layers are those of all loaders of a device", () => {
  const weights = loader({});
  weights.layer(3).useKv(2);
  weights.layer(4).useKv(5);
  weights.layer(5).useStates(1, 0);
  assertEquals([...weights.caches.kv, ...weights.caches.states], [2, 5, 1, 0]);
});

Deno.test("an unused tensor of a loaded layer is rejected", () => {
  const tensors = {
    "model.layers.1.self_attn.q_proj.weight": [8, 4],
    "model.layers.1.self_attn.rotary_emb.inv_freq": [4],
    "model.layers.1.self_attn.q_proj.bias": [8],
    "model.layers.12.self_attn.q_proj.bias": [8],
  };
  const weights = loader(tensors);
  weights.layer(1).matrix(Q, 8, 4);
  assertRefused(
    () => weights.assertLayersUsed(),
    "unsupported",
    `"model" has the tensor "model.layers.1.self_attn.q_proj.bias", which forge does not use in a ` +
      `"llama" model`,
  );
  weights.layer(1).vector(Q, 8, "bias");
  weights.assertLayersUsed();
  const experts = loader({ "model.layers.0.mlp.experts.3.up_proj.weight": [8, 4] });
  experts.layer(0);
  assertThrows(() => experts.assertLayersUsed(), ForgeError, "experts.3.up_proj.weight");
});

Deno.test("the bytes on the device count each tensor once", () => {
  const weights = loader({ "model.norm.weight": [8], "lm_head.weight": [8, 4] });
  weights.vector(NORM, 8);
  weights.vector(NORM, 8);
  assertEquals(weights.mappedBytes, 32);
  assertEquals(weights.mappedTensors.map(({ name }) => name), ["model.norm.weight"]);
});

Deno.test("the bytes on the device count parts of a tensor, and tensors of other files", () => {
  const weights = loader({ "model.a.weight": [4, 16], "model.b.weight": [4, 16] });
  for (const columns of [[0, 8], [8, 8], [0, 8]] as const) {
    weights.columns(["a", undefined], 4, 16, columns);
  }
  assertEquals(weights.mappedBytes, 4 * 4 * 16);
  for (const rows of [[0, 1], [1, 1], [0, 1]] as const) {
    weights.matrix(["b", undefined], 4, 16, [rows]);
  }
  assertEquals(weights.mappedBytes, 4 * 4 * 16 + 2 * 4 * 16);
  const { tensors, ...other } = fakeCheckpoint({ tensors: { "model.a.weight": [4, 16] } });
  const moved = new Map([...tensors].map(([name, tensor]) => [name, { ...tensor, file: "draft" }]));
  const draft = weights.of({ ...other, tensors: moved });
  assertEquals(draft.unusedTensors(), ["model.a.weight"]);
  draft.columns(["model.a", undefined], 4, 16, [0, 8]);
  assertEquals(weights.mappedBytes, 4 * 4 * 16 + 2 * 4 * 16 + 4 * 4 * 8);
  assertEquals(weights.mappedTensors.map(({ name, file }) => [name, file]), [
    ["model.a.weight", "model"],
    ["model.b.weight", "model"],
    ["model.a.weight", "draft"],
  ]);
});

Deno.test("the first tensor with NaN is described", () => {
  const backend = new FakeBackend({ "lm_head.weight": [1, NaN], "model.norm.weight": [1, 2] });
  const weights = loader({ "model.norm.weight": [2], "lm_head.weight": [1, 2] }, { backend });
  weights.vector(NORM, 2);
  assertEquals(weights.findNonFinite(), undefined);
  weights.matrix(["lm_head", "output"], 1, 2);
  assertEquals(weights.findNonFinite(), `"model": tensor "lm_head.weight" holds NaN`);

  // In the last row of a matrix of another file.
  const values = { "model.norm.weight": [1, 2], "a.weight": [1, 2, 3, -Infinity] };
  const model = loader({ "model.norm.weight": [2] }, { backend: new FakeBackend(values) });
  model.vector(NORM, 2);
  const { tensors, ...other } = fakeCheckpoint({ tensors: { "a.weight": [2, 2] } });
  const moved = new Map([...tensors].map(([name, tensor]) => [name, { ...tensor, file: "draft" }]));
  model.of({ ...other, tensors: moved }).matrix(["a", undefined], 2, 2);
  assertEquals(model.findNonFinite(), `"draft": tensor "a.weight" holds -Infinity`);
});

Deno.test("a part rejects the divisions that it does not support", () => {
  const checkpoint = fakeCheckpoint({});
  const divided = 'is a "llama" model, whose part forge does not divide among';
  for (const count of [1, 2, 3]) {
    for (const nStages of [1, 2, 3]) {
      const weights = WeightLoader.for(new FakeBackend(), checkpoint, undefined, undefined, {
        rank: { index: 0, count },
        stage: { index: 0, memory: Array(nStages).fill(1) },
      });
      const cases = [
        [() => weights.assertWhole("part"), count > 1, "devices", "data or pipeline"],
        [() => weights.assertOneStage("part"), nStages > 1, "stages", "data or tensor"],
        [() => weights.assertUndivided("part"), count > 1 || nStages > 1, "devices", "data"],
      ] as const;
      for (const [check, isRefused, what, other] of cases) {
        if (!isRefused) check();
        else {
          const reason = `"model" ${divided} ${what}; it runs on one device, or on several with ` +
            `${other} parallelism`;
          assertRefused(check, "unsupported", reason);
        }
      }
    }
  }
});

import { assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { type TensorName, WeightLoader } from "../../../src/models/weights/weight_loader.ts";
import { FakeBackend, fakeCheckpoint, type FakeTensor } from "./fakes.ts";

const GGUF = { "general.architecture": "llama" };
const Q: TensorName = ["self_attn.q_proj", "attn_q"];
const K: TensorName = ["self_attn.k_proj", "attn_k"];
const NORM: TensorName = ["norm", "output_norm"];

function loader(
  tensors: Record<string, FakeTensor>,
  options: { gguf?: boolean; backend?: FakeBackend } = {},
): WeightLoader {
  const checkpoint = fakeCheckpoint({ tensors, ...(options.gguf ? { metadata: GGUF } : {}) });
  return WeightLoader.for(options.backend ?? new FakeBackend(), checkpoint);
}

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
});

Deno.test("the bytes on the device count each tensor once", () => {
  const weights = loader({ "model.norm.weight": [8], "lm_head.weight": [8, 4] });
  weights.vector(NORM, 8);
  weights.vector(NORM, 8);
  assertEquals(weights.mappedBytes, 32);
});

Deno.test("the first tensor with NaN is described", () => {
  const backend = new FakeBackend({ "lm_head.weight": [1, NaN], "model.norm.weight": [1, 2] });
  const weights = loader({ "model.norm.weight": [2], "lm_head.weight": [1, 2] }, { backend });
  weights.vector(NORM, 2);
  assertEquals(weights.findNonFinite(), undefined);
  weights.matrix(["lm_head", "output"], 1, 2);
  assertEquals(weights.findNonFinite(), `"model": tensor "lm_head.weight" holds NaN`);
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

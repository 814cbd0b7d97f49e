import { assertEquals } from "@std/assert";
import { summarizeModel } from "../../../src/bench/model_summary.ts";
import { fakeCheckpoint, type FakeModel } from "../models/fakes.ts";

function summary(model: FakeModel) {
  const checkpoint = fakeCheckpoint(model);
  return summarizeModel(checkpoint, [...checkpoint.tensors.values()]);
}

Deno.test("model summary: a tied embedding counts in full, an untied one as one row", () => {
  const tied = { "model.embed_tokens.weight": [100, 8], "model.norm.weight": [8] };
  assertEquals(summary({ tensors: tied }).decodeBytes, 4 * (800 + 8));
  const untied = { ...tied, "lm_head.weight": [100, 8] };
  assertEquals(summary({ tensors: untied }).decodeBytes, 4 * (8 + 800 + 8));
  const other = { "per_layer_embed_tokens.weight": [100, 8], "lm_head.weight": [100, 8] };
  assertEquals(summary({ tensors: other }).decodeBytes, 4 * 1600);
  const gguf = {
    metadata: { "general.architecture": "llama" },
    tensors: { "token_embd.weight": [100, 8], "output.weight": [100, 8] },
  };
  assertEquals(summary(gguf).decodeBytes, 4 * (8 + 800));
});

Deno.test("model summary: of a mixture, only the experts of one token count", () => {
  const huggingFace = summary({
    config: { num_local_experts: 8, num_experts_per_tok: 2 },
    tensors: { "model.layers.0.block_sparse_moe.experts.0.w1.weight": [4, 8], "a.weight": [2, 2] },
  });
  assertEquals(huggingFace.decodeBytes, 4 * (32 / 4 + 4));
  const qwen = summary({
    config: { num_experts: 6, num_experts_per_tok: 2 },
    tensors: { "model.layers.0.mlp.experts.0.up_proj.weight": [3, 8] },
  });
  assertEquals([qwen.decodeBytes, qwen.promptWeights], [4 * 8, 8]);
  const gguf = summary({
    metadata: {
      "general.architecture": "qwen3moe",
      "qwen3moe.expert_count": 16,
      "qwen3moe.expert_used_count": 4,
    },
    tensors: { "blk.0.ffn_up_exps.weight": [16, 4, 8] },
  });
  assertEquals(gguf.decodeBytes, 4 * 4 * 32);
  assertEquals([huggingFace.promptWeights, gguf.promptWeights], [32 / 4 + 4, 4 * 32]);
});

Deno.test("model summary: a prompt's tokens are multiplied with all matrices of the layers", () => {
  const tensors = {
    "model.embed_tokens.weight": [100, 8],
    "model.layers.0.mlp.up_proj.weight": [32, 8],
    "model.norm.weight": [8],
    "lm_head.weight": [100, 8],
  };
  assertEquals(summary({ tensors }).promptWeights, 32 * 8);
});

Deno.test("model summary: architecture, size and the main weight types", () => {
  const { type, parameters, bytes } = summary({
    metadata: { "general.architecture": "llama" },
    tensors: {
      "blk.0.attn_q.weight": { type: "Q4_0", shape: [4096, 1024] },
      "token_embd.weight": { type: "Q6_K", shape: [1024, 1024] },
      "output_norm.weight": [1024],
    },
  });
  assertEquals(type, "llama 5.24M Q4_0+Q6_K");
  const small = summary({
    tensors: {
      "a.weight": { type: "F16", shape: [10, 9] },
      "b.weight": [10, 9],
    },
  });
  assertEquals(small.type, "llama 0.18K F32+F16");
  const sizes = [1e6 - 1, 1e6, 1e9 - 1, 1e9].map((size) => summary({ tensors: { w: [size] } }));
  const named = ["1000K", "1M", "1000M", "1B"].map((size) => `llama ${size} F32`);
  assertEquals(sizes.map(({ type }) => type), named);
  assertEquals(parameters, 5 * 2 ** 20 + 1024);
  assertEquals(bytes, 4 * 2 ** 20 / 32 * 18 + 2 ** 20 / 256 * 210 + 4096);
});

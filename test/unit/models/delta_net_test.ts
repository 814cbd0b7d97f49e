/** Configurations of hybrid models. */
import { assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { deltaNetConfig, deltaNetStates } from "../../../src/models/parts/delta_net.ts";
import { findFamily } from "../../../src/models/registry.ts";
import { ModelSource } from "../../../src/models/causal_lm.ts";
import { FakeBackend, fakeCheckpoint, ggufConfig, jsonConfig } from "./fakes.ts";

const JSON_SIZES: JsonObject = {
  linear_num_key_heads: 16,
  linear_num_value_heads: 32,
  linear_key_head_dim: 128,
  linear_value_head_dim: 64,
  linear_conv_kernel_dim: 4,
};

const SIZES = { nKHeads: 16, nVHeads: 32, kDim: 128, vDim: 64, convWidth: 4 } as const;

Deno.test("delta nets: sizes from config.json and from GGUF", () => {
  assertEquals(deltaNetConfig(jsonConfig(JSON_SIZES), "grouped"), {
    ...SIZES,
    headOrder: "grouped",
  });
  const gguf = ggufConfig({
    "ssm.group_count": 16,
    "ssm.time_step_rank": 32,
    "ssm.state_size": 128,
    "ssm.inner_size": 2048,
    "ssm.conv_kernel": 4,
  }, "qwen35");
  assertEquals(deltaNetConfig(gguf, "tiled"), { ...SIZES, headOrder: "tiled" });
});

Deno.test("delta nets: a layer keeps rows of its convolution and a matrix for each head", () => {
  assertEquals(deltaNetStates({ ...SIZES, headOrder: "tiled" }), [
    { rows: 3, cols: 2 * 16 * 128 + 32 * 64 },
    { rows: 32 * 128, cols: 64 },
  ]);
});

Deno.test("delta nets: invalid sizes are rejected", () => {
  const refused = (change: JsonObject, part: string) => {
    const config = jsonConfig({ ...JSON_SIZES, ...change });
    const error = assertThrows(() => deltaNetConfig(config, "grouped"), ForgeError, part);
    assertEquals(error.code, "bad_model");
  };
  refused({ linear_num_key_heads: 5 }, "a divisor of the 32 value heads");
  refused({ linear_num_key_heads: 64 }, "a whole number from 1 to 32");
  refused({ linear_num_value_heads: 1e9 }, "a whole number from 1 to 4096");
  refused({ linear_key_head_dim: 0 }, 'linear_key_head_dim is "0"');
  refused({ linear_value_head_dim: null }, "linear_value_head_dim is missing");
  refused({ linear_conv_kernel_dim: 1 }, "a whole number from 2 to 64");
  refused({ linear_conv_kernel_dim: 65 }, "a whole number from 2 to 64");
  const gguf = ggufConfig({
    "ssm.group_count": 2,
    "ssm.time_step_rank": 6,
    "ssm.state_size": 8,
    "ssm.inner_size": 50,
    "ssm.conv_kernel": 4,
  }, "qwen35");
  assertThrows(() => deltaNetConfig(gguf, "tiled"), ForgeError, "a multiple of the 6 value heads");
});

const MODEL: JsonObject = {
  ...JSON_SIZES,
  model_type: "qwen3_5_text",
  hidden_size: 64,
  intermediate_size: 96,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 16,
  rms_norm_eps: 1e-6,
  max_position_embeddings: 256,
  vocab_size: 32,
};

function refusedModel(config: JsonObject, part: string, code: ForgeError["code"]): void {
  const checkpoint = fakeCheckpoint({
    config,
    tensors: { "model.embed_tokens.weight": [32, 64], "lm_head.weight": [32, 64] },
  });
  const error = assertThrows(
    () => findFamily(checkpoint).load(new ModelSource(new FakeBackend(), checkpoint)),
    ForgeError,
    part,
  );
  assertEquals(error.code, code);
}

Deno.test("hybrid models: unknown types of layers and missing tensors are rejected", () => {
  const types = ["linear_attention", "mamba", "linear_attention", "full_attention"];
  refusedModel({ ...MODEL, layer_types: types }, 'layer 1 is of the type "mamba"', "unsupported");
  refusedModel({ ...MODEL, layer_types: ["full_attention"] }, "each of 4 layers", "bad_model");
  refusedModel({ ...MODEL, full_attention_interval: 0 }, "full_attention_interval", "bad_model");
  refusedModel(MODEL, "model.layers.0.input_layernorm.weight", "bad_model");
  const moe = { ...MODEL, model_type: "qwen3_5_moe_text", num_experts: 4 };
  refusedModel(moe, "model.layers.0.input_layernorm.weight", "bad_model");
});

Deno.test("hybrid models: layers for multi-token prediction are not loaded", () => {
  const keys = {
    block_count: 2,
    nextn_predict_layers: 2,
    context_length: 64,
    embedding_length: 64,
    feed_forward_length: 96,
    "attention.head_count": 4,
    "attention.key_length": 16,
    "attention.layer_norm_rms_epsilon": 1e-6,
  };
  const named = Object.entries(keys).map(([key, value]) => [`qwen35.${key}`, value]);
  const checkpoint = fakeCheckpoint({
    metadata: { "general.architecture": "qwen35", ...Object.fromEntries(named) },
  });
  assertThrows(
    () => findFamily(checkpoint).load(new ModelSource(new FakeBackend(), checkpoint)),
    ForgeError,
    `qwen35.nextn_predict_layers is "2"; expected a whole number from 0 to 1`,
  );
});

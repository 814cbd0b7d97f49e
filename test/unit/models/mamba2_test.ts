/** Configurations of models with Mamba-2 layers. */
import { assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { ModelSource } from "../../../src/models/causal_lm.ts";
import { BAMBA_NAMES, mamba2Config, mamba2States } from "../../../src/models/parts/mamba2.ts";
import { findFamily } from "../../../src/models/registry.ts";
import { FakeBackend, fakeCheckpoint, ggufConfig, jsonConfig } from "./fakes.ts";

const JSON_SIZES: JsonObject = {
  hidden_act: "silu",
  mamba_n_heads: 32,
  mamba_d_head: 64,
  mamba_n_groups: 8,
  mamba_d_state: 128,
  mamba_d_conv: 4,
  mamba_expand: 2,
  mamba_conv_bias: true,
};
const NAMES = { ...BAMBA_NAMES, inner: "mamba_d_ssm" };
const HIDDEN = 1024;

Deno.test("Mamba-2: sizes from config.json and from GGUF", () => {
  const sizes = { nHeads: 32, headDim: 64, nGroups: 8, dState: 128, convWidth: 4 } as const;
  const common = { ...sizes, convActivation: "silu", dtLimits: [0, Infinity] } as const;
  const written = mamba2Config(jsonConfig(JSON_SIZES), HIDDEN, NAMES);
  const none = { bias: "none", outputBias: "none" } as const;
  assertEquals(written, { ...common, ...none, convBias: "required" });
  const auto = { ...JSON_SIZES, mamba_d_head: "auto" };
  assertEquals(mamba2Config(jsonConfig(auto), HIDDEN, NAMES), written);
  const narrower = jsonConfig({ ...auto, mamba_d_ssm: 1024 });
  assertEquals(mamba2Config(narrower, HIDDEN, NAMES).headDim, 32);
  const gguf = ggufConfig({
    "ssm.group_count": 8,
    "ssm.time_step_rank": 32,
    "ssm.state_size": 128,
    "ssm.inner_size": 2048,
    "ssm.conv_kernel": 4,
  }, "granitehybrid");
  const optional = { bias: "optional", outputBias: "optional", convBias: "optional" } as const;
  assertEquals(mamba2Config(gguf, HIDDEN, NAMES), { ...common, ...optional });
  assertEquals(mamba2States(written), [
    { rows: 3, cols: 2048 + 2 * 8 * 128 },
    { rows: 32 * 128, cols: 64 },
  ]);
});

Deno.test("Mamba-2: limits of the time steps, which Python writes as it likes", () => {
  const limits = (time_step_limit: unknown) =>
    mamba2Config(jsonConfig({ ...JSON_SIZES, time_step_limit } as JsonObject), HIDDEN, NAMES)
      .dtLimits;
  assertEquals(limits([0.5, { __float__: "Infinity" }]), [0.5, Infinity]);
  assertEquals(limits([0.5, 0.75]), [0.5, 0.75]);
  assertEquals(limits([0.5, 0.5]), [0.5, 0.5]);
  for (const wrong of [[1], [2, 1], [-1, 1], [0, "x"], "0", [0, { __float__: "NaN" }], [0, {}]]) {
    const message = "two numbers from 0 in their order";
    assertThrows(() => limits(wrong), ForgeError, message);
    assertThrows(() => limits(wrong), ForgeError, "time_step_limit is");
  }
});

Deno.test("Mamba-2: invalid sizes are rejected", () => {
  const refused = (change: JsonObject, part: string) => {
    const config = jsonConfig({ ...JSON_SIZES, ...change });
    const error = assertThrows(() => mamba2Config(config, HIDDEN, NAMES), ForgeError, part);
    assertEquals(error.code, "bad_model");
  };
  refused({ mamba_n_groups: 5 }, "a divisor of the 32 heads");
  refused({ mamba_n_heads: 0 }, 'mamba_n_heads is "0"');
  refused({ mamba_n_heads: 1e9 }, "a whole number from 1 to 4096");
  refused({ mamba_d_head: 60 }, 'mamba_d_head is "60"; expected a divisor of the width of 2048');
  refused({ mamba_d_head: "auto", mamba_d_ssm: 31 }, "a divisor of the width of 31 for 32 heads");
  const wide = { mamba_d_head: "auto", mamba_n_heads: 1, mamba_n_groups: 1, mamba_d_ssm: 8192 };
  refused(wide, "a divisor of the width of 8192 for 1 heads");
  refused({ mamba_d_state: null }, "mamba_d_state is missing");
  refused({ mamba_d_conv: 65 }, "a whole number from 2 to 64");
});

const MODEL: JsonObject = {
  ...JSON_SIZES,
  model_type: "granitemoehybrid",
  hidden_size: HIDDEN,
  num_hidden_layers: 2,
  num_attention_heads: 8,
  vocab_size: 32,
};

function refusedModel(model: Parameters<typeof fakeCheckpoint>[0], part: string): void {
  const checkpoint = fakeCheckpoint({
    tensors: { "model.embed_tokens.weight": [32, HIDDEN], "lm_head.weight": [32, HIDDEN] },
    ...model,
  });
  const load = () => findFamily(checkpoint).load(new ModelSource(new FakeBackend(), checkpoint));
  assertThrows(load, ForgeError, part);
}

Deno.test("models with Mamba-2: unknown layers and invalid factors are rejected", () => {
  const granite = (change: JsonObject) => ({ config: { ...MODEL, ...change } });
  refusedModel(granite({ layer_types: ["mamba", "conv"] }), 'layer_types is "conv"');
  refusedModel(granite({ layer_types: ["mamba"] }), "an entry for each of 2 layers");
  refusedModel(granite({}), "model.layers.0.input_layernorm.weight");
  const nemotron = (change: JsonObject) => ({
    config: { ...MODEL, model_type: "nemotron_h", mamba_num_heads: 32, n_groups: 8, ...change },
  });
  refusedModel(nemotron({ hybrid_override_pattern: "M*x" }), 'hybrid_override_pattern is "x"');
  refusedModel(nemotron({ hybrid_override_pattern: "" }), "a list with the type of each layer");
  refusedModel(nemotron({ layers_block_type: ["mamba", 3] }), 'layers_block_type is "3"');
  refusedModel(nemotron({ layers_block_type: ["constructor"] }), 'is "constructor"');
  refusedModel(nemotron({ hybrid_override_pattern: "ME", mlp_hidden_act: "silu" }), '"relu2"');
  const falcon = (change: JsonObject) => ({
    config: { ...MODEL, model_type: "falcon_h1", mamba_d_ssm: 2048, ...change },
  });
  refusedModel(falcon({ ssm_multipliers: [1, 1] }), "a list of 5 numbers above 0");
  refusedModel(falcon({ mlp_multipliers: [1, 0] }), "a list of 2 numbers above 0");
  refusedModel(falcon({ mlp_multipliers: "ab" }), "a list of 2 numbers above 0");
  refusedModel(falcon({ key_multiplier: -1 }), "key_multiplier");
  const bamba = { ...MODEL, model_type: "bamba", attn_layer_indices: 1 };
  refusedModel({ config: bamba }, 'attn_layer_indices is "1"; expected a list of layers');
  refusedModel({ config: { ...bamba, attn_layer_indices: [2] } }, "counted from 0, of 2");
});

Deno.test("a GGUF file of Bamba, which rotates parts of heads, is rejected", () => {
  const keys = {
    block_count: 2,
    context_length: 64,
    embedding_length: HIDDEN,
    feed_forward_length: 96,
    "attention.head_count": 4,
    "attention.head_count_kv": [0, 4],
    "attention.layer_norm_rms_epsilon": 1e-5,
    "rope.scaling.finetuned": true,
    "rope.dimension_count": 128,
    "ssm.group_count": 8,
    "ssm.time_step_rank": 32,
    "ssm.state_size": 128,
    "ssm.inner_size": 2048,
    "ssm.conv_kernel": 4,
  };
  const named = Object.entries(keys).map(([key, value]) => [`granitehybrid.${key}`, value]);
  const metadata = { "general.architecture": "granitehybrid", ...Object.fromEntries(named) };
  refusedModel({ metadata }, "forge supports rotation of whole heads, of 256, in GGUF");
});

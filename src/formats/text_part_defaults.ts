import type { JsonObject } from "./json.ts";

/** Llama's and Mistral's settings in common. */
const LLAMA: JsonObject = {
  vocab_size: 32_000,
  hidden_size: 4096,
  intermediate_size: 11_008,
  num_hidden_layers: 32,
  num_attention_heads: 32,
  rms_norm_eps: 1e-6,
  max_position_embeddings: 2048,
};

const QWEN: JsonObject = {
  vocab_size: 151_936,
  hidden_size: 4096,
  intermediate_size: 22_016,
  num_hidden_layers: 32,
  num_attention_heads: 32,
  num_key_value_heads: 32,
  rms_norm_eps: 1e-6,
  max_position_embeddings: 32_768,
};

/** What the kinds of Qwen3.5 have in common. */
const HYBRID_QWEN: JsonObject = {
  vocab_size: 248_320,
  num_attention_heads: 16,
  head_dim: 256,
  rms_norm_eps: 1e-6,
  max_position_embeddings: 32_768,
  partial_rotary_factor: 0.25,
  linear_conv_kernel_dim: 4,
  linear_key_head_dim: 128,
  linear_value_head_dim: 128,
  linear_num_key_heads: 16,
  linear_num_value_heads: 32,
};

/**
 * Settings of a text part by its `model_type`: the defaults of transformers. Multimodal models are often
 * published with those settings alone that differ from them.
 */
export const TEXT_PART_DEFAULTS: Readonly<Record<string, JsonObject>> = {
  gemma3_text: {
    vocab_size: 262_208,
    hidden_size: 2304,
    intermediate_size: 9216,
    num_hidden_layers: 26,
    num_attention_heads: 8,
    num_key_value_heads: 4,
    head_dim: 256,
    rms_norm_eps: 1e-6,
    max_position_embeddings: 131_072,
    query_pre_attn_scalar: 256,
    sliding_window: 4096,
  },
  llama: LLAMA,
  mistral: {
    ...LLAMA,
    intermediate_size: 14_336,
    num_key_value_heads: 8,
    max_position_embeddings: 131_072,
    sliding_window: 4096,
  },
  ministral3: {
    ...LLAMA,
    vocab_size: 131_072,
    intermediate_size: 14_336,
    num_hidden_layers: 34,
    num_key_value_heads: 8,
    head_dim: 128,
    rms_norm_eps: 1e-5,
    max_position_embeddings: 262_144,
  },
  qwen2: QWEN,
  qwen3_5_text: {
    ...HYBRID_QWEN,
    hidden_size: 4096,
    intermediate_size: 12_288,
    num_hidden_layers: 32,
    num_key_value_heads: 4,
  },
  qwen3_5_moe_text: {
    ...HYBRID_QWEN,
    hidden_size: 2048,
    num_hidden_layers: 40,
    num_key_value_heads: 2,
    num_experts: 256,
    num_experts_per_tok: 8,
    moe_intermediate_size: 512,
    shared_expert_intermediate_size: 512,
  },
  qwen3: { ...QWEN, head_dim: 128 },
};

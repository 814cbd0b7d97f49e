/** Configurations of well-known models that are more than a shape: experts, sliding windows. */
import type { JsonObject } from "../formats/json.ts";
import { SHAPES } from "./synthetic_shapes.ts";

/** By the names that `--synthetic` knows them by, as their config.json on the hub has them. */
export const CONFIGS: Readonly<Record<string, JsonObject>> = {
  "gemma-3-1b": {
    model_type: "gemma3_text",
    num_hidden_layers: 26,
    hidden_size: 1152,
    intermediate_size: 6912,
    num_attention_heads: 4,
    num_key_value_heads: 1,
    head_dim: 256,
    vocab_size: 262144,
    max_position_embeddings: 32768,
    rms_norm_eps: 1e-6,
    hidden_activation: "gelu_pytorch_tanh",
    query_pre_attn_scalar: 256,
    sliding_window: 512,
    sliding_window_pattern: 6,
    rope_theta: 1000000,
    rope_local_base_freq: 10000,
    tie_word_embeddings: true,
  },
  "qwen3-30b-a3b": {
    model_type: "qwen3_moe",
    num_hidden_layers: 48,
    hidden_size: 2048,
    intermediate_size: 6144,
    moe_intermediate_size: 768,
    num_experts: 128,
    num_experts_per_tok: 8,
    norm_topk_prob: true,
    num_attention_heads: 32,
    num_key_value_heads: 4,
    head_dim: 128,
    vocab_size: 151936,
    max_position_embeddings: 40960,
    rms_norm_eps: 1e-6,
    rope_theta: 1000000,
    tie_word_embeddings: false,
  },
  "mixtral-8x7b": {
    model_type: "mixtral",
    num_hidden_layers: 32,
    hidden_size: 4096,
    intermediate_size: 14336,
    num_local_experts: 8,
    num_experts_per_tok: 2,
    num_attention_heads: 32,
    num_key_value_heads: 8,
    vocab_size: 32000,
    max_position_embeddings: 32768,
    rms_norm_eps: 1e-5,
    rope_theta: 1000000,
    tie_word_embeddings: false,
  },
};

/** Every name that `--synthetic` knows. */
export const SYNTHETIC_NAMES: readonly string[] = [...Object.keys(SHAPES), ...Object.keys(CONFIGS)];

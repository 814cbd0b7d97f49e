/**
 * Writes small models with random weights whose layers alternate gated delta rule and attention.
 */
import { float32Tensor, type TensorData } from "../../src/formats/tensor_data.ts";
import { Random } from "./random.ts";
import { type TinyLlama, type TinyLlamaOptions, writeRandomLlama } from "./tiny_llama.ts";

const HIDDEN = 64, HEADS = 4, HEAD_DIM = 16;
const K_HEADS = 2, V_HEADS = 4, K_DIM = 8, V_DIM = 24, CONV_WIDTH = 4;
const QKV = 2 * K_HEADS * K_DIM + V_HEADS * V_DIM;

/** Every second layer has a recurrent state; the family is Qwen3.5. */
export function writeRandomHybrid(
  folder: string,
  options: TinyLlamaOptions = {},
  seed = 1,
): TinyLlama {
  return writeRandomLlama(folder, {
    ...options,
    config: {
      model_type: "qwen3_5_text",
      layer_types: ["linear_attention", "full_attention"],
      linear_num_key_heads: K_HEADS,
      linear_num_value_heads: V_HEADS,
      linear_key_head_dim: K_DIM,
      linear_value_head_dim: V_DIM,
      linear_conv_kernel_dim: CONV_WIDTH,
      partial_rotary_factor: 0.5,
      ...options.config,
    },
    change: (tensors) => {
      const kept = tensors.filter(({ name }) => !/layers\.(0\.self_attn|1.*q_proj)/.test(name));
      const changed = [...kept, ...deltaNet(seed), ...gatedAttention(seed)];
      return options.change?.(changed) ?? changed;
    },
  }, seed);
}

function random(name: string, shape: readonly number[], seed: number, deviation = 0.2): TensorData {
  const count = shape.reduce((product, size) => product * size, 1);
  return float32Tensor(name, shape, new Random(name, seed).normals(count, deviation));
}

function deltaNet(seed: number): TensorData[] {
  const at = "model.layers.0.linear_attn";
  return [
    random(`${at}.in_proj_qkv.weight`, [QKV, HIDDEN], seed),
    random(`${at}.in_proj_z.weight`, [V_HEADS * V_DIM, HIDDEN], seed),
    random(`${at}.in_proj_b.weight`, [V_HEADS, HIDDEN], seed),
    random(`${at}.in_proj_a.weight`, [V_HEADS, HIDDEN], seed),
    random(`${at}.conv1d.weight`, [QKV, 1, CONV_WIDTH], seed, 0.6),
    // Slow decay, so that distant tokens still matter.
    float32Tensor(`${at}.A_log`, [V_HEADS], new Float32Array(V_HEADS).fill(-3)),
    random(`${at}.dt_bias`, [V_HEADS], seed),
    float32Tensor(`${at}.norm.weight`, [V_DIM], new Float32Array(V_DIM).fill(1)),
    random(`${at}.out_proj.weight`, [HIDDEN, V_HEADS * V_DIM], seed),
  ];
}

function gatedAttention(seed: number): TensorData[] {
  const at = "model.layers.1.self_attn";
  return [
    random(`${at}.q_proj.weight`, [2 * HEADS * HEAD_DIM, HIDDEN], seed),
    random(`${at}.q_norm.weight`, [HEAD_DIM], seed),
    random(`${at}.k_norm.weight`, [HEAD_DIM], seed),
  ];
}

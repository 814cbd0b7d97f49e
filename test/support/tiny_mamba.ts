/** Writes small models with random weights whose layers compute Mamba-2 next to attention. */
import { float32Tensor, type TensorData } from "../../src/formats/tensor_data.ts";
import { Random } from "./random.ts";
import { type TinyLlama, type TinyLlamaOptions, writeRandomLlama } from "./tiny_llama.ts";

const HIDDEN = 64, HEADS = 4, HEAD_DIM = 24, GROUPS = 2, D_STATE = 20, CONV_WIDTH = 4;
const INNER = HEADS * HEAD_DIM, CONV = INNER + 2 * GROUPS * D_STATE;

/** The family is Falcon-H1. */
export function writeRandomMamba(
  folder: string,
  options: TinyLlamaOptions = {},
  seed = 1,
): TinyLlama {
  return writeRandomLlama(folder, {
    ...options,
    config: {
      model_type: "falcon_h1",
      mamba_d_ssm: INNER,
      mamba_n_heads: HEADS,
      mamba_d_head: HEAD_DIM,
      mamba_n_groups: GROUPS,
      mamba_d_state: D_STATE,
      mamba_d_conv: CONV_WIDTH,
      ...options.config,
    },
    change: (tensors) => {
      const renamed = tensors.map((tensor) => ({ ...tensor, name: falconName(tensor.name) }));
      const changed = [...renamed, ...mamba(0, seed), ...mamba(1, seed)];
      return options.change?.(changed) ?? changed;
    },
  }, seed);
}

function falconName(name: string): string {
  return name.replace(".mlp.", ".feed_forward.").replace(/^model\.norm/, "model.final_layernorm")
    .replace("post_attention_layernorm", "pre_ff_layernorm");
}

function mamba(layer: number, seed: number): TensorData[] {
  const at = `model.layers.${layer}.mamba`;
  const random = (name: string, shape: readonly number[], deviation = 0.2) => {
    const count = shape.reduce((product, size) => product * size, 1);
    const values = new Random(`${at}.${name}`, seed).normals(count, deviation);
    return float32Tensor(`${at}.${name}`, shape, values);
  };
  return [
    random("in_proj.weight", [INNER + CONV + HEADS, HIDDEN]),
    random("conv1d.weight", [CONV, 1, CONV_WIDTH], 0.6),
    random("conv1d.bias", [CONV]),
    // Slow decay, so that distant tokens still matter.
    float32Tensor(`${at}.A_log`, [HEADS], new Float32Array(HEADS).fill(-3)),
    random("dt_bias", [HEADS]),
    random("D", [HEADS]),
    random("out_proj.weight", [HIDDEN, INNER]),
  ];
}

/** Hunyuan (dense): Llama whose queries and keys are normalised after they are rotated. Tencent, 2025. */
import {
  type AttentionNames,
  biasRule,
  loadAttention,
  loadGatedMlp,
  loadRmsNorm,
} from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "../parts/decoder.ts";
import { decoderConfig } from "../config/decoder_config.ts";

const NAMES: AttentionNames = {
  qNorm: ["self_attn.query_layernorm", "attn_q_norm"],
  kNorm: ["self_attn.key_layernorm", "attn_k_norm"],
  out: ["self_attn.o_proj", "attn_output"],
};

export const hunyuan: Family = {
  huggingFace: ["hunyuan_v1_dense"],
  gguf: ["hunyuan-dense"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const { scale, ...turn } = loadRope(source, c, { layout: "half" });
    // What YaRN multiplies rotated queries and keys with, their norms take out again but for its share of epsilon.
    const rope = { ...turn, scale: 1 };
    const heads = { ...c, normEps: c.normEps / scale ** 2 };
    const bias = biasRule(config, "attention_bias", false);
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, heads, i, {
            rope,
            bias,
            outputBias: bias,
            qkNorm: "rotated head",
            names: NAMES,
          }),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: loadGatedMlp(weights, c),
        }),
    });
  },
};

/** Hunyuan (dense): Llama with RMSNorm on each head of q and k after rotation. Tencent, 2025. */
import type { Family } from "../causal_lm.ts";
import { decoderConfig } from "../config/decoder_config.ts";
import { type AttentionNames, biasRule, loadAttention, loadGatedMlp } from "../parts/blocks.ts";
import { loadRope, preNormDecoder } from "../parts/decoder.ts";

const NAMES: AttentionNames = {
  qNorm: ["self_attn.query_layernorm", "attn_q_norm"],
  kNorm: ["self_attn.key_layernorm", "attn_k_norm"],
  out: ["self_attn.o_proj", "attn_output"],
};

export const hunyuan: Family = {
  huggingFace: ["hunyuan_v1_dense"],
  gguf: ["hunyuan-dense"],
  writes: { hunyuan_v1_dense: { architecture: "hunyuan-dense" } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const { scale, ...rotation } = loadRope(source, c, { layout: "half" });
    // The norms cancel YaRN's scale of rotated queries and keys, except for its effect on epsilon.
    const rope = { ...rotation, scale: 1 };
    const heads = { ...c, normEps: c.normEps / scale ** 2 };
    const bias = biasRule(config, "attention_bias");
    return preNormDecoder(source, c, {
      attention: (weights, i) =>
        loadAttention(weights, heads, i, {
          rope,
          bias,
          outputBias: bias,
          qkNorm: "rotated head",
          names: NAMES,
        }),
      mlp: (weights) => loadGatedMlp(weights, c),
    });
  },
};

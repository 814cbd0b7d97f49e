/** GLM-4 and its successors: rotation of half a head. */
import type { Family } from "../causal_lm.ts";
import { decoderConfig } from "../config/decoder_config.ts";
import { biasRule, loadAttention, loadGatedMlp } from "../parts/blocks.ts";
import {
  loadRope,
  POST_ATTENTION_NORM,
  preNormDecoder,
  sandwichNormDecoder,
} from "../parts/decoder.ts";
import { sharedExpertMlp } from "../parts/shared_expert_moe.ts";

/**
 * GLM-4 (0414), and the text part of GLM-4.1V: norms before and after each block, pairs of
 * neighbouring elements.
 */
export const glm4: Family = {
  huggingFace: ["glm4"],
  gguf: ["glm4"],
  writes: { glm4: { architecture: "glm4" } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    // GGUF files of multimodal models have this key, and store heads for pairs that are half a head
    // apart.
    const isMultimodal = config.raw([undefined, "rope.dimension_sections"]) !== undefined;
    const rope = loadRope(source, c, { layout: isMultimodal ? "half" : "interleaved" });
    const bias = biasRule(config, "attention_bias");
    return sandwichNormDecoder(source, c, {
      postAttentionNorm: ["post_self_attn_layernorm", "post_attention_norm"],
      preMlpNorm: ["post_attention_layernorm", "ffn_norm"],
      postMlpNorm: ["post_mlp_layernorm", "post_ffw_norm"],
      attention: (weights, i) => loadAttention(weights, c, i, { rope, bias }),
      mlp: (weights) => loadGatedMlp(weights, c),
    });
  },
};

/** GLM-4.5 to 4.7: experts next to a shared one. GLM-4.5 Team, arXiv:2508.06471. */
export const glm4Moe: Family = {
  huggingFace: ["glm4_moe"],
  gguf: ["glm4moe"],
  writes: { glm4_moe: { architecture: "glm4moe", mayPredict: true } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: "half" });
    const bias = biasRule(config, "attention_bias");
    const hasNorms = config.isGguf
      ? source.weights.layer(0).has([undefined, "attn_q_norm"])
      : config.boolean(["use_qk_norm", undefined]);
    const qkNorm = hasNorms ? "head" : undefined;
    return preNormDecoder(source, c, {
      mlpNorm: POST_ATTENTION_NORM,
      attention: (weights, i) => loadAttention(weights, c, i, { rope, bias, qkNorm }),
      mlp: sharedExpertMlp(config, c, { firstDense: 1, scores: "sigmoid" }),
    });
  },
};

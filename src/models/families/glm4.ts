/**
 * GLM-4 (0414), and the text part of GLM-4.1V: norms on both sides of each part, rotation of half of a head in adjacent
 * pairs.
 */
import { biasRule, loadAttention, loadGatedMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import {
  INPUT_NORM,
  loadDecoder,
  loadRope,
  MLP_NORM,
  sandwichNormLayer,
} from "../parts/decoder.ts";
import { decoderConfig } from "../config/decoder_config.ts";

export const glm4: Family = {
  huggingFace: ["glm4"],
  gguf: ["glm4"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    // GGUF files of multimodal models say how positions are divided, and hold heads in the order of halves.
    const isDivided = config.raw([undefined, "rope.dimension_sections"]) !== undefined;
    const rope = loadRope(source, c, { layout: isDivided ? "half" : "interleaved" });
    const bias = biasRule(config, "attention_bias", false);
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        sandwichNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, { rope, bias }),
          postAttentionNorm: loadRmsNorm(weights, c, [
            "post_self_attn_layernorm",
            "post_attention_norm",
          ]),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: loadGatedMlp(weights, c),
          postMlpNorm: loadRmsNorm(weights, c, ["post_mlp_layernorm", "post_ffw_norm"]),
        }),
    });
  },
};

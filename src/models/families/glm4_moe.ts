/** GLM-4.5 to 4.7: experts beside a shared one, rotation of half a head. GLM-4.5 Team, arXiv:2508.06471. */
import { biasRule, loadAttention, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, preNormLayer } from "../parts/decoder.ts";
import { decoderConfig } from "../config/decoder_config.ts";
import { sharedExpertMlp } from "../parts/shared_expert_moe.ts";

export const glm4Moe: Family = {
  huggingFace: ["glm4_moe"],
  gguf: ["glm4moe"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: "half" });
    const bias = biasRule(config, "attention_bias", false);
    const mlp = sharedExpertMlp(config, c, { firstDense: 1, scores: "sigmoid" });
    const hasNorms = config.isGguf
      ? source.weights.layer(0).has([undefined, "attn_q_norm"])
      : config.boolean(["use_qk_norm", undefined], false);
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, {
            rope,
            bias,
            qkNorm: hasNorms ? "head" : undefined,
          }),
          mlpNorm: loadRmsNorm(weights, c, ["post_attention_layernorm", "post_attention_norm"]),
          mlp: mlp(weights, i),
        }),
    });
  },
};

/** ByteDance Seed-OSS: Llama with biases on q, k and v. */
import { biasRule, loadAttention, loadGatedMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, preNormLayer } from "../parts/decoder.ts";
import { decoderConfig } from "../config/decoder_config.ts";

export const seedOss: Family = {
  huggingFace: ["seed_oss"],
  gguf: ["seed_oss"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: "half" });
    const attention = {
      rope,
      bias: biasRule(config, "attention_bias", true),
      outputBias: biasRule(config, "attention_out_bias", false),
    };
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, attention),
          mlpNorm: loadRmsNorm(weights, c, ["post_attention_layernorm", "post_attention_norm"]),
          mlp: loadGatedMlp(weights, c),
        }),
    });
  },
};

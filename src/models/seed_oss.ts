/** ByteDance Seed-OSS: Llama with biases on q, k and v. */
import { loadAttention, loadGatedMlp, loadRmsNorm } from "./blocks.ts";
import type { Family } from "./causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, preNormLayer } from "./decoder.ts";
import { decoderConfig } from "./decoder_config.ts";

export const seedOss: Family = {
  huggingFace: ["seed_oss"],
  gguf: ["seed_oss"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: "half" });
    const hasBias = config.boolean(["attention_bias", undefined], true);
    const hasOutBias = config.boolean(["attention_out_bias", undefined], false);
    const attention = {
      rope,
      bias: config.isGguf ? "optional" : hasBias ? "required" : "none",
      outputBias: config.isGguf ? "optional" : hasOutBias ? "required" : "none",
    } as const;
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

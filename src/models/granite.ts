/** IBM Granite 3: Llama with multipliers on embeddings, attention, residuals and logits. */
import { biasRule, loadAttention, loadGatedMlp, loadRmsNorm } from "./blocks.ts";
import type { Family } from "./causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "./decoder.ts";
import { decoderConfig } from "./decoder_config.ts";

export const granite: Family = {
  huggingFace: ["granite"],
  gguf: ["granite"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: config.isGguf ? "interleaved" : "half" });
    const outputScale = config.number(["residual_multiplier", "residual_scale"], 1);
    const bias = biasRule(config, "attention_bias", false);
    const attention = {
      rope,
      scale: config.positive(["attention_multiplier", "attention.scale"], c.headDim ** -0.5),
      bias,
      outputBias: bias,
      outputScale,
    };
    return loadDecoder(source, c, {
      embeddingScale: config.number(["embedding_multiplier", "embedding_scale"], 1),
      head: { scale: 1 / config.positive(["logits_scaling", "logit_scale"], 1) },
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, attention),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: loadGatedMlp(weights, c, { outputScale }),
        }),
    });
  },
};

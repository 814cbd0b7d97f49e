/** Arcee's AFM: Llama with an MLP without a gate, whose activation is the square of what is positive. 2025. */
import { biasRule, loadAttention, loadPlainMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "../parts/decoder.ts";
import { decoderConfig } from "../config/decoder_config.ts";

export const arcee: Family = {
  huggingFace: ["arcee"],
  gguf: ["arcee"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config, { activation: "relu_squared" });
    const rope = loadRope(source, c, { layout: config.isGguf ? "interleaved" : "half" });
    const bias = biasRule(config, "attention_bias", false);
    const mlpBias = biasRule(config, "mlp_bias", false);
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, { rope, bias, outputBias: bias }),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: loadPlainMlp(weights, c, { bias: mlpBias }),
        }),
    });
  },
};

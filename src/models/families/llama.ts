/**
 * Llama 1 to 3.x and everything that is shaped like it: pre-norm, RoPE, grouped-query attention, a
 * gated SiLU MLP. H. Touvron et al., "LLaMA", arXiv:2302.13971.
 */
import { biasRule, loadAttention, loadGatedMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "../parts/decoder.ts";
import { decoderConfig } from "../config/decoder_config.ts";

export const llama: Family = {
  huggingFace: ["llama"],
  gguf: ["llama"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: config.isGguf ? "interleaved" : "half" });
    const bias = biasRule(config, "attention_bias", false);
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, { rope, bias, outputBias: bias }),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: loadGatedMlp(weights, c, { bias: biasRule(config, "mlp_bias", false) }),
        }),
    });
  },
};

/**
 * Gemma: Llama with scaled embeddings, GELU in the MLP and norms that add 1 to their weight.
 * Gemma Team, arXiv:2403.08295.
 */
import { loadAttention, loadGatedMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "../parts/decoder.ts";
import { decoderConfig } from "../config/decoder_config.ts";

export const gemma: Family = {
  huggingFace: ["gemma"],
  gguf: ["gemma"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config, { activation: "gelu_tanh" });
    // The first files say "gelu" and mean its tanh form, as does everything that runs them.
    const activation = c.activation === "gelu_erf" ? "gelu_tanh" : c.activation;
    const rope = loadRope(source, c, { layout: "half" });
    // llama.cpp's converter adds the 1 when it writes the file.
    const norm = { weightOffset: config.isGguf ? 0 : 1 };
    return loadDecoder(source, c, {
      embeddingScale: Math.sqrt(c.hiddenSize),
      norm,
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM, norm),
          attention: loadAttention(weights, c, i, { rope }),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM, norm),
          mlp: loadGatedMlp(weights, c, { activation }),
        }),
    });
  },
};

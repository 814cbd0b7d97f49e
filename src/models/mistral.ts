/**
 * Mistral 7B and its successors: Llama with an optional sliding window. In GGUF it is stored as
 * `llama`. A. Q. Jiang et al., "Mistral 7B", arXiv:2310.06825.
 */
import { loadAttention, loadGatedMlp, loadRmsNorm } from "./blocks.ts";
import type { Family } from "./causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "./decoder.ts";
import { decoderConfig, slidingWindows } from "./decoder_config.ts";

export const mistral: Family = {
  huggingFace: ["mistral"],
  gguf: [],
  load(source) {
    const c = decoderConfig(source.config);
    const rope = loadRope(source, c, { layout: "half" });
    const windows = slidingWindows(source.config, c.nLayers, undefined);
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, { rope, window: windows[i] }),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: loadGatedMlp(weights, c),
        }),
    });
  },
};

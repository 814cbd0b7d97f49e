/**
 * EXAONE 4: what each part adds is normalised, q and k are normalised a head. Where layers have a sliding
 * window, those that attend to everything do so without positions. LG AI Research, arXiv:2507.11407.
 */
import { loadAttention, loadGatedMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import { loadDecoder, loadRope, postNormLayer } from "../parts/decoder.ts";
import { decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import { GEMMA_NORMS } from "./gemma2.ts";

export const exaone4: Family = {
  huggingFace: ["exaone4"],
  gguf: ["exaone4"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: "half" });
    const windows = slidingWindows(config, c.nLayers, 4);
    const isHybrid = windows.some((window) => window !== undefined);
    return loadDecoder(source, c, {
      layer: (weights, i) => {
        const window = windows[i];
        const rotates = window !== undefined || !isHybrid;
        return postNormLayer({
          attention: loadAttention(weights, c, i, {
            rope: rotates ? rope : undefined,
            window,
            qkNorm: "head",
          }),
          postAttentionNorm: loadRmsNorm(weights, c, GEMMA_NORMS.postAttention),
          mlp: loadGatedMlp(weights, c),
          postMlpNorm: loadRmsNorm(weights, c, GEMMA_NORMS.postMlp),
        });
      },
    });
  },
};

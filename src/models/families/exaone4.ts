/**
 * EXAONE 4: norms after each block, q and k normalised in each head. In models with sliding
 * windows, layers without a window have no positions. LG AI Research, arXiv:2507.11407.
 */
import type { Family } from "../causal_lm.ts";
import { decoderConfig, noteWindows, slidingWindows } from "../config/decoder_config.ts";
import { loadAttention, loadGatedMlp } from "../parts/blocks.ts";
import { loadRope, postNormDecoder } from "../parts/decoder.ts";

export const exaone4: Family = {
  huggingFace: ["exaone4"],
  gguf: ["exaone4"],
  writes: { exaone4: { architecture: "exaone4" } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: "half" });
    const windows = slidingWindows(config, c.nLayers, 4);
    noteWindows(config, windows);
    const isHybrid = windows.some((window) => window !== undefined);
    return postNormDecoder(source, c, {
      attention: (weights, i) => {
        const window = windows[i];
        const rotates = window !== undefined || !isHybrid;
        return loadAttention(weights, c, i, {
          rope: rotates ? rope : undefined,
          window,
          qkNorm: "head",
        });
      },
      mlp: (weights) => loadGatedMlp(weights, c),
    });
  },
};

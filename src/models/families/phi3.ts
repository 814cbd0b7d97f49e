/**
 * Phi-3 and Phi-3.5: Llama with q, k, v and gate, up stored as one matrix each, rotation of part of a
 * head, and LongRoPE. M. Abdin et al., arXiv:2404.14219.
 */
import { loadAttention, loadGatedMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "../parts/decoder.ts";
import { decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import { RopeParameters } from "../config/rope_parameters.ts";

/** Kinds of scaling, LongRoPE by both of its names. */
const SCALINGS = ["default", "longrope", "su", "none"];

export const phi3: Family = {
  huggingFace: ["phi3"],
  gguf: ["phi3"],
  load(source) {
    const c = decoderConfig(source.config);
    const scaling = RopeParameters.read(source.config, {});
    if (!SCALINGS.includes(scaling.type)) throw scaling.unsupported(SCALINGS);
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

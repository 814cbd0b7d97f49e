/**
 * Gemma 3 (text): Gemma 2 with RMSNorm on each head of q and k instead of soft-caps, five windowed
 * layers to each full one, and a base frequency for either kind. Gemma Team, arXiv:2503.19786.
 */
import { loadAttention, loadGatedMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, sandwichNormLayer } from "../parts/decoder.ts";
import { decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import { GEMMA_NORMS, gemmaAttentionScale, optionalCap } from "./gemma2.ts";

export const gemma3: Family = {
  huggingFace: ["gemma3_text"],
  gguf: ["gemma3"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config, { activation: "gelu_tanh" });
    const norm = { weightOffset: config.isGguf ? 0 : 1 };
    const period = config.int(["sliding_window_pattern", undefined], { fallback: 6 });
    const windows = slidingWindows(config, c.nLayers, period);
    const global = loadRope(source, c, {
      layout: "half",
      layerType: "full_attention",
    });
    const local = loadRope(source, c, {
      layout: "half",
      layerType: "sliding_attention",
      ggufSlidingTheta: 10_000,
    });
    const attention = {
      qkNorm: "head",
      normOffset: norm.weightOffset,
      scale: gemmaAttentionScale(config, c, 62),
      softcap: optionalCap(config, "attn_logit_softcapping"),
    } as const;
    return loadDecoder(source, c, {
      embeddingScale: Math.sqrt(c.hiddenSize),
      norm,
      head: { softcap: optionalCap(config, "final_logit_softcapping") },
      layer: (weights, i) => {
        const window = windows[i];
        const rope = window === undefined ? global : local;
        return sandwichNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM, norm),
          attention: loadAttention(weights, c, i, { ...attention, rope, window }),
          postAttentionNorm: loadRmsNorm(weights, c, GEMMA_NORMS.postAttention, norm),
          mlpNorm: loadRmsNorm(weights, c, GEMMA_NORMS.mlp, norm),
          mlp: loadGatedMlp(weights, c),
          postMlpNorm: loadRmsNorm(weights, c, GEMMA_NORMS.postMlp, norm),
        });
      },
    });
  },
};

/**
 * OLMo 2 and OLMo 3: what each part adds is normalised, q and k are normalised over all heads at once.
 * OLMo 3 adds a sliding window in three of four layers, without RoPE scaling; in GGUF it is
 * stored as `olmo2`. Team OLMo, arXiv:2501.00656.
 */
import { loadAttention, loadGatedMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import { loadDecoder, loadRope, postNormLayer } from "../parts/decoder.ts";
import { decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import { GEMMA_NORMS } from "./gemma2.ts";

export const olmo2: Family = {
  huggingFace: ["olmo2", "olmo3"],
  gguf: ["olmo2"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const windows = config.modelType === "olmo2" && !config.isGguf
      ? []
      : slidingWindows(config, c.nLayers, 4);
    const isHybrid = config.modelType === "olmo3" || config.isGguf;
    const ropeOf = (layerType: "full_attention" | "sliding_attention") =>
      loadRope(source, c, { layout: "half", layerType: isHybrid ? layerType : undefined });
    const global = ropeOf("full_attention");
    const local = ropeOf("sliding_attention");
    return loadDecoder(source, c, {
      layer: (weights, i) => {
        const window = windows[i];
        const rope = window === undefined ? global : local;
        return postNormLayer({
          attention: loadAttention(weights, c, i, { rope, window, qkNorm: "all" }),
          postAttentionNorm: loadRmsNorm(weights, c, GEMMA_NORMS.postAttention),
          mlp: loadGatedMlp(weights, c),
          postMlpNorm: loadRmsNorm(weights, c, GEMMA_NORMS.postMlp),
        });
      },
    });
  },
};

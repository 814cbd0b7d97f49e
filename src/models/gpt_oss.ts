/**
 * gpt-oss: experts with biases and a gated unit with limits, attention sinks, a sliding window in every
 * other layer. Read from GGUF alone: in safetensors the experts' matrices are stored transposed, or in
 * blocks of a layout of their own. OpenAI, arXiv:2508.10925.
 */
import { loadAttention, loadMoe, loadRmsNorm } from "./blocks.ts";
import type { Family } from "./causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, preNormLayer } from "./decoder.ts";
import { decoderConfig, slidingWindows } from "./decoder_config.ts";

export const gptOss: Family = {
  huggingFace: [],
  gguf: ["gpt-oss"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, {
      layout: "half",
      defaultTheta: 150_000,
      defaultTruncate: false,
    });
    const windows = slidingWindows(config, c.nLayers, 2);
    const nExperts = config.int([undefined, "expert_count"]);
    const experts = {
      nExperts,
      topK: config.int([undefined, "expert_used_count"], { max: nExperts }),
      intermediateSize: config.int([undefined, "expert_feed_forward_length"]),
      normalize: true,
      unit: "clamped_swiglu",
      hasBias: true,
    } as const;
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, {
            rope,
            window: windows[i],
            hasSinks: true,
            bias: "required",
            outputBias: "required",
          }),
          mlpNorm: loadRmsNorm(weights, c, [undefined, "post_attention_norm"]),
          mlp: loadMoe(weights, c, experts),
        }),
    });
  },
};

/**
 * gpt-oss: experts with biases and a gated unit with limits, attention sinks, a sliding window in every
 * other layer. OpenAI, arXiv:2508.10925.
 */
import { biasRule, loadAttention, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, preNormLayer } from "../parts/decoder.ts";
import { decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import { loadMoe } from "../parts/moe.ts";

export const gptOss: Family = {
  huggingFace: ["gpt_oss"],
  gguf: ["gpt-oss"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: "half", ggufTruncate: false });
    const bias = biasRule(config, "attention_bias", true);
    const windows = slidingWindows(config, c.nLayers, 2);
    const nExperts = config.int(["num_local_experts", "expert_count"]);
    const experts = {
      nExperts,
      topK: config.int(["num_experts_per_tok", "expert_used_count"], { max: nExperts }),
      intermediateSize: config.int(["intermediate_size", "expert_feed_forward_length"]),
      normalize: true,
      unit: "clamped_swiglu",
      hasBias: true,
      names: {
        router: "mlp.router",
        gateUp: "mlp.experts.gate_up_proj",
        down: "mlp.experts.down_proj",
        isTransposed: true,
        isInterleaved: true,
      },
    } as const;
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, {
            rope,
            window: windows[i],
            hasSinks: true,
            bias,
            outputBias: bias,
          }),
          mlpNorm: loadRmsNorm(weights, c, ["post_attention_layernorm", "post_attention_norm"]),
          mlp: loadMoe(weights, c, experts),
        }),
    });
  },
};

/**
 * gpt-oss: experts with biases and a clamped SwiGLU, attention sinks, a sliding window in every
 * other layer. OpenAI, arXiv:2508.10925.
 */
import type { Family } from "../causal_lm.ts";
import { decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import { biasRule, loadAttention } from "../parts/blocks.ts";
import { loadRope, POST_ATTENTION_NORM, preNormDecoder } from "../parts/decoder.ts";
import { loadMoe, readExpertCounts } from "../parts/moe.ts";

export const gptOss: Family = {
  huggingFace: ["gpt_oss"],
  gguf: ["gpt-oss"],
  writes: { gpt_oss: { architecture: "gpt-oss" } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: "half", ggufTruncate: false });
    const bias = biasRule(config, "attention_bias");
    const windows = slidingWindows(config, c.nLayers, 2);
    const experts = {
      ...readExpertCounts(config, ["num_local_experts", "expert_count"]),
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
    return preNormDecoder(source, c, {
      mlpNorm: POST_ATTENTION_NORM,
      attention: (weights, i) =>
        loadAttention(weights, c, i, {
          rope,
          window: windows[i],
          hasSinks: true,
          bias,
          outputBias: bias,
        }),
      mlp: (weights) => loadMoe(weights, c, experts),
    });
  },
};

/**
 * Phi-3.5-MoE and its smaller relatives: LayerNorm, LongRoPE with a factor of its own, and experts
 * chosen by sparsemixer. M. Abdin et al., arXiv:2404.14219; L. Liu et al., "GRIN",
 * arXiv:2409.12136.
 */
import type { Family } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import { decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import { RopeParameters } from "../config/rope_parameters.ts";
import { biasRule, loadAttention, loadLayerNorm } from "../parts/blocks.ts";
import { loadRope, preNormDecoder } from "../parts/decoder.ts";
import { loadMoe, MIXTRAL_EXPERTS, readExpertCounts } from "../parts/moe.ts";

const SCALING = ["default", "longrope", "su", "none"];

export const phimoe: Family = {
  huggingFace: ["phimoe"],
  gguf: ["phimoe"],
  writes: { phimoe: { architecture: "phimoe" } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const scaling = RopeParameters.read(config, {});
    if (!SCALING.includes(scaling.type)) throw scaling.unsupported(SCALING);
    const rope = loadRope(source, c, { layout: "half" });
    const windows = slidingWindows(config, c.nLayers, undefined);
    const bias = biasRule(config, "attention_bias");
    const experts = {
      ...readExperts(config),
      intermediateSize: c.intermediateSize,
      normalize: false,
      scores: "sparsemixer",
      threshold: 2 * readJitter(config),
      names: MIXTRAL_EXPERTS,
    } as const;
    return preNormDecoder(source, c, {
      loadNorm: loadLayerNorm,
      head: { bias: biasRule(config, "lm_head_bias") },
      attention: (weights, i) =>
        loadAttention(weights, c, i, { rope, window: windows[i], bias, outputBias: bias }),
      mlp: (weights) => loadMoe(weights, c, experts),
    });
  },
};

/** Reads the numbers of experts. transformers chooses two whatever the setting is. */
function readExperts(config: ConfigReader): ReturnType<typeof readExpertCounts> {
  const chosen: Key = ["num_experts_per_tok", "expert_used_count"];
  const counts = readExpertCounts(config, ["num_local_experts", "expert_count"], chosen);
  if (counts.topK !== 2) throw config.unsupported(chosen, counts.topK, "2 in this architecture");
  return counts;
}

/** Reads the jitter of training; sparsemixer compares logits with twice its size. */
function readJitter(config: ConfigReader): number {
  const key: Key = ["router_jitter_noise", undefined];
  const jitter = config.number(key, 0.01);
  if (jitter < 0) throw config.invalid(key, jitter, "a number of at least 0");
  return jitter;
}

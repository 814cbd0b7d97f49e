/**
 * ERNIE 4.5: Llama that rotates pairs of neighbouring elements; the larger sizes have experts next
 * to shared ones. Baidu, "ERNIE 4.5 Technical Report", 2025.
 */
import type { Family } from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import { type DecoderConfig, decoderConfig } from "../config/decoder_config.ts";
import { type BiasRule, biasRule, loadAttention, loadGatedMlp } from "../parts/blocks.ts";
import { type LoadBlock, loadRope, preNormDecoder } from "../parts/decoder.ts";
import { loadMoe, MLP_EXPERTS, type MoeParts, readExpertCounts } from "../parts/moe.ts";
import { addShared, SHARED_EXPERTS } from "../parts/shared_expert_moe.ts";

export const ernie4_5: Family = {
  huggingFace: ["ernie4_5", "ernie4_5_moe"],
  gguf: ["ernie4_5", "ernie4_5-moe"],
  writes: {
    ernie4_5: { architecture: "ernie4_5" },
    ernie4_5_moe: { architecture: "ernie4_5-moe" },
  },
  load(source) {
    const { config } = source;
    const bias = biasRule(config, "use_bias");
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: "interleaved" });
    const isDense = config.modelType === "ernie4_5";
    return preNormDecoder(source, c, {
      head: { bias: isDense ? "none" : bias },
      attention: (weights, i) => loadAttention(weights, c, i, { rope, bias, outputBias: bias }),
      mlp: isDense
        ? (weights) => loadGatedMlp(weights, c, { bias })
        : mixtureLoader(config, c, bias),
    });
  },
};

/**
 * Returns a loader of MLPs: experts in every `moe_layer_interval`-th layer of a range, plain MLPs
 * elsewhere.
 */
function mixtureLoader(config: ConfigReader, c: DecoderConfig, bias: BiasRule): LoadBlock {
  const first = config.int(["moe_layer_start_index", "leading_dense_block_count"], { min: 0 });
  const end = config.int(["moe_layer_end_index", undefined], { min: -1, fallback: -1 });
  const last = end === -1 ? c.nLayers - 1 : end;
  const step = config.int(["moe_layer_interval", "interleave_moe_layer_step"]);
  const nShared = config.int(["moe_num_shared_experts", "expert_shared_count"], {
    min: 0,
    fallback: 0,
  });
  const counts = readExpertCounts(
    config,
    ["moe_num_experts", "expert_count"],
    ["moe_k", "expert_used_count"],
  );
  const experts: MoeParts = {
    ...counts,
    intermediateSize: config.int(["moe_intermediate_size", "expert_feed_forward_length"]),
    normalize: true,
    choiceBias: ["mlp.moe_statics.e_score_correction_bias", "exp_probs_b"],
    choiceBiasShape: [1, counts.nExperts],
    names: MLP_EXPERTS,
  };
  config.sink?.setting("expert_shared_feed_forward_length", [
    "u32",
    nShared * experts.intermediateSize,
  ]);
  return (weights, layer) => {
    if (layer < first || layer > last || (layer + 1) % step !== 0) {
      return loadGatedMlp(weights, c, { bias });
    }
    const routed = loadMoe(weights, c, experts);
    if (nShared === 0) return routed;
    const shared = loadGatedMlp(weights, c, {
      bias,
      intermediateSize: nShared * experts.intermediateSize,
      names: SHARED_EXPERTS,
    });
    return addShared(routed, shared);
  };
}

/**
 * ERNIE 4.5: Llama that rotates neighbouring pairs, in the larger sizes with experts beside a shared one. Baidu,
 * "ERNIE 4.5 Technical Report", 2025.
 */
import {
  type BiasRule,
  biasRule,
  type Block,
  loadAttention,
  loadGatedMlp,
  loadRmsNorm,
} from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "../parts/decoder.ts";
import { type DecoderConfig, decoderConfig } from "../config/decoder_config.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import { loadMoe, type MoeParts } from "../parts/moe.ts";
import { SHARED_EXPERTS } from "../parts/shared_expert_moe.ts";
import type { WeightLoader } from "../weights/weight_loader.ts";

export const ernie4_5: Family = {
  huggingFace: ["ernie4_5", "ernie4_5_moe"],
  gguf: ["ernie4_5", "ernie4_5-moe"],
  load(source) {
    const { config } = source;
    const bias = biasRule(config, "use_bias", false);
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: "interleaved" });
    const isDense = config.modelType === "ernie4_5";
    const mlp = isDense
      ? (weights: WeightLoader) => loadGatedMlp(weights, c, { bias })
      : loadMlps(config, c, bias);
    return loadDecoder(source, c, {
      head: { bias: isDense ? "none" : bias },
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, { rope, bias, outputBias: bias }),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: mlp(weights, i),
        }),
    });
  },
};

/** Loads the MLP of a layer: experts in those from the first to the last, at equal distances, that have any. */
function loadMlps(
  config: ConfigReader,
  c: DecoderConfig,
  bias: BiasRule,
): (weights: WeightLoader, layer: number) => Block {
  const first = config.int(["moe_layer_start_index", "leading_dense_block_count"], {
    min: 0,
    fallback: 1,
  });
  const end = config.int(["moe_layer_end_index", undefined], { min: -1, fallback: -1 });
  const last = end === -1 ? c.nLayers - 1 : end;
  const step = config.int(["moe_layer_interval", "interleave_moe_layer_step"], { fallback: 1 });
  const nShared = config.int(["moe_num_shared_experts", "expert_shared_count"], {
    min: 0,
    fallback: 0,
  });
  const nExperts = config.int(["moe_num_experts", "expert_count"]);
  const experts: MoeParts = {
    nExperts,
    topK: config.int(["moe_k", "expert_used_count"], { max: nExperts }),
    intermediateSize: config.int(["moe_intermediate_size", "expert_feed_forward_length"]),
    normalize: true,
    choiceBias: ["mlp.moe_statics.e_score_correction_bias", "exp_probs_b"],
    choiceBiasShape: [1, nExperts],
    names: {
      router: "mlp.gate",
      gate: "mlp.experts.{}.gate_proj",
      up: "mlp.experts.{}.up_proj",
      down: "mlp.experts.{}.down_proj",
    },
  };
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
    return (pass, x, residual) => shared(pass, x, routed(pass, x, residual));
  };
}

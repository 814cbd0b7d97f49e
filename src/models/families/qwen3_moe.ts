/** Qwen3-MoE: Qwen3 with experts in most layers. A. Yang et al., arXiv:2505.09388. */
import { biasRule, loadAttention, loadGatedMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "../parts/decoder.ts";
import { decoderConfig } from "../config/decoder_config.ts";
import { qwenWindows } from "./qwen2.ts";
import { loadMoe, type MoeParts } from "../parts/moe.ts";

const EXPERT = "mlp.experts.{}";

/**
 * The text part of Qwen3-VL has the experts of a layer in one tensor: published with their columns before their rows,
 * saved by transformers 5 as rows of columns.
 */
const VISION_EXPERTS = {
  router: "mlp.gate",
  gateUp: "mlp.experts.gate_up_proj",
  down: "mlp.experts.down_proj",
  isTransposed: "either",
} as const;

/** The experts of a config; their matrices lie apart. @param normalized where config.json does not say */
export function expertParts(config: ConfigReader, normalized: boolean): MoeParts {
  // transformers writes the count under either name.
  const named = config.raw(["num_experts", undefined]) === undefined
    ? "num_local_experts"
    : "num_experts";
  const nExperts = config.int([named, "expert_count"]);
  return {
    nExperts,
    topK: config.int(["num_experts_per_tok", "expert_used_count"], { max: nExperts }),
    intermediateSize: config.int(["moe_intermediate_size", "expert_feed_forward_length"]),
    normalize: config.boolean(["norm_topk_prob", undefined], config.isGguf || normalized),
    names: {
      router: "mlp.gate",
      gate: `${EXPERT}.gate_proj`,
      up: `${EXPERT}.up_proj`,
      down: `${EXPERT}.down_proj`,
    },
  };
}

/** Which layers have an MLP in place of experts. @throws {ForgeError} `bad_model` */
export function isDenseLayer(config: ConfigReader): (layer: number) => boolean {
  const sparseStep = config.int(["decoder_sparse_step", undefined], { fallback: 1 });
  const key: Key = ["mlp_only_layers", undefined];
  const dense = config.raw(key) ?? [];
  if (!Array.isArray(dense)) throw config.invalid(key, dense, "a list of layers");
  return (layer) => dense.includes(layer) || (layer + 1) % sparseStep !== 0;
}

export const qwen3Moe: Family = {
  huggingFace: ["qwen3_moe", "qwen3_vl_moe_text"],
  gguf: ["qwen3moe", "qwen3vlmoe"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: "half" });
    const windows = qwenWindows(config, c);
    const bias = biasRule(config, "attention_bias", false);
    const isDense = isDenseLayer(config);
    const isVision = config.modelType === "qwen3_vl_moe_text";
    const parts = expertParts(config, isVision);
    const experts = isVision ? { ...parts, names: VISION_EXPERTS } : parts;
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, {
            rope,
            qkNorm: "head",
            window: windows[i],
            bias,
            outputBias: bias,
          }),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: isDense(i) ? loadGatedMlp(weights, c) : loadMoe(weights, c, experts),
        }),
    });
  },
};

/** Mixtures of experts as DeepSeek's configurations, and those modelled on them, describe them. */
import { type Block, loadGatedMlp } from "./blocks.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import { loadMoe, MLP_EXPERTS, type MoeParts, readExpertCounts } from "./moe.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

const CHOICE_BIAS: TensorName = ["mlp.gate.e_score_correction_bias", "exp_probs_b"];
/** Names of the expert that all tokens pass through. */
export const SHARED_EXPERTS = {
  gate: ["mlp.shared_experts.gate_proj", "ffn_gate_shexp"],
  up: ["mlp.shared_experts.up_proj", "ffn_up_shexp"],
  down: ["mlp.shared_experts.down_proj", "ffn_down_shexp"],
} as const satisfies Record<string, TensorName>;

/** Value of GGUF's `expert_gating_func` for sigmoid scores. */
export const GGUF_SIGMOID = 2;

/** Defaults of settings that a config lacks. */
interface SharedExpertDefaults {
  /** Number of layers at the start that have a plain MLP. */
  readonly firstDense: number;
  /**
   * Function that turns router logits into scores. With sigmoids the choice of experts is biased.
   */
  readonly scores: "softmax" | "sigmoid";
}

/** Returns a loader of MLPs: plain ones in the first layers, then experts next to a shared one. */
export function sharedExpertMlp(
  config: ConfigReader,
  c: DecoderConfig,
  defaults: SharedExpertDefaults,
): (weights: WeightLoader, index: number) => Block {
  const isDense = denseLayers(config, c.nLayers, defaults.firstDense);
  const intermediateSize = config.int(["moe_intermediate_size", "expert_feed_forward_length"]);
  const nShared = config.int(["n_shared_experts", "expert_shared_count"], { min: 0, fallback: 0 });
  const experts = {
    ...readExpertCounts(config, ["n_routed_experts", "expert_count"]),
    intermediateSize,
    scale: config.positive(["routed_scaling_factor", "expert_weights_scale"], 1),
    ...routing(config, defaults.scores),
    names: MLP_EXPERTS,
  } satisfies Partial<MoeParts>;
  return (weights, index) => {
    if (isDense(index)) return loadGatedMlp(weights, c);
    const isBiased = experts.scores === "sigmoid";
    const shared = nShared === 0 ? undefined : loadGatedMlp(weights, c, {
      intermediateSize: nShared * intermediateSize,
      names: SHARED_EXPERTS,
    });
    const routed = loadMoe(weights, c, {
      ...experts,
      choiceBias: isBiased ? CHOICE_BIAS : undefined,
    });
    return shared === undefined ? routed : addShared(routed, shared);
  };
}

/** Adds the output of a shared expert to that of the routed ones. */
export function addShared(routed: Block, shared: Block): Block {
  return (pass, x, residual) => shared(pass, x, routed(pass, x, residual));
}

function denseLayers(config: ConfigReader, nLayers: number, fallback: number) {
  const types = config.perLayer(["mlp_layer_types", undefined], nLayers);
  if (types !== undefined) return (index: number) => types[index] === "dense";
  const first = config.int(["first_k_dense_replace", "leading_dense_block_count"], {
    min: 0,
    fallback,
  });
  return (index: number) => index < first;
}

/** Reads how experts are chosen and weighted. */
export function routing(config: ConfigReader, defaultScores: "softmax" | "sigmoid") {
  const scores = readScores(config, defaultScores);
  const isGrouped = config.raw(["topk_method", undefined]) !== "greedy";
  const groups: Key = ["n_group", "expert_group_count"];
  const nGroups = isGrouped ? config.int(groups, { fallback: 1 }) : 1;
  const chosen: Key = ["topk_group", "expert_group_used_count"];
  return {
    scores,
    nGroups,
    topGroups: isGrouped ? config.int(chosen, { max: nGroups, fallback: 1 }) : 1,
    // DeepSeek 2 uses softmax scores without normalising them. GGUF files of the `deepseek2`
    // architecture have the key only if weights are normalised.
    normalize: (scores === "sigmoid" || config.isGguf) &&
      config.boolean(
        ["norm_topk_prob", "expert_weights_norm"],
        scores === "sigmoid" && config.modelType !== "deepseek2",
      ),
  };
}

function readScores(
  config: ConfigReader,
  fallback: "softmax" | "sigmoid",
): "softmax" | "sigmoid" {
  if (config.isGguf) {
    const number = config.raw([undefined, "expert_gating_func"]);
    return number === undefined ? fallback : number === GGUF_SIGMOID ? "sigmoid" : "softmax";
  }
  const key: Key = ["scoring_func", undefined];
  const name = config.raw(key) ?? fallback;
  if (name === "softmax" || name === "sigmoid") {
    config.sink?.setting("expert_gating_func", ["u32", name === "sigmoid" ? GGUF_SIGMOID : 1]);
    return name;
  }
  throw config.invalid(key, name, '"softmax" or "sigmoid"');
}

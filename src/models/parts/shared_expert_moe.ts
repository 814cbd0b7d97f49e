/** The mixture of experts that DeepSeek's models and those after them describe alike. */
import { type Block, loadGatedMlp } from "./blocks.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import { loadMoe, type MoeParts } from "./moe.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

const EXPERT = "mlp.experts.{}";
const CHOICE_BIAS: TensorName = ["mlp.gate.e_score_correction_bias", "exp_probs_b"];
/** What the expert is called that all tokens go through. */
export const SHARED_EXPERTS = {
  gate: ["mlp.shared_experts.gate_proj", "ffn_gate_shexp"],
  up: ["mlp.shared_experts.up_proj", "ffn_up_shexp"],
  down: ["mlp.shared_experts.down_proj", "ffn_down_shexp"],
} as const satisfies Record<string, TensorName>;

/** GGUF's number of sigmoid scores. */
const GGUF_SIGMOID = 2;

/** What holds where a config is silent. */
export interface SharedExpertDefaults {
  /** How many layers from the first on have a plain MLP. */
  readonly firstDense: number;
  /** What becomes of router logits where the config does not say; with sigmoids the choice is biased. */
  readonly scores: "softmax" | "sigmoid";
}

/** Loads the MLP of layer `index`: a plain one in the first few, then experts beside a shared one. */
export function sharedExpertMlp(
  config: ConfigReader,
  c: DecoderConfig,
  defaults: SharedExpertDefaults,
): (weights: WeightLoader, index: number) => Block {
  const isDense = denseLayers(config, c.nLayers, defaults.firstDense);
  const intermediateSize = config.int(["moe_intermediate_size", "expert_feed_forward_length"]);
  const nShared = config.int(["n_shared_experts", "expert_shared_count"], { min: 0, fallback: 0 });
  const nExperts = config.int(["n_routed_experts", "expert_count"]);
  const experts = {
    nExperts,
    topK: config.int(["num_experts_per_tok", "expert_used_count"], { max: nExperts }),
    intermediateSize,
    scale: config.positive(["routed_scaling_factor", "expert_weights_scale"], 1),
    ...routing(config, defaults.scores),
    names: {
      router: "mlp.gate",
      gate: `${EXPERT}.gate_proj`,
      up: `${EXPERT}.up_proj`,
      down: `${EXPERT}.down_proj`,
    },
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
    if (shared === undefined) return routed;
    return (pass, x, residual) => shared(pass, x, routed(pass, x, residual));
  };
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

/** Which experts are chosen, and what their weights are. */
function routing(config: ConfigReader, defaultScores: "softmax" | "sigmoid") {
  const scores = readScores(config, defaultScores);
  const isGrouped = config.raw(["topk_method", undefined]) !== "greedy";
  const groups: Key = ["n_group", "expert_group_count"];
  const nGroups = isGrouped ? config.int(groups, { fallback: 1 }) : 1;
  const chosen: Key = ["topk_group", "expert_group_used_count"];
  return {
    scores,
    nGroups,
    topGroups: isGrouped ? config.int(chosen, { max: nGroups, fallback: 1 }) : 1,
    // DeepSeek 2, whose scores are probabilities, leaves them as they are. Its GGUF files, and those of its kin,
    // have the key only where weights are normalised.
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
  if (name === "softmax" || name === "sigmoid") return name;
  throw config.invalid(key, name, '"softmax" or "sigmoid"');
}

/** Mixtures of experts as Qwen's configurations describe them. */
import type { ConfigReader, Key } from "../config/config_reader.ts";
import { MLP_EXPERTS, type MoeParts, readExpertCounts, type SharedMoeParts } from "./moe.ts";

/**
 * Returns the experts of a config.
 *
 * @param normalized `norm_topk_prob` where config.json lacks it
 */
export function qwenExperts(config: ConfigReader, normalized: boolean): MoeParts {
  // transformers writes the count under either name.
  const named = config.raw(["num_experts", undefined]) === undefined
    ? "num_local_experts"
    : "num_experts";
  return {
    ...readExpertCounts(config, [named, "expert_count"]),
    intermediateSize: config.int(["moe_intermediate_size", "expert_feed_forward_length"]),
    normalize: config.boolean(["norm_topk_prob", undefined], config.isGguf || normalized),
    names: MLP_EXPERTS,
  };
}

const SHARED_SIZE: Key = [
  "shared_expert_intermediate_size",
  "expert_shared_feed_forward_length",
];

/** Returns the experts of a config with the gated MLP that all tokens pass through. */
export function qwenSharedExperts(config: ConfigReader): SharedMoeParts {
  const parts = qwenExperts(config, true);
  return {
    ...parts,
    shared: {
      intermediateSize: config.int(SHARED_SIZE, { fallback: parts.intermediateSize }),
      gate: ["mlp.shared_expert_gate", "ffn_gate_inp_shexp"],
      names: {
        gate: ["mlp.shared_expert.gate_proj", "ffn_gate_shexp"],
        up: ["mlp.shared_expert.up_proj", "ffn_up_shexp"],
        down: ["mlp.shared_expert.down_proj", "ffn_down_shexp"],
      },
    },
  };
}

/**
 * Returns a test for layers that have a plain MLP in place of experts.
 *
 * @throws {ForgeError} `bad_model`
 */
export function isDenseLayer(config: ConfigReader): (layer: number) => boolean {
  const sparseStep = config.int(["decoder_sparse_step", undefined], { fallback: 1 });
  const key: Key = ["mlp_only_layers", undefined];
  const dense = config.raw(key) ?? [];
  if (!Array.isArray(dense)) throw config.invalid(key, dense, "a list of layers");
  return (layer) => dense.includes(layer) || (layer + 1) % sparseStep !== 0;
}

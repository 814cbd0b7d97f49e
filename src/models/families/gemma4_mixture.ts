/** Gemma 4's experts, which work beside the MLP of a layer. */
import type { Value } from "../../backend.ts";
import { loadRmsNorm } from "../parts/blocks.ts";
import type { ForwardPass } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import { loadRoutedExperts } from "../parts/moe.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

const ROUTER: TensorName = ["router.proj", "ffn_gate_inp"];
const MLP_NORM: TensorName = ["post_feedforward_layernorm_1", "post_ffw_norm_1"];
const EXPERTS_NORM: TensorName = ["pre_feedforward_layernorm_2", "pre_ffw_norm_2"];
const POST_NORM: TensorName = ["post_feedforward_layernorm_2", "post_ffw_norm_2"];

/** Adds what experts make of the hidden states `h` to what the MLP made of them. */
export type Mixture = (pass: ForwardPass, h: Value, fed: Value) => Value;

/** The mixture of a layer; `undefined` in a model without. */
export function loadGemma4Mixture(
  config: ConfigReader,
  weights: WeightLoader,
  c: DecoderConfig,
): Mixture | undefined {
  const count: Key = ["num_experts", "expert_count"];
  const has = config.isGguf
    ? (config.raw(count) ?? 0) !== 0
    : config.boolean(["enable_moe_block", undefined], false);
  if (!has) return undefined;
  const nExperts = config.int(count);
  const router = weights.matrix(ROUTER, nExperts, c.hiddenSize);
  const routerNorm = loadRouterNorm(weights, c);
  const mlpNorm = loadRmsNorm(weights, c, MLP_NORM);
  const expertsNorm = loadRmsNorm(weights, c, EXPERTS_NORM);
  const postNorm = loadRmsNorm(weights, c, POST_NORM);
  const experts = loadRoutedExperts(weights, c, {
    nExperts,
    topK: config.int(["top_k_experts", "expert_used_count"], { max: nExperts }),
    intermediateSize: config.int(["moe_intermediate_size", "expert_feed_forward_length"]),
    normalize: true,
    expertScales: loadExpertScales(weights, nExperts),
    names: {
      router: "router.proj",
      gateUp: "experts.gate_up_proj",
      down: "experts.down_proj",
    },
  });
  return (pass, h, fed) => {
    const { recorder } = pass;
    const logits = recorder.matmul(recorder.rmsNorm(h, routerNorm, { eps: c.normEps }), router);
    const made = experts(recorder, logits, expertsNorm(pass, h));
    return postNorm(pass, made, mlpNorm(pass, fed));
  };
}

/** The router's norm, with what its input is multiplied by. */
function loadRouterNorm(weights: WeightLoader, c: DecoderConfig) {
  const scale = weights.isGguf
    ? weights.vector(ROUTER, c.hiddenSize, "scale")
    : weights.vector(["router.scale", undefined], c.hiddenSize, "");
  const values = weights.backend.readWeight(scale, 0, 1);
  return weights.uploadVector(values.map((value) => value / Math.sqrt(c.hiddenSize)));
}

function loadExpertScales(weights: WeightLoader, nExperts: number) {
  return weights.isGguf
    ? weights.optionalVector([undefined, "ffn_down_exps"], nExperts, "scale")
    : weights.vector(["router.per_expert_scale", undefined], nExperts, "");
}

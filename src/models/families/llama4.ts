/**
 * Llama 4 (text): every fourth layer without positions, experts next to a shared one. Layers
 * without positions scale attention with the position. The others attend within chunks. Meta, "The
 * Llama 4 herd", 2025.
 */
import type { Family, ModelSource } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import { type DecoderConfig, decoderConfig, rotatedLayers } from "../config/decoder_config.ts";
import {
  biasRule,
  type Block,
  loadAttention,
  loadGatedMlp,
  loadPositionScale,
  type PositionScale,
} from "../parts/blocks.ts";
import { loadRope, preNormDecoder } from "../parts/decoder.ts";
import { loadExperts } from "../parts/moe.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

const PLAIN = {
  gate: ["feed_forward.gate_proj", "ffn_gate"],
  up: ["feed_forward.up_proj", "ffn_up"],
  down: ["feed_forward.down_proj", "ffn_down"],
} as const satisfies Record<string, TensorName>;
const SHARED = {
  gate: ["feed_forward.shared_expert.gate_proj", "ffn_gate_shexp"],
  up: ["feed_forward.shared_expert.up_proj", "ffn_up_shexp"],
  down: ["feed_forward.shared_expert.down_proj", "ffn_down_shexp"],
} as const satisfies Record<string, TensorName>;
const EXPERTS = {
  router: "feed_forward.router",
  gateUp: "feed_forward.experts.gate_up_proj",
  down: "feed_forward.experts.down_proj",
  isTransposed: true,
} as const;

/**
 * Number of experts of Maverick, which unlike Scout does not normalise q and k. GGUF files lack the
 * setting.
 */
const MAVERICK_EXPERTS = 128;

export const llama4: Family = {
  huggingFace: ["llama4_text"],
  gguf: ["llama4"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const chunk = config.int(["attention_chunk_size", "attention.chunk_size"], { fallback: 8192 });
    const isChunked = (source.sessionLength ?? c.contextLength) > chunk;
    const rotation = loadRope(source, c, { layout: "interleaved" });
    const rotates = rotatedLayers(config, c.nLayers);
    const bias = biasRule(config, "attention_bias");
    const nExperts = config.int(["num_local_experts", "expert_count"]);
    const isNormalized = config.isGguf
      ? nExperts !== MAVERICK_EXPERTS
      : config.boolean(["use_qk_norm", undefined]);
    // Norms of q and k after rotation cancel its scale, except for its effect on epsilon.
    const rope = isNormalized ? { ...rotation, scale: 1 } : rotation;
    const heads = isNormalized ? { ...c, normEps: c.normEps / rotation.scale ** 2 } : c;
    const temperature = loadTemperature(source, c);
    const hasExperts = expertLayers(config);
    const plainSize = config.int(["intermediate_size_mlp", "feed_forward_length"]);
    return preNormDecoder(source, c, {
      attention: (weights, i) =>
        loadAttention(weights, heads, i, {
          rope: rotates[i] ? rope : undefined,
          window: isChunked && rotates[i] ? chunk : undefined,
          chunked: isChunked && rotates[i],
          positionScale: rotates[i] ? undefined : temperature,
          qkNorm: rotates[i] && isNormalized ? "plain head" : undefined,
          bias,
          outputBias: bias,
        }),
      mlp: (weights, i) =>
        hasExperts(i)
          ? loadMixture(config, weights, c, nExperts)
          : loadGatedMlp(weights, c, { names: PLAIN, intermediateSize: plainSize }),
    });
  },
};

/** Loads the factors of queries in layers without positions, if the model has them. */
function loadTemperature(
  { config, weights }: ModelSource,
  c: DecoderConfig,
): PositionScale | undefined {
  // Published files have 4 in place of true.
  const tuning = config.raw(["attn_temperature_tuning", undefined]) ?? true;
  if (tuning === false || tuning === 0) return undefined;
  const floor = config.positive(["floor_scale", undefined], 8192);
  const key: Key = ["attn_scale", undefined];
  const growth = config.number(key, 0.1);
  if (growth < 0) throw config.invalid(key, growth, "a number of at least 0");
  // Shorter sequences all have the factor 1.
  if (growth === 0 || c.contextLength < floor) return undefined;
  return loadPositionScale(
    weights,
    c,
    (position) => 1 + growth * Math.log1p(Math.floor((position + 1) / floor)),
  );
}

function expertLayers(config: ConfigReader): (layer: number) => boolean {
  const key: Key = ["moe_layers", undefined];
  const listed = config.raw(key);
  if (listed !== undefined) {
    if (!Array.isArray(listed)) throw config.invalid(key, listed, "a list of layers");
    return (layer) => listed.includes(layer);
  }
  const step = config.int(["interleave_moe_layer_step", "interleave_moe_layer_step"], {
    fallback: 1,
  });
  return (layer) => (layer + 1) % step === 0;
}

/**
 * Loads one expert for each token, whose input is scaled by the router's score, and the shared
 * expert.
 */
function loadMixture(
  config: ConfigReader,
  weights: WeightLoader,
  c: DecoderConfig,
  nExperts: number,
): Block {
  weights.assertWhole("mixture of experts");
  const chosen: Key = ["num_experts_per_tok", "expert_used_count"];
  const topK = config.int(chosen);
  if (topK !== 1) throw config.unsupported(chosen, topK, "1 in this architecture");
  const intermediateSize = config.int(["intermediate_size", "expert_feed_forward_length"]);
  const router = weights.matrix([EXPERTS.router, "ffn_gate_inp"], nExperts, c.hiddenSize);
  const parts = { nExperts, topK, intermediateSize, normalize: false, names: EXPERTS } as const;
  const { gateUp, down } = loadExperts(weights, c.hiddenSize, parts);
  const shared = loadGatedMlp(weights, c, { names: SHARED, intermediateSize });

  return (pass, x, residual) => {
    const { recorder } = pass;
    const logits = recorder.matmul(x, router);
    const scored = recorder.moeRoute(logits, { topK, normalize: false, scores: "sigmoid" });
    const whole = recorder.moeRoute(logits, { topK, normalize: true, scores: "sigmoid" });
    const gated = recorder.moeMatmul(recorder.moeCombine(x, scored), whole, gateUp, nExperts);
    const hidden = recorder.glu(gated, intermediateSize, c.activation);
    const routed = recorder.moeMatmul(hidden, whole, down, nExperts);
    return shared(pass, x, recorder.moeCombine(routed, whole, residual));
  };
}

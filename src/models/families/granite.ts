/**
 * IBM Granite 3, and Granite 4 without Mamba layers: Llama with multipliers of embeddings,
 * attention scores, residuals and logits, in some sizes with experts.
 */
import type { Family } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import { type DecoderConfig, decoderConfig } from "../config/decoder_config.ts";
import { biasRule, type Block, loadAttention, loadGatedMlp } from "../parts/blocks.ts";
import { llamaRopeLayout, loadRope, preNormDecoder } from "../parts/decoder.ts";
import { loadMoe, type MoeParts, readExpertCounts } from "../parts/moe.ts";
import { addShared, SHARED_EXPERTS } from "../parts/shared_expert_moe.ts";
import type { WeightLoader } from "../weights/weight_loader.ts";

export const granite: Family = {
  huggingFace: ["granite", "granitemoe", "granitemoeshared", "granitemoehybrid"],
  gguf: ["granite", "granitemoe"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const isHybrid = config.modelType === "granitemoehybrid";
    if (isHybrid) assertAttention(config, c.nLayers);
    const rope = isHybrid && config.raw(["position_embedding_type", undefined]) !== "rope"
      ? undefined
      : loadRope(source, c, { layout: llamaRopeLayout(config) });
    const outputScale = config.number(["residual_multiplier", "residual_scale"], 1);
    const bias = biasRule(config, "attention_bias", false);
    const attention = {
      rope,
      scale: config.positive(["attention_multiplier", "attention.scale"], c.headDim ** -0.5),
      bias,
      outputBias: bias,
      outputScale,
    };
    const hasExperts = isHybrid
      ? config.int(EXPERTS, { min: 0, fallback: 0 }) > 0
      : config.modelType !== "granite";
    const experts = hasExperts ? expertParts(config, c, outputScale) : undefined;
    const loadMlp = (weights: WeightLoader): Block => {
      const routed = experts && loadMoe(weights, c, experts);
      const sharedSize = config.int(SHARED_SIZE, { min: 0, fallback: 0 });
      const hasShared = isHybrid || (hasExperts && sharedSize > 0);
      if (!hasShared) {
        return routed ?? loadGatedMlp(weights, c, {
          outputScale,
          bias: biasRule(config, "mlp_bias", false),
          // GGUF files of Granite 4 without experts give the width of the only MLP under this key.
          intermediateSize: sharedSize > 0 ? sharedSize : c.intermediateSize,
        });
      }
      const shared = loadSharedMlp(config, weights, c, outputScale);
      return routed === undefined ? shared : addShared(routed, shared);
    };
    return preNormDecoder(source, c, {
      embeddingScale: config.number(["embedding_multiplier", "embedding_scale"], 1),
      head: { scale: 1 / config.positive(["logits_scaling", "logit_scale"], 1) },
      attention: (weights, i) => loadAttention(weights, c, i, attention),
      mlp: loadMlp,
    });
  },
};

const EXPERTS: Key = ["num_local_experts", "expert_count"];
const SHARED_SIZE: Key = ["shared_intermediate_size", "expert_shared_feed_forward_length"];

/** Rejects models with Mamba 2 layers. */
function assertAttention(config: ConfigReader, nLayers: number): void {
  const key: Key = ["layer_types", undefined];
  const types = config.perLayer(key, nLayers) ?? [];
  const other = Array.from({ length: nLayers }, (_, i) => types[i] ?? "mamba")
    .find((type) => type !== "attention" && type !== "full_attention");
  if (other === undefined) return;
  throw config.unsupported(key, other, "layers of attention alone in this architecture");
}

/** Loads the MLP that all tokens pass through. Folders hold its gate and up in one matrix. */
function loadSharedMlp(
  config: ConfigReader,
  weights: WeightLoader,
  c: DecoderConfig,
  alpha: number,
): Block {
  const { hiddenSize, activation } = c;
  const size = config.int(SHARED_SIZE);
  if (config.isGguf) {
    const options = { names: SHARED_EXPERTS, intermediateSize: size, outputScale: alpha };
    return loadGatedMlp(weights, c, options);
  }
  const gateUp = weights.matrix(["shared_mlp.input_linear", undefined], 2 * size, hiddenSize);
  const down = weights.matrix(["shared_mlp.output_linear", undefined], hiddenSize, size);
  return ({ recorder }, x, residual) => {
    const hidden = recorder.glu(recorder.matmul(x, gateUp), size, activation);
    return recorder.matmul(hidden, down, { alpha, residual });
  };
}

function expertParts(config: ConfigReader, c: DecoderConfig, scale: number): MoeParts {
  return {
    ...readExpertCounts(config, EXPERTS),
    intermediateSize: c.intermediateSize,
    normalize: true,
    scale,
    names: {
      router: "block_sparse_moe.router.layer",
      gateUp: "block_sparse_moe.input_linear.weight",
      down: "block_sparse_moe.output_linear.weight",
    },
  };
}

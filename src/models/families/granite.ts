/**
 * IBM Granite 3 and 4: Llama with multipliers of embeddings, attention scores, residuals and
 * logits, in some sizes with experts. Most layers of Granite 4's hybrids are Mamba-2.
 */
import type { Family } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import { type DecoderConfig, decoderConfig } from "../config/decoder_config.ts";
import { biasRule, type Block, kvShape, loadAttention, loadGatedMlp } from "../parts/blocks.ts";
import { llamaRopeLayout, loadRope, preNormDecoder } from "../parts/decoder.ts";
import { BAMBA_NAMES, loadMamba2, mamba2Config, mamba2States } from "../parts/mamba2.ts";
import { loadMoe, type MoeParts, readExpertCounts } from "../parts/moe.ts";
import { indexAmongKind } from "../parts/recurrence.ts";
import { addShared, SHARED_EXPERTS } from "../parts/shared_expert_moe.ts";
import type { WeightLoader } from "../weights/weight_loader.ts";

export const granite: Family = {
  huggingFace: ["granite", "granitemoe", "granitemoeshared", "granitemoehybrid"],
  gguf: ["granite", "granitemoe", "granitehybrid"],
  writes: {
    granite: { architecture: "granite", reordersHeads: true },
    granitemoe: { architecture: "granitemoe", reordersHeads: true },
  },
  load(source) {
    const { config } = source;
    const isMamba = mambaLayers(config);
    const indexOf = indexAmongKind(isMamba);
    const c = decoderConfig(config.ofLayer(Math.max(isMamba.indexOf(false), 0)));
    const mamba = isMamba.includes(true)
      ? mamba2Config(config, c.hiddenSize, BAMBA_NAMES)
      : undefined;
    const isHybrid = config.modelType === "granitemoehybrid";
    const rope = hasPositions(config, c)
      ? loadRope(source, c, { layout: llamaRopeLayout(config) })
      : undefined;
    const outputScale = config.number(["residual_multiplier", "residual_scale"], 1);
    const bias = biasRule(config, "attention_bias");
    const attention = {
      rope,
      scale: config.positive(["attention_multiplier", "attention.scale"], c.headDim ** -0.5),
      bias,
      outputBias: bias,
      outputScale,
    };
    const hasExperts = config.modelType.includes("hybrid")
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
          bias: biasRule(config, "mlp_bias"),
          // GGUF files of Granite 4 without experts give the width of the only MLP under this key;
          // Bamba's lack it.
          intermediateSize: sharedSize > 0 ? sharedSize : c.intermediateSize,
        });
      }
      const shared = loadSharedMlp(config, weights, c, outputScale);
      return routed === undefined ? shared : addShared(routed, shared);
    };
    return preNormDecoder(source, c, {
      embeddingScale: config.number(["embedding_multiplier", "embedding_scale"], 1),
      head: { scale: 1 / config.positive(["logits_scaling", "logit_scale"], 1) },
      kvLayers: isMamba.flatMap((is) => is ? [] : [kvShape(c)]),
      stateLayers: isMamba.flatMap((is) => is && mamba ? mamba2States(mamba) : []),
      attention: (weights, i) =>
        mamba && isMamba[i]
          ? loadMamba2(weights, c, mamba, { state: 2 * indexOf(i), norm: "row", outputScale })
          : loadAttention(weights, c, indexOf(i), attention),
      mlp: loadMlp,
    });
  },
};

const EXPERTS: Key = ["num_local_experts", "expert_count"];
const SHARED_SIZE: Key = ["shared_intermediate_size", "expert_shared_feed_forward_length"];

/** Returns true for each Mamba-2 layer. In GGUF files these have no KV heads. */
function mambaLayers(config: ConfigReader): readonly boolean[] {
  const nLayers = config.int(["num_hidden_layers", "block_count"], { max: 4096 });
  const layers = Array.from({ length: nLayers }, (_, i) => i);
  if (config.modelType === "granitehybrid") {
    const heads = config.perLayer([undefined, "attention.head_count_kv"], nLayers) ?? [];
    return layers.map((i) => heads[i] === 0);
  }
  if (config.modelType !== "granitemoehybrid") return layers.map(() => false);
  const key: Key = ["layer_types", undefined];
  const types = config.perLayer(key, nLayers);
  return layers.map((i) => {
    const type = types === undefined ? "mamba" : types[i];
    if (type === "mamba" || type === "linear_attention") return true;
    if (type === "attention" || type === "full_attention") return false;
    throw config.unsupported(key, type, '"mamba" and "attention" in this architecture');
  });
}

/** True if queries and keys are rotated. */
function hasPositions(config: ConfigReader, c: DecoderConfig): boolean {
  if (config.modelType === "granitemoehybrid") {
    return config.raw(["position_embedding_type", undefined]) === "rope";
  }
  if (config.modelType !== "granitehybrid") return true;
  // True in files of Bamba alone.
  if (!config.boolean([undefined, "rope.scaling.finetuned"], false)) return false;
  const key: Key = [undefined, "rope.dimension_count"];
  const rotated = config.int(key, { fallback: c.headDim });
  if (rotated === c.headDim) return true;
  // llama.cpp's converter reorders heads as if all of their elements were rotated.
  throw config.unsupported(key, rotated, `rotation of whole heads, of ${c.headDim}, in GGUF`);
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
  weights.assertWhole("shared MLP");
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

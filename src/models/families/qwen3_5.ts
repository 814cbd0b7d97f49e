/**
 * Qwen3-Next and Qwen3.5: three layers of gated delta rule, then one of attention with an output
 * gate; an MLP, or experts with a shared one. Qwen Team, "Qwen3-Next" and "Qwen3.5", 2025 and 2026.
 */
import type { HeadOrder } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import type { CausalLm, Family, ModelSource } from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import { type DecoderConfig, decoderConfig } from "../config/decoder_config.ts";
import { kvShape, loadAttention, loadGatedMlp } from "../parts/blocks.ts";
import { loadRope, POST_ATTENTION_NORM, preNormDecoder } from "../parts/decoder.ts";
import { deltaNetConfig, deltaNetStates, loadDeltaNet } from "../parts/delta_net.ts";
import { loadSharedMoe } from "../parts/moe.ts";
import { isDenseLayer, qwenSharedExperts } from "../parts/qwen_experts.ts";
import { indexAmongKind } from "../parts/recurrence.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

/** Dense models. */
export const qwen3_5: Family = {
  huggingFace: ["qwen3_5_text"],
  gguf: ["qwen35"],
  load: (source) => loadHybrid(source, "tiled", () => false),
};

/** Models with experts in every layer. */
export const qwen3_5Moe: Family = {
  huggingFace: ["qwen3_5_moe_text"],
  gguf: ["qwen35moe"],
  load: (source) => loadHybrid(source, "tiled", () => true),
};

export const qwen3Next: Family = {
  huggingFace: ["qwen3_next"],
  gguf: ["qwen3next"],
  load: (source) => {
    const { config } = source;
    const isDense = isDenseLayer(config);
    return loadHybrid(
      source,
      "grouped",
      // GGUF files lack the setting; a layer with a router has experts.
      (layer, weights) => config.isGguf ? weights.has(ROUTER) : !isDense(layer),
    );
  },
};

const ROUTER: TensorName = ["mlp.gate", "ffn_gate_inp"];

/** @param ggufOrder order of the value heads in GGUF files of the architecture */
function loadHybrid(
  source: ModelSource,
  ggufOrder: HeadOrder,
  hasExperts: (layer: number, weights: WeightLoader) => boolean,
): CausalLm {
  const { config } = source;
  const c = hybridConfig(config);
  const d = deltaNetConfig(config, config.isGguf ? ggufOrder : "grouped");
  const rope = loadRope(source, c, { layout: "half" });
  // llama.cpp's converter adds the 1 when it writes the file.
  const norm = { weightOffset: config.isGguf ? 0 : 1 };
  const isLinear = linearLayers(config, c.nLayers);
  // The layer for multi-token prediction follows the model's own.
  const indexOf = indexAmongKind([...isLinear, false]);

  return preNormDecoder(source, c, {
    norm,
    mlpNorm: POST_ATTENTION_NORM,
    kvLayers: isLinear.flatMap((linear) => linear ? [] : [kvShape(c)]),
    stateLayers: isLinear.flatMap((linear) => linear ? deltaNetStates(d) : []),
    attention: (weights, i) =>
      isLinear[i]
        ? loadDeltaNet(weights, c, d, deltaNetStates(d).length * indexOf(i))
        : loadAttention(weights, c, indexOf(i), {
          rope,
          qkNorm: "head",
          normOffset: norm.weightOffset,
          hasOutputGate: true,
        }),
    mlp: (weights, i) =>
      hasExperts(i, weights)
        ? loadSharedMoe(weights, c, qwenSharedExperts(config))
        : loadGatedMlp(weights, c),
  });
}

/** Reads the settings. Models with experts in all layers have no width of the MLP. */
function hybridConfig(config: ConfigReader): DecoderConfig {
  const expertSize = config.raw(EXPERT_SIZE);
  return decoderConfig(
    config,
    typeof expertSize === "number" ? { intermediateSize: expertSize } : {},
  );
}

const EXPERT_SIZE = ["moe_intermediate_size", "expert_feed_forward_length"] as const;

/**
 * Returns true for each layer with linear attention: those in `layer_types`, else all but the last
 * of every `full_attention_interval` layers.
 */
function linearLayers(config: ConfigReader, nLayers: number): readonly boolean[] {
  const types = config.perLayer(["layer_types", undefined], nLayers);
  const interval = config.int(["full_attention_interval", "full_attention_interval"], {
    fallback: 4,
  });
  return Array.from({ length: nLayers }, (_, layer) => {
    if (types === undefined) return (layer + 1) % interval !== 0;
    const type = types[layer];
    if (type === "linear_attention") return true;
    if (type === "full_attention") return false;
    throw new ForgeError(
      "unsupported",
      `${quote(config.path)}: layer ${layer} is of the type ${
        quote(String(type))
      }; forge supports ` +
        `"linear_attention" and "full_attention" in this architecture`,
    );
  });
}

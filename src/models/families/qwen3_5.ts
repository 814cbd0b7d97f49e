/**
 * Qwen3-Next and Qwen3.5: three layers of gated delta rule, then one of attention with an output gate; an MLP
 * or experts with a shared one. Qwen Team, "Qwen3-Next" and "Qwen3.5", 2025 and 2026.
 */
import type { HeadOrder } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import { type Block, kvShape, loadAttention, loadGatedMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { CausalLm, Family, ModelSource } from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import { INPUT_NORM, loadDecoder, loadRope, preNormLayer } from "../parts/decoder.ts";
import { type DecoderConfig, decoderConfig } from "../config/decoder_config.ts";
import { deltaNetConfig, deltaNetStates, loadDeltaNet } from "../parts/delta_net.ts";
import { loadSharedMoe, type SharedMoeParts } from "../parts/moe.ts";
import { expertParts, isDenseLayer } from "./qwen3_moe.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

/** The dense models. */
export const qwen3_5: Family = {
  huggingFace: ["qwen3_5_text"],
  gguf: ["qwen35"],
  load: (source) => loadHybrid(source, "tiled", () => false),
};

/** Those with experts in every layer. */
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
      // GGUF files say which layers have experts by what they hold.
      (layer, weights) => config.isGguf ? weights.has(ROUTER) : !isDense(layer),
    );
  },
};

const ROUTER: TensorName = ["mlp.gate", "ffn_gate_inp"];
const MLP_NORM: TensorName = ["post_attention_layernorm", "post_attention_norm"];

/** @param ggufOrder the order in which GGUF files of the architecture hold value heads */
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
  const normOffset = config.isGguf ? 0 : 1;
  const norm = { weightOffset: normOffset };
  const isLinear = linearLayers(config, c.nLayers);
  const countBefore = (layer: number, linear: boolean) =>
    isLinear.slice(0, layer).filter((is) => is === linear).length;

  const loadMixer = (weights: WeightLoader, layer: number): Block =>
    isLinear[layer]
      ? loadDeltaNet(weights, c, d, deltaNetStates(d).length * countBefore(layer, true))
      : loadAttention(weights, c, countBefore(layer, false), {
        rope,
        qkNorm: "head",
        normOffset,
        hasOutputGate: true,
      });
  return loadDecoder(source, c, {
    norm,
    kvLayers: isLinear.flatMap((linear) => linear ? [] : [kvShape(c)]),
    stateLayers: isLinear.flatMap((linear) => linear ? deltaNetStates(d) : []),
    layer: (weights, layer) =>
      preNormLayer({
        attentionNorm: loadRmsNorm(weights, c, INPUT_NORM, norm),
        attention: loadMixer(weights, layer),
        mlpNorm: loadRmsNorm(weights, c, MLP_NORM, norm),
        mlp: hasExperts(layer, weights)
          ? loadSharedMoe(weights, c, sharedExpertParts(config))
          : loadGatedMlp(weights, c),
      }),
  });
}

/** The settings; without a width of the MLP where all layers have experts. */
function hybridConfig(config: ConfigReader): DecoderConfig {
  const expertSize = config.raw(EXPERT_SIZE);
  return decoderConfig(
    config,
    typeof expertSize === "number" ? { intermediateSize: expertSize } : {},
  );
}

const EXPERT_SIZE = ["moe_intermediate_size", "expert_feed_forward_length"] as const;
const SHARED_SIZE = [
  "shared_expert_intermediate_size",
  "expert_shared_feed_forward_length",
] as const;

/** Experts beside a gated MLP that all tokens go through. */
export function sharedExpertParts(config: ConfigReader): SharedMoeParts {
  const parts = expertParts(config, true);
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

/** Which layers are linear attention: from `layer_types`, or all but the last of every so many. */
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
      `${quote(config.path)}: layer ${layer} is of the type ${quote(String(type))}; forge knows ` +
        `"linear_attention" and "full_attention" in this architecture`,
    );
  });
}

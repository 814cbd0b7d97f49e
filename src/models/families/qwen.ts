/**
 * Qwen2 and Qwen3, dense and with experts: Llama with biases on q, k and v (Qwen2) or RMSNorm on
 * each head of q and k (Qwen3). A. Yang et al., arXiv:2407.10671 and arXiv:2505.09388.
 */
import type { CausalLm, Family, ModelSource } from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import { type DecoderConfig, decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import { type AttentionParts, biasRule, loadAttention, loadGatedMlp } from "../parts/blocks.ts";
import { type LoadBlock, loadRope, preNormDecoder } from "../parts/decoder.ts";
import { loadMoe, loadSharedMoe } from "../parts/moe.ts";
import { isDenseLayer, qwenExperts, qwenSharedExperts } from "../parts/qwen_experts.ts";

/** Qwen2, Qwen2.5, and the text part of their multimodal models. */
export const qwen2: Family = {
  huggingFace: ["qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"],
  gguf: ["qwen2", "qwen2vl"],
  writes: { qwen2: { architecture: "qwen2" } },
  load(source) {
    const c = decoderConfig(source.config);
    return loadQwen(source, c, {
      attention: { bias: "required" },
      windows: qwenWindows(source.config, c.nLayers),
      mlp: (weights) => loadGatedMlp(weights, c),
    });
  },
};

export const qwen3: Family = {
  huggingFace: ["qwen3", "qwen3_vl_text"],
  gguf: ["qwen3", "qwen3vl"],
  writes: { qwen3: { architecture: "qwen3" } },
  load(source) {
    const c = decoderConfig(source.config);
    return loadQwen(source, c, {
      attention: qwen3Attention(source.config),
      windows: qwenWindows(source.config, c.nLayers),
      mlp: (weights) => loadGatedMlp(weights, c),
    });
  },
};

/** Qwen1.5-MoE and Qwen2-MoE: Qwen2 with experts next to a gated MLP. */
export const qwen2Moe: Family = {
  huggingFace: ["qwen2_moe"],
  gguf: ["qwen2moe"],
  writes: { qwen2_moe: { architecture: "qwen2moe" } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const isDense = isDenseLayer(config);
    const normalize = config.boolean(["norm_topk_prob", undefined], false);
    return loadQwen(source, c, {
      attention: { bias: biasRule(config, "qkv_bias") },
      windows: alternateWindows(config, c.nLayers),
      mlp: (weights, i) =>
        isDense(i)
          ? loadGatedMlp(weights, c)
          : loadSharedMoe(weights, c, { ...qwenSharedExperts(config), normalize }),
    });
  },
};

/**
 * The text part of Qwen3-VL has the experts of a layer in one tensor: published as `[nExperts,
 * cols, rows]`, saved by transformers 5 as `[nExperts, rows, cols]`.
 */
const VISION_EXPERTS = {
  router: "mlp.gate",
  gateUp: "mlp.experts.gate_up_proj",
  down: "mlp.experts.down_proj",
  isTransposed: "either",
} as const;

/** Qwen3-MoE: Qwen3 with experts in most layers. */
export const qwen3Moe: Family = {
  huggingFace: ["qwen3_moe", "qwen3_vl_moe_text"],
  gguf: ["qwen3moe", "qwen3vlmoe"],
  writes: { qwen3_moe: { architecture: "qwen3moe" } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const isDense = isDenseLayer(config);
    const isVision = config.modelType === "qwen3_vl_moe_text";
    const parts = qwenExperts(config, isVision);
    const experts = isVision ? { ...parts, names: VISION_EXPERTS } : parts;
    return loadQwen(source, c, {
      attention: qwen3Attention(config),
      windows: qwenWindows(config, c.nLayers),
      mlp: (weights, i) => isDense(i) ? loadGatedMlp(weights, c) : loadMoe(weights, c, experts),
    });
  },
};

interface QwenParts {
  readonly attention: Omit<AttentionParts, "rope" | "window">;
  readonly windows: readonly (number | undefined)[];
  readonly mlp: LoadBlock;
}

function loadQwen(source: ModelSource, c: DecoderConfig, parts: QwenParts): CausalLm {
  const rope = loadRope(source, c, { layout: "half" });
  const { attention, windows, mlp } = parts;
  return preNormDecoder(source, c, {
    attention: (weights, i) =>
      loadAttention(weights, c, i, { ...attention, rope, window: windows[i] }),
    mlp,
  });
}

function qwen3Attention(config: ConfigReader): QwenParts["attention"] {
  const bias = biasRule(config, "attention_bias");
  return { qkNorm: "head", bias, outputBias: bias };
}

/** Returns each layer's window: the layers from `max_window_layers` up have one. */
export function qwenWindows(config: ConfigReader, nLayers: number): (number | undefined)[] {
  return optionalWindows(config, nLayers, undefined, (layer, bound) => layer >= bound);
}

/** Returns each layer's window: every other layer below `max_window_layers` has one. */
function alternateWindows(config: ConfigReader, nLayers: number): (number | undefined)[] {
  return optionalWindows(config, nLayers, 2, (layer, bound) => layer < bound);
}

/**
 * Windows are off unless `use_sliding_window` is true. The layers in `layer_types` have one;
 * without such a list those that `period` and `max_window_layers` select.
 */
function optionalWindows(
  config: ConfigReader,
  nLayers: number,
  period: number | undefined,
  isSelected: (layer: number, maxWindowLayers: number) => boolean,
): (number | undefined)[] {
  if (!config.boolean(["use_sliding_window", undefined], false)) {
    return Array.from({ length: nLayers }, () => undefined);
  }
  const windows = slidingWindows(config, nLayers, period);
  if (config.raw(["layer_types", undefined]) !== undefined) return windows;
  const bound = config.int(["max_window_layers", undefined], { min: 0, fallback: 28 });
  return windows.map((window, i) => isSelected(i, bound) ? window : undefined);
}

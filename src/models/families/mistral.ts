/**
 * Mistral and Mixtral: Llama with an optional sliding window. A. Q. Jiang et al., "Mistral 7B",
 * arXiv:2310.06825.
 */
import type { Family, ModelSource } from "../causal_lm.ts";
import type { Key } from "../config/config_reader.ts";
import { type DecoderConfig, decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import { RopeParameters } from "../config/rope_parameters.ts";
import {
  loadAttention,
  loadGatedMlp,
  loadPositionScale,
  type PositionScale,
} from "../parts/blocks.ts";
import { llamaRopeLayout, loadRope, preNormDecoder } from "../parts/decoder.ts";
import { loadMoe, MIXTRAL_EXPERTS, readExpertCounts } from "../parts/moe.ts";

/** Mistral 7B and its successors. GGUF stores all but Ministral 3 as `llama`. */
export const mistral: Family = {
  huggingFace: ["mistral", "ministral", "ministral3"],
  gguf: ["mistral3"],
  writes: {
    mistral: { architecture: "llama", reordersHeads: true },
    ministral3: { architecture: "mistral3", reordersHeads: true },
  },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: llamaRopeLayout(config) });
    const positionScale = loadTemperature(source, c);
    const windows = slidingWindows(config, c.nLayers, undefined);
    return preNormDecoder(source, c, {
      attention: (weights, i) =>
        loadAttention(weights, c, i, { rope, positionScale, window: windows[i] }),
      mlp: (weights) => loadGatedMlp(weights, c),
    });
  },
};

/**
 * Loads the factors of Ministral 3's queries, which grow with each multiple of YaRN's original
 * length; `undefined` in models without them.
 */
function loadTemperature(
  { config, weights }: ModelSource,
  c: DecoderConfig,
): PositionScale | undefined {
  const key: Key = [undefined, "attention.temperature_scale"];
  const isTempered = config.isGguf
    ? (config.raw(key) ?? 0) !== 0
    : config.modelType === "ministral3";
  if (!isTempered) return undefined;
  const p = RopeParameters.read(config, {});
  const original = p.positive("original_max_position_embeddings");
  const beta = config.isGguf ? config.number(key) : p.number("llama_4_scaling_beta");
  config.sink?.setting(key[1]!, ["f32", beta]);
  if (beta < 0) throw p.invalid("llama_4_scaling_beta", beta, "a number of at least 0");
  if (beta === 0) return undefined;
  return loadPositionScale(
    weights,
    c,
    (position) => 1 + beta * Math.log1p(Math.floor(position / original)),
  );
}

/**
 * Mixtral: a mixture of experts in place of the MLP. GGUF stores it as `llama` with experts. A. Q.
 * Jiang et al., "Mixtral of Experts", arXiv:2401.04088.
 */
export const mixtral: Family = {
  huggingFace: ["mixtral"],
  gguf: [],
  writes: { mixtral: { architecture: "llama", reordersHeads: true } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: llamaRopeLayout(config) });
    const windows = slidingWindows(config, c.nLayers, undefined);
    const experts = {
      ...readExpertCounts(config, ["num_local_experts", "expert_count"]),
      intermediateSize: c.intermediateSize,
      normalize: true,
      names: MIXTRAL_EXPERTS,
    };
    return preNormDecoder(source, c, {
      attention: (weights, i) => loadAttention(weights, c, i, { rope, window: windows[i] }),
      mlp: (weights) => loadMoe(weights, c, experts),
    });
  },
};

/**
 * Mistral and Mixtral: Llama with an optional sliding window. A. Q. Jiang et al., "Mistral 7B",
 * arXiv:2310.06825.
 */
import type { Family } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import { decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import { RopeParameters } from "../config/rope_parameters.ts";
import { loadAttention, loadGatedMlp } from "../parts/blocks.ts";
import { llamaRopeLayout, loadRope, preNormDecoder } from "../parts/decoder.ts";
import { loadMoe, readExpertCounts } from "../parts/moe.ts";

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
    const whole = decoderConfig(config);
    const c = { ...whole, contextLength: untemperedLength(config, whole.contextLength) };
    const rope = loadRope(source, whole, { layout: llamaRopeLayout(config) });
    const windows = slidingWindows(config, c.nLayers, undefined);
    return preNormDecoder(source, c, {
      attention: (weights, i) => loadAttention(weights, c, i, { rope, window: windows[i] }),
      mlp: (weights) => loadGatedMlp(weights, c),
    });
  },
};

/**
 * Returns the context length up to which Ministral 3 leaves attention scores as they are. Beyond
 * YaRN's original length it scales queries by a factor that grows with the position. Forge has one
 * rotation for queries and keys and does not compute that factor, so the context ends there.
 */
function untemperedLength(config: ConfigReader, contextLength: number): number {
  if (config.isGguf) {
    const key: Key = [undefined, "rope.scaling.original_context_length"];
    const beta = config.raw([undefined, "attention.temperature_scale"]) ?? 0;
    return beta === 0 ? contextLength : Math.min(contextLength, config.int(key));
  }
  if (config.modelType !== "ministral3") return contextLength;
  const p = RopeParameters.read(config, {});
  const original = p.positive("original_max_position_embeddings");
  return p.number("llama_4_scaling_beta") === 0
    ? contextLength
    : Math.max(Math.min(contextLength, Math.floor(original)), 1);
}

const EXPERT = "block_sparse_moe.experts.{}";

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
      names: {
        router: "block_sparse_moe.gate",
        gate: `${EXPERT}.w1`,
        up: `${EXPERT}.w3`,
        down: `${EXPERT}.w2`,
      },
    };
    return preNormDecoder(source, c, {
      attention: (weights, i) => loadAttention(weights, c, i, { rope, window: windows[i] }),
      mlp: (weights) => loadMoe(weights, c, experts),
    });
  },
};

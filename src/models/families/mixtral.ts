/**
 * Mixtral: Mistral with a sparse mixture of experts for MLP. In GGUF it is stored as `llama` with
 * experts. A. Q. Jiang et al., "Mixtral of Experts", arXiv:2401.04088.
 */
import { loadAttention, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "../parts/decoder.ts";
import { decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import { loadMoe } from "../parts/moe.ts";

const EXPERT = "block_sparse_moe.experts.{}";

export const mixtral: Family = {
  huggingFace: ["mixtral"],
  gguf: [],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, {
      layout: config.isGguf ? "interleaved" : "half",
    });
    const windows = slidingWindows(config, c.nLayers, undefined);
    const nExperts = config.int(["num_local_experts", "expert_count"]);
    const experts = {
      nExperts,
      topK: config.int(["num_experts_per_tok", "expert_used_count"], { max: nExperts }),
      intermediateSize: c.intermediateSize,
      normalize: true,
      names: {
        router: "block_sparse_moe.gate",
        gate: `${EXPERT}.w1`,
        up: `${EXPERT}.w3`,
        down: `${EXPERT}.w2`,
      },
    };
    return loadDecoder(source, c, {
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, { rope, window: windows[i] }),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: loadMoe(weights, c, experts),
        }),
    });
  },
};

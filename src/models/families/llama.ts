/**
 * Llama 1 to 3.x, and models that differ from it in biases, in the MLP or in how matrices are
 * stored: pre-norm, RoPE, grouped-query attention, a gated SiLU MLP. H. Touvron et al., "LLaMA",
 * arXiv:2302.13971.
 */
import type { Family } from "../causal_lm.ts";
import { decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import { RopeParameters } from "../config/rope_parameters.ts";
import { biasRule, loadAttention, loadGatedMlp, loadPlainMlp } from "../parts/blocks.ts";
import {
  llamaRopeLayout,
  loadRope,
  POST_ATTENTION_NORM,
  preNormDecoder,
} from "../parts/decoder.ts";

export const llama: Family = {
  huggingFace: ["llama"],
  gguf: ["llama"],
  writes: { llama: { architecture: "llama", reordersHeads: true } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: llamaRopeLayout(config) });
    const bias = biasRule(config, "attention_bias");
    const mlpBias = biasRule(config, "mlp_bias");
    return preNormDecoder(source, c, {
      attention: (weights, i) => loadAttention(weights, c, i, { rope, bias, outputBias: bias }),
      mlp: (weights) => loadGatedMlp(weights, c, { bias: mlpBias }),
    });
  },
};

/** Arcee's AFM (2025): an MLP without a gate, activated by squared ReLU. */
export const arcee: Family = {
  huggingFace: ["arcee"],
  gguf: ["arcee"],
  writes: { arcee: { architecture: "arcee", reordersHeads: true } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config, { activation: "relu_squared" });
    const rope = loadRope(source, c, { layout: llamaRopeLayout(config) });
    const bias = biasRule(config, "attention_bias");
    const mlpBias = biasRule(config, "mlp_bias");
    return preNormDecoder(source, c, {
      attention: (weights, i) => loadAttention(weights, c, i, { rope, bias, outputBias: bias }),
      mlp: (weights) => loadPlainMlp(weights, c, { bias: mlpBias }),
    });
  },
};

/** ByteDance Seed-OSS: biases on q, k and v. */
export const seedOss: Family = {
  huggingFace: ["seed_oss"],
  gguf: ["seed_oss"],
  writes: { seed_oss: { architecture: "seed_oss" } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const rope = loadRope(source, c, { layout: "half" });
    const bias = biasRule(config, "attention_bias");
    const outputBias = biasRule(config, "attention_out_bias");
    return preNormDecoder(source, c, {
      mlpNorm: POST_ATTENTION_NORM,
      attention: (weights, i) => loadAttention(weights, c, i, { rope, bias, outputBias }),
      mlp: (weights) => loadGatedMlp(weights, c),
    });
  },
};

/** Scaling of RoPE in Phi-3. "su" is an older name of LongRoPE. */
const PHI3_SCALING = ["default", "longrope", "su", "none"];

/**
 * Phi-3 and Phi-3.5: one matrix for q, k and v and one for gate and up, rotation of part of a head,
 * LongRoPE. M. Abdin et al., arXiv:2404.14219.
 */
export const phi3: Family = {
  huggingFace: ["phi3"],
  gguf: ["phi3"],
  writes: { phi3: { architecture: "phi3" } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const scaling = RopeParameters.read(config, {});
    if (!PHI3_SCALING.includes(scaling.type)) throw scaling.unsupported(PHI3_SCALING);
    const rope = loadRope(source, c, { layout: "half" });
    const windows = slidingWindows(config, c.nLayers, undefined);
    return preNormDecoder(source, c, {
      attention: (weights, i) => loadAttention(weights, c, i, { rope, window: windows[i] }),
      mlp: (weights) => loadGatedMlp(weights, c),
    });
  },
};

/**
 * Gemma 2: norms on both sides of each part, soft-capped scores and logits, a sliding window in every
 * other layer. Gemma Team, arXiv:2408.00118.
 */
import { loadAttention, loadGatedMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import { INPUT_NORM, loadDecoder, loadRope, sandwichNormLayer } from "../parts/decoder.ts";
import { type DecoderConfig, decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import type { TensorName } from "../weights/weight_loader.ts";

/** The norms of a Gemma 2 or 3 layer, but for the first. */
export const GEMMA_NORMS = {
  postAttention: ["post_attention_layernorm", "post_attention_norm"],
  mlp: ["pre_feedforward_layernorm", "ffn_norm"],
  postMlp: ["post_feedforward_layernorm", "post_ffw_norm"],
} as const satisfies Record<string, TensorName>;

export const gemma2: Family = {
  huggingFace: ["gemma2"],
  gguf: ["gemma2"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config, { activation: "gelu_tanh" });
    const norm = { weightOffset: config.isGguf ? 0 : 1 };
    const windows = slidingWindows(config, c.nLayers, 2);
    const attention = {
      rope: loadRope(source, c, { layout: "half" }),
      scale: gemmaAttentionScale(config, c, 46),
      softcap: optionalCap(config, "attn_logit_softcapping"),
    };
    return loadDecoder(source, c, {
      embeddingScale: Math.sqrt(c.hiddenSize),
      norm,
      head: { softcap: optionalCap(config, "final_logit_softcapping") },
      layer: (weights, i) =>
        sandwichNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM, norm),
          attention: loadAttention(weights, c, i, { ...attention, window: windows[i] }),
          postAttentionNorm: loadRmsNorm(weights, c, GEMMA_NORMS.postAttention, norm),
          mlpNorm: loadRmsNorm(weights, c, GEMMA_NORMS.mlp, norm),
          mlp: loadGatedMlp(weights, c),
          postMlpNorm: loadRmsNorm(weights, c, GEMMA_NORMS.postMlp, norm),
        }),
    });
  },
};

/**
 * `query_pre_attn_scalar ** -0.5`. GGUF does not carry the scalar: it is the head's size, but for the
 * 27B models, which are told by their number of layers and use hidden size over heads.
 */
export function gemmaAttentionScale(
  config: ConfigReader,
  c: DecoderConfig,
  layersOf27B: number,
): number {
  const implied = config.isGguf && c.nLayers === layersOf27B ? c.hiddenSize / c.nHeads : c.headDim;
  return config.positive(["query_pre_attn_scalar", undefined], implied) ** -0.5;
}

/** A soft-cap that may be absent. */
export function optionalCap(config: ConfigReader, name: string): number | undefined {
  return config.raw([name, name]) === undefined ? undefined : config.positive([name, name]);
}

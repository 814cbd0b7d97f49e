/**
 * Gemma 1 to 3 (text): Llama with scaled embeddings, GELU in the MLP and norms that add 1 to their
 * weight.
 */
import type { Family } from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import {
  type DecoderConfig,
  decoderConfig,
  readSoftcap,
  slidingWindows,
} from "../config/decoder_config.ts";
import { loadAttention, loadGatedMlp } from "../parts/blocks.ts";
import { loadRope, preNormDecoder, sandwichNormDecoder } from "../parts/decoder.ts";

/** Gemma Team, arXiv:2403.08295. */
export const gemma: Family = {
  huggingFace: ["gemma"],
  gguf: ["gemma"],
  writes: { gemma: { architecture: "gemma", addsToNorms: true } },
  load(source) {
    const c = gemmaConfig(source.config);
    // The first files say "gelu" and mean its tanh form; every implementation reads it so.
    const activation = c.activation === "gelu_erf" ? "gelu_tanh" : c.activation;
    const rope = loadRope(source, c, { layout: "half" });
    return preNormDecoder(source, c, {
      ...gemmaFrame(source.config, c),
      attention: (weights, i) => loadAttention(weights, c, i, { rope }),
      mlp: (weights) => loadGatedMlp(weights, c, { activation }),
    });
  },
};

/**
 * Gemma 2: norms before and after each block, soft-capped scores and logits, a sliding window in
 * every other layer. Gemma Team, arXiv:2408.00118.
 */
export const gemma2: Family = {
  huggingFace: ["gemma2"],
  gguf: ["gemma2"],
  writes: { gemma2: { architecture: "gemma2", addsToNorms: true } },
  load(source) {
    const { config } = source;
    const c = gemmaConfig(config);
    const windows = slidingWindows(config, c.nLayers, 2);
    const attention = {
      rope: loadRope(source, c, { layout: "half" }),
      scale: attentionScale(config, c, 46),
      softcap: readSoftcap(config, "attn_logit_softcapping"),
    };
    return sandwichNormDecoder(source, c, {
      ...gemmaFrame(config, c),
      head: { softcap: readSoftcap(config, "final_logit_softcapping") },
      attention: (weights, i) => loadAttention(weights, c, i, { ...attention, window: windows[i] }),
      mlp: (weights) => loadGatedMlp(weights, c),
    });
  },
};

/**
 * Gemma 3 (text), and EmbeddingGemma, whose tokens see the whole text: Gemma 2 with RMSNorm on each
 * head of q and k in place of soft-caps, five layers with a window for each one without, and a base
 * frequency for each kind of layer. Gemma Team, arXiv:2503.19786.
 */
export const gemma3: Family = {
  huggingFace: ["gemma3_text"],
  gguf: ["gemma3", "gemma-embedding"],
  writes: { gemma3_text: { architecture: "gemma3", addsToNorms: true } },
  load(source) {
    const { config } = source;
    const c = gemmaConfig(config);
    const frame = gemmaFrame(config, c);
    const period = config.int(["sliding_window_pattern", undefined], { fallback: 6 });
    const isBidirectional = config.modelType === "gemma-embedding" ||
      config.raw(["use_bidirectional_attention", undefined]) === true;
    // The window of a token is then on both sides of it.
    const windows = slidingWindows(config, c.nLayers, period)
      .map((window) => isBidirectional && window ? Math.floor(window / 2) + 1 : window);
    const global = loadRope(source, c, { layout: "half", layerType: "full_attention" });
    const local = loadRope(source, c, {
      layout: "half",
      layerType: "sliding_attention",
      ggufSlidingTheta: 10_000,
    });
    const attention = {
      qkNorm: "head",
      normOffset: frame.norm.weightOffset,
      scale: attentionScale(config, c, 62),
      softcap: readSoftcap(config, "attn_logit_softcapping"),
      causal: !isBidirectional,
    } as const;
    return sandwichNormDecoder(source, c, {
      ...frame,
      isBidirectional,
      head: { softcap: readSoftcap(config, "final_logit_softcapping") },
      attention: (weights, i) => {
        const window = windows[i];
        const rope = window === undefined ? global : local;
        return loadAttention(weights, c, i, { ...attention, rope, window });
      },
      mlp: (weights) => loadGatedMlp(weights, c),
    });
  },
};

const gemmaConfig = (config: ConfigReader) => decoderConfig(config, { activation: "gelu_tanh" });

/** Parts around the layers. */
function gemmaFrame(config: ConfigReader, c: DecoderConfig) {
  return {
    embeddingScale: Math.sqrt(c.hiddenSize),
    // llama.cpp's converter adds the 1 when it writes the file.
    norm: { weightOffset: config.isGguf ? 0 : 1 },
  };
}

/**
 * Returns `query_pre_attn_scalar ** -0.5`. GGUF lacks the scalar. It equals the size of a head,
 * except in the 27B models, which have `layersOf27B` layers and use hidden size over heads.
 */
function attentionScale(config: ConfigReader, c: DecoderConfig, layersOf27B: number): number {
  const implied = c.nLayers === layersOf27B ? c.hiddenSize / c.nHeads : c.headDim;
  return config.positive(["query_pre_attn_scalar", undefined], implied) ** -0.5;
}

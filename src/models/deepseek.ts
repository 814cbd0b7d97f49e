/**
 * DeepSeek 2 and 3, and what is built like them (Kimi K2, GLM-4.7-Flash): latent attention, and experts beside
 * a shared one. DeepSeek-AI, arXiv:2405.04434 and arXiv:2412.19437.
 */
import { loadRmsNorm } from "./blocks.ts";
import type { Family } from "./causal_lm.ts";
import type { ConfigReader } from "./config_reader.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "./decoder.ts";
import { decoderConfig } from "./decoder_config.ts";
import { latentDims, latentKvShape, loadLatentAttention } from "./latent_attention.ts";
import { RopeParameters } from "./rope_parameters.ts";
import { sharedExpertMlp } from "./shared_expert_moe.ts";

/** Layers with a plain MLP, where config.json does not say. */
const FIRST_DENSE: Readonly<Record<string, number>> = { deepseek_v3: 3, glm4_moe_lite: 1 };

export const deepseek: Family = {
  huggingFace: ["deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite"],
  gguf: ["deepseek2"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const dims = latentDims(config);
    const rope = loadRope(source, { ...c, headDim: dims.rotated }, {
      layout: config.boolean(["rope_interleave", undefined], true) ? "interleaved" : "half",
    });
    const mlp = sharedExpertMlp(config, c, {
      firstDense: FIRST_DENSE[config.modelType] ?? 0,
      scores: usesSigmoids(config, source.weights.layer(c.nLayers - 1).has(CHOICE_BIAS, "bias"))
        ? "sigmoid"
        : "softmax",
    });
    const attention = { dims, rope, scale: attentionScale(config, dims.plain + dims.rotated) };
    return loadDecoder(source, c, {
      kvLayers: Array.from({ length: c.nLayers }, () => latentKvShape(dims)),
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadRmsNorm(weights, c, INPUT_NORM),
          attention: loadLatentAttention(weights, c, i, attention),
          mlpNorm: loadRmsNorm(weights, c, MLP_NORM),
          mlp: mlp(weights, i),
        }),
    });
  },
};

const CHOICE_BIAS = [undefined, "exp_probs_b"] as const;

/** GGUF files need not say; those whose choice is biased do it by sigmoids. */
function usesSigmoids(config: ConfigReader, hasChoiceBias: boolean): boolean {
  return config.isGguf ? hasChoiceBias : config.modelType !== "deepseek_v2";
}

/** What YaRN adds to the length of keys and queries is part of the scores' factor. */
function attentionScale(config: ConfigReader, headDim: number): number {
  const p = RopeParameters.read(config, {});
  // llama.cpp's converter writes a tenth.
  const strength = p.number("mscale_all_dim", 0) * (config.isGguf ? 10 : 1);
  const factor = p.has("factor") ? p.positive("factor") : 1;
  const length = factor <= 1 ? 1 : 0.1 * strength * Math.log(factor) + 1;
  return length * length / Math.sqrt(headDim);
}

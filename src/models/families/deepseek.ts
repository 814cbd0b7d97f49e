/**
 * DeepSeek 2 and 3, and what is built like them (Kimi K2, GLM-4.7-Flash): latent attention, and experts beside
 * a shared one. DeepSeek-AI, arXiv:2405.04434 and arXiv:2412.19437.
 */
import { loadRmsNorm } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import { INPUT_NORM, loadDecoder, loadRope, MLP_NORM, preNormLayer } from "../parts/decoder.ts";
import { decoderConfig } from "../config/decoder_config.ts";
import { latentDims, latentKvShape, loadLatentAttention } from "../parts/latent_attention.ts";
import { RopeParameters } from "../config/rope_parameters.ts";
import { sharedExpertMlp } from "../parts/shared_expert_moe.ts";

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
      // Of config.json, in GLM-4.7-Flash alone, which has lists of types for all that differ from this.
      firstDense: config.modelType === "glm4_moe_lite" ? 1 : 0,
      scores: usesSigmoids(config, source.weights.layer(c.nLayers - 1).has(CHOICE_BIAS, "bias"))
        ? "sigmoid"
        : "softmax",
    });
    const parameters = RopeParameters.read(config, {});
    assertWhole(config, parameters, dims.rotated);
    const scale = attentionScale(config, parameters, dims.plain + dims.rotated);
    const attention = { dims, rope, scale };
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
function attentionScale(config: ConfigReader, p: RopeParameters, headDim: number): number {
  // llama.cpp's converter writes a tenth.
  const strength = (p.has("mscale_all_dim") ? p.number("mscale_all_dim") : 0) *
    (config.isGguf ? 10 : 1);
  const factor = strength === 0 || p.type === "default" ? 1 : p.positive("factor");
  const length = factor <= 1 ? 1 : 0.1 * strength * Math.log(factor) + 1;
  return length * length / Math.sqrt(headDim);
}

/** Refuses a rotation of other than the whole part of a head that is set apart for it. */
function assertWhole(config: ConfigReader, p: RopeParameters, rotated: number): void {
  const partial = p.positive("partial_rotary_factor", 1);
  if (config.modelType === "glm4_moe_lite" && partial !== 1) {
    throw p.invalid("partial_rotary_factor", partial, "1 in this architecture");
  }
  const key: Key = ["head_dim", undefined];
  const headDim = config.raw(key) ?? rotated;
  if (headDim !== rotated) throw config.unsupported(key, headDim, `qk_rope_head_dim, ${rotated}`);
}

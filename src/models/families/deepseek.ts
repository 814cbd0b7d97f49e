/**
 * DeepSeek 2 and 3, and models with the same architecture (Kimi K2, GLM-4.7-Flash): latent
 * attention, experts next to a shared one. DeepSeek-AI, arXiv:2405.04434 and arXiv:2412.19437.
 */
import type { Family } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import { decoderConfig } from "../config/decoder_config.ts";
import { RopeParameters } from "../config/rope_parameters.ts";
import { loadRope, preNormDecoder } from "../parts/decoder.ts";
import { latentDims, latentKvShape, loadLatentAttention } from "../parts/latent_attention.ts";
import { sharedExpertMlp } from "../parts/shared_expert_moe.ts";

export const deepseek: Family = {
  huggingFace: ["deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite"],
  gguf: ["deepseek2"],
  writes: {
    deepseek_v2: { architecture: "deepseek2" },
    deepseek_v3: { architecture: "deepseek2", mayPredict: true },
    kimi_k2: { architecture: "deepseek2", mayPredict: true },
  },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const dims = latentDims(config);
    const rope = loadRope(source, { ...c, headDim: dims.rotated }, {
      layout: config.boolean(["rope_interleave", undefined], true) ? "interleaved" : "half",
    });
    const mlp = sharedExpertMlp(config, c, {
      // transformers has this default for GLM-4.7-Flash alone.
      firstDense: config.modelType === "glm4_moe_lite" ? 1 : 0,
      scores: usesSigmoids(config, source.weights.layer(c.nLayers - 1).has(CHOICE_BIAS, "bias"))
        ? "sigmoid"
        : "softmax",
    });
    const parameters = RopeParameters.read(config, {});
    assertWholeRotation(config, parameters, dims.rotated);
    const scale = attentionScale(config, parameters, dims.plain + dims.rotated);
    const attention = { dims, rope, scale };
    return preNormDecoder(source, c, {
      kvLayers: Array.from({ length: c.nLayers }, () => latentKvShape(dims)),
      attention: (weights, i) => loadLatentAttention(weights, c, i, attention),
      mlp,
    });
  },
};

const CHOICE_BIAS = [undefined, "exp_probs_b"] as const;

/**
 * True if router scores are sigmoids. A GGUF file may lack the setting; then a bias of the choice
 * implies them.
 */
function usesSigmoids(config: ConfigReader, hasChoiceBias: boolean): boolean {
  return config.isGguf ? hasChoiceBias : config.modelType !== "deepseek_v2";
}

/** Returns the factor of attention scores, which includes YaRN's scaling of queries and keys. */
function attentionScale(config: ConfigReader, p: RopeParameters, headDim: number): number {
  // llama.cpp's converter writes a tenth of the value.
  const strength = (p.has("mscale_all_dim") ? p.number("mscale_all_dim") : 0) *
    (config.isGguf ? 10 : 1);
  config.sink?.setting("rope.scaling.yarn_log_multiplier", ["f32", strength / 10]);
  const factor = strength === 0 || p.type === "default" ? 1 : p.positive("factor");
  const length = factor <= 1 ? 1 : 0.1 * strength * Math.log(factor) + 1;
  return length * length / Math.sqrt(headDim);
}

/** Rejects settings that rotate other than exactly the `qk_rope_head_dim` elements of a head. */
function assertWholeRotation(config: ConfigReader, p: RopeParameters, rotated: number): void {
  const partial = p.positive("partial_rotary_factor", 1);
  if (config.modelType === "glm4_moe_lite" && partial !== 1) {
    throw p.invalid("partial_rotary_factor", partial, "1 in this architecture");
  }
  const key: Key = ["head_dim", undefined];
  const headDim = config.raw(key) ?? rotated;
  if (headDim !== rotated) throw config.unsupported(key, headDim, `qk_rope_head_dim, ${rotated}`);
}

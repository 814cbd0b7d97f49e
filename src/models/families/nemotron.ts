/** Nemotron 4 and Minitron: LayerNorm, rotation of half a head, squares of what is positive. arXiv:2402.16819. */
import { biasRule, loadAttention, loadLayerNorm, loadPlainMlp } from "../parts/blocks.ts";
import type { Family } from "../causal_lm.ts";
import {
  FINAL_NORM,
  INPUT_NORM,
  loadDecoder,
  loadRope,
  MLP_NORM,
  preNormLayer,
} from "../parts/decoder.ts";
import { decoderConfig } from "../config/decoder_config.ts";

export const nemotron: Family = {
  huggingFace: ["nemotron"],
  gguf: ["nemotron"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config, {
      normEps: ["norm_eps", "attention.layer_norm_epsilon"],
      activation: "relu_squared",
    });
    const rope = loadRope(source, c, { layout: "half" });
    const bias = biasRule(config, "attention_bias", false);
    const mlpBias = biasRule(config, "mlp_bias", false);
    // llama.cpp's converter adds the 1 when it writes the file.
    const norm = { weightOffset: config.isGguf ? 0 : 1 };
    return loadDecoder(source, c, {
      finalNorm: loadLayerNorm(source.weights, c, FINAL_NORM, norm),
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadLayerNorm(weights, c, INPUT_NORM, norm),
          attention: loadAttention(weights, c, i, { rope, bias, outputBias: bias }),
          mlpNorm: loadLayerNorm(weights, c, MLP_NORM, norm),
          mlp: loadPlainMlp(weights, c, { bias: mlpBias }),
        }),
    });
  },
};

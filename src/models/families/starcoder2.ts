/** StarCoder2: LayerNorm, biases everywhere and an MLP without a gate. arXiv:2402.19173. */
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
import { decoderConfig, slidingWindows } from "../config/decoder_config.ts";

const MLP_NAMES = {
  up: ["mlp.c_fc", "ffn_up"],
  down: ["mlp.c_proj", "ffn_down"],
} as const;

export const starcoder2: Family = {
  huggingFace: ["starcoder2"],
  gguf: ["starcoder2"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config, {
      normEps: ["norm_epsilon", "attention.layer_norm_epsilon"],
      activation: "gelu_tanh",
    });
    const rope = loadRope(source, c, { layout: "half" });
    const windows = slidingWindows(config, c.nLayers, undefined);
    const bias = biasRule(config, "use_bias", true);
    return loadDecoder(source, c, {
      finalNorm: loadLayerNorm(source.weights, c, FINAL_NORM),
      layer: (weights, i) =>
        preNormLayer({
          attentionNorm: loadLayerNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, {
            rope,
            window: windows[i],
            bias,
            outputBias: bias,
          }),
          mlpNorm: loadLayerNorm(weights, c, MLP_NORM),
          mlp: loadPlainMlp(weights, c, { bias, names: MLP_NAMES }),
        }),
    });
  },
};

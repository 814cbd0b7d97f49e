/** StarCoder2: LayerNorm, biases everywhere and an MLP without a gate. arXiv:2402.19173. */
import { type BiasRule, biasRule, type Block, loadAttention, loadBias } from "./blocks.ts";
import type { Family } from "./causal_lm.ts";
import {
  FINAL_NORM,
  INPUT_NORM,
  loadDecoder,
  loadRope,
  MLP_NORM,
  preNormLayer,
} from "./decoder.ts";
import { type DecoderConfig, decoderConfig, slidingWindows } from "./decoder_config.ts";
import type { TensorName, WeightLoader } from "./weight_loader.ts";

const UP: TensorName = ["mlp.c_fc", "ffn_up"];
const DOWN: TensorName = ["mlp.c_proj", "ffn_down"];

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
      head: { tiedByDefault: true },
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
          mlp: loadMlp(weights, c, bias),
        }),
    });
  },
};

function loadLayerNorm(weights: WeightLoader, c: DecoderConfig, name: TensorName): Block {
  const weight = weights.vector(name, c.hiddenSize);
  const bias = weights.vector(name, c.hiddenSize, "bias");
  return ({ recorder }, x) => recorder.layerNorm(x, weight, bias, c.normEps);
}

function loadMlp(weights: WeightLoader, c: DecoderConfig, rule: BiasRule): Block {
  const { hiddenSize, intermediateSize } = c;
  const up = weights.matrix(UP, intermediateSize, hiddenSize);
  const upBias = loadBias(weights, UP, intermediateSize, rule);
  const down = weights.matrix(DOWN, hiddenSize, intermediateSize);
  const downBias = loadBias(weights, DOWN, hiddenSize, rule);
  return ({ recorder }, x, residual) => {
    const hidden = recorder.matmul(x, up, { bias: upBias, activation: c.activation });
    return recorder.matmul(hidden, down, { bias: downBias, residual });
  };
}

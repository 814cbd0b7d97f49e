/**
 * Command R and its successors: LayerNorm without a bias, attention and MLP side by side, scaled logits.
 * Cohere 2 (Command R7B, Command A) has a sliding window in three of four layers; the fourth attends to
 * everything, without positions. Cohere, arXiv:2504.00698.
 */
import { biasRule, type Block, loadAttention, loadGatedMlp } from "./blocks.ts";
import type { Family } from "./causal_lm.ts";
import type { Key } from "./config_reader.ts";
import { FINAL_NORM, INPUT_NORM, loadDecoder, loadRope, parallelLayer } from "./decoder.ts";
import { type DecoderConfig, decoderConfig, slidingWindows } from "./decoder_config.ts";
import type { TensorName, WeightLoader } from "./weight_loader.ts";

const LOGIT_SCALE: Key = ["logit_scale", "logit_scale"];

export const cohere: Family = {
  huggingFace: ["cohere", "cohere2"],
  gguf: ["command-r", "cohere2"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config, {
      normEps: ["layer_norm_eps", "attention.layer_norm_epsilon"],
    });
    const rope = loadRope(source, c, { layout: "interleaved" });
    const isHybrid = config.modelType === "cohere2";
    const windows = isHybrid ? slidingWindows(config, c.nLayers, 4) : [];
    const bias = biasRule(config, "attention_bias", false);
    return loadDecoder(source, c, {
      finalNorm: loadLayerNorm(source.weights, c, FINAL_NORM),
      head: { tiedByDefault: true, scale: config.positive(LOGIT_SCALE, 0.0625) },
      layer: (weights, i) => {
        const window = windows[i];
        return parallelLayer({
          norm: loadLayerNorm(weights, c, INPUT_NORM),
          attention: loadAttention(weights, c, i, {
            rope: isHybrid && window === undefined ? undefined : rope,
            window,
            bias,
            outputBias: bias,
          }),
          mlp: loadGatedMlp(weights, c),
        });
      },
    });
  },
};

function loadLayerNorm(weights: WeightLoader, c: DecoderConfig, name: TensorName): Block {
  const weight = weights.vector(name, c.hiddenSize);
  return ({ recorder }, x) => recorder.layerNorm(x, weight, undefined, c.normEps);
}

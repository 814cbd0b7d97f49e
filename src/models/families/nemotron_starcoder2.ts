/** Nemotron 4 and StarCoder2: LayerNorm with biases, and an MLP without a gate. */
import type { CausalLm, Family, ModelSource } from "../causal_lm.ts";
import { type DecoderConfig, decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import {
  type BiasRule,
  biasRule,
  loadAttention,
  loadLayerNorm,
  loadPlainMlp,
  type NormOptions,
  type PlainMlpParts,
} from "../parts/blocks.ts";
import { loadRope, preNormDecoder } from "../parts/decoder.ts";

/** Nemotron 4 and Minitron: rotation of half a head, squared ReLU. arXiv:2402.16819. */
export const nemotron: Family = {
  huggingFace: ["nemotron"],
  gguf: ["nemotron"],
  writes: { nemotron: { architecture: "nemotron", addsToNorms: true } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config, {
      normEps: ["norm_eps", "attention.layer_norm_epsilon"],
      activation: "relu_squared",
    });
    return loadLayerNormDecoder(source, c, {
      bias: biasRule(config, "attention_bias"),
      mlp: { bias: biasRule(config, "mlp_bias") },
      // Weights are stored less 1. llama.cpp's converter adds it when it writes the file.
      norm: { weightOffset: config.isGguf ? 0 : 1 },
    });
  },
};

/** StarCoder2: biases in all products, and an optional sliding window. arXiv:2402.19173. */
export const starcoder2: Family = {
  huggingFace: ["starcoder2"],
  gguf: ["starcoder2"],
  writes: { starcoder2: { architecture: "starcoder2" } },
  load(source) {
    const { config } = source;
    const c = decoderConfig(config, {
      normEps: ["norm_epsilon", "attention.layer_norm_epsilon"],
      activation: "gelu_tanh",
    });
    const bias = biasRule(config, "use_bias");
    return loadLayerNormDecoder(source, c, {
      bias,
      windows: slidingWindows(config, c.nLayers, undefined),
      mlp: { bias, names: { up: ["mlp.c_fc", "ffn_up"], down: ["mlp.c_proj", "ffn_down"] } },
    });
  },
};

interface LayerNormParts {
  /** Biases of all four products of attention. */
  readonly bias: BiasRule;
  readonly windows?: readonly (number | undefined)[];
  readonly mlp: PlainMlpParts;
  readonly norm?: NormOptions;
}

function loadLayerNormDecoder(
  source: ModelSource,
  c: DecoderConfig,
  { bias, windows = [], mlp, norm }: LayerNormParts,
): CausalLm {
  const rope = loadRope(source, c, { layout: "half" });
  return preNormDecoder(source, c, {
    loadNorm: loadLayerNorm,
    norm,
    attention: (weights, i) =>
      loadAttention(weights, c, i, { rope, window: windows[i], bias, outputBias: bias }),
    mlp: (weights) => loadPlainMlp(weights, c, mlp),
  });
}

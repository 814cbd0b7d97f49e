/**
 * Apertus: a Llama with RMSNorm on each head of q and k, and an MLP without a gate whose activation
 * has parameters learned for each layer. Swiss AI, arXiv:2509.14233.
 */
import type { XieluOptions } from "../../backend.ts";
import type { Family } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import { type DecoderConfig, decoderConfig } from "../config/decoder_config.ts";
import { biasRule, type Block, loadAttention, loadPlainMlp, MLP_NAMES } from "../parts/blocks.ts";
import { loadRope, preNormDecoder } from "../parts/decoder.ts";
import type { GgufSink } from "../gguf_rules.ts";
import type { WeightLoader } from "../weights/weight_loader.ts";

export const apertus: Family = {
  huggingFace: ["apertus"],
  gguf: ["apertus"],
  writes: { apertus: { architecture: "apertus" } },
  load(source) {
    const { config } = source;
    const isXielu = config.isGguf || config.string(["hidden_act", undefined]) === "xielu";
    const c = decoderConfig(config, { hasOwnActivation: isXielu });
    const rope = loadRope(source, c, { layout: "half" });
    const bias = biasRule(config, "attention_bias");
    if (config.sink !== undefined && isXielu) noteXielu(config.sink, source.weights, c.nLayers);
    return preNormDecoder(source, c, {
      inputNorm: ["attention_layernorm", "attn_norm"],
      mlpNorm: ["feedforward_layernorm", "ffn_norm"],
      attention: (weights, i) =>
        loadAttention(weights, c, i, { rope, qkNorm: "head", bias, outputBias: bias }),
      mlp: (weights, i) =>
        isXielu
          ? loadXieluMlp(weights, c, readXielu(config, weights, c, i))
          : loadPlainMlp(weights, c, { bias: "none" }),
    });
  },
};

/** Loads `down(xielu(up(x)))`. */
function loadXieluMlp(
  weights: WeightLoader,
  { hiddenSize, intermediateSize }: DecoderConfig,
  options: XieluOptions,
): Block {
  weights.assertWhole("MLP with xIELU");
  const up = weights.matrix(MLP_NAMES.up, intermediateSize, hiddenSize);
  const down = weights.matrix(MLP_NAMES.down, hiddenSize, intermediateSize);
  return ({ recorder }, x, residual) =>
    recorder.matmul(recorder.xielu(recorder.matmul(x, up), options), down, { residual });
}

/** Parameters of the activation, with their defaults. */
const XIELU = { alpha_p: undefined, alpha_n: undefined, beta: 0.5, eps: -1e-6 } as const;

/** Reads the parameters of a layer: tensors of one number, or in GGUF lists of settings. */
function readXielu(
  config: ConfigReader,
  weights: WeightLoader,
  { nLayers }: DecoderConfig,
  layer: number,
): XieluOptions {
  const stored = (name: keyof typeof XIELU) =>
    config.isGguf
      ? layerNumber(config, [undefined, `xielu.${name}`], nLayers, layer, XIELU[name])
      : weights.number([`mlp.act_fn.${name}`, undefined], XIELU[name]);
  const beta = stored("beta");
  return {
    alphaP: softplus(stored("alpha_p")),
    alphaN: beta + softplus(stored("alpha_n")),
    beta,
    eps: stored("eps"),
  };
}

/** Passes the stored parameters of all layers on as the settings of GGUF files. */
function noteXielu(sink: GgufSink, weights: WeightLoader, nLayers: number): void {
  for (const [name, fallback] of Object.entries(XIELU)) {
    const values = Array.from(
      { length: nLayers },
      (_, i) => weights.layer(i).number([`mlp.act_fn.${name}`, undefined], fallback),
    );
    sink.setting(`xielu.${name}`, ["array", "f32", values]);
  }
}

/** Returns a layer's entry of a setting, which may also be one number for all layers. */
function layerNumber(
  config: ConfigReader,
  key: Key,
  nLayers: number,
  layer: number,
  fallback?: number,
): number {
  const whole = config.raw(key);
  if (whole === undefined || typeof whole === "number") return config.number(key, fallback);
  const value = config.perLayer(key, nLayers)?.[layer];
  if (typeof value === "number" && Number.isFinite(value)) return value;
  throw config.invalid(key, whole, "a finite number for each layer");
}

const softplus = (x: number): number => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));

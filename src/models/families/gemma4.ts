/**
 * Gemma 4 (text): Gemma 3 with larger heads in the layers that attend to everything, keys and values that later
 * layers share, an embedding for each layer, and in some sizes experts beside the MLP. Google DeepMind, Gemma 4
 * model card, 2026.
 */
import { type Block, loadGatedMlp, loadRmsNorm } from "../parts/blocks.ts";
import type { Family, LayerKvShape } from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import { INPUT_NORM, type Layer, loadDecoder, loadRope } from "../parts/decoder.ts";
import { type DecoderConfig, decoderConfig, slidingWindows } from "../config/decoder_config.ts";
import { GEMMA_NORMS, optionalCap } from "./gemma2.ts";
import { type KeyValueSource, loadGemma4Attention } from "./gemma4_attention.ts";
import { loadLayerInput, loadLayerInputs } from "./gemma4_layer_input.ts";
import { loadGemma4Mixture } from "./gemma4_mixture.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

/** How wide the heads of layers that attend to everything are, where config.json does not say. */
const GLOBAL_HEAD_DIM = 512;

/** What llama.cpp caps logits at, whether a file says so or not. */
const GGUF_CAP = 30;

const LAYER_SCALE: TensorName = ["layer_scalar", "layer_output_scale"];

export const gemma4: Family = {
  huggingFace: ["gemma4_text"],
  gguf: ["gemma4"],
  load(source) {
    const { config } = source;
    refuseBias(config);
    const nLayers = decoderConfig(config.ofLayer(0)).nLayers;
    const windows = slidingWindows(config, nLayers, 6);
    // Whatever is written, the last layer attends to everything.
    windows[nLayers - 1] = undefined;
    const layers = windows.map((window, i) => layerConfig(config, i, window !== undefined));
    const c = layers[0]!;
    const firstOf = (sliding: boolean) =>
      layers.find((_, i) => (windows[i] !== undefined) === sliding) ?? c;
    const ropes = {
      global: loadRope(source, firstOf(false), {
        layout: "half",
        layerType: "full_attention",
      }),
      local: loadRope(source, firstOf(true), {
        layout: "half",
        layerType: "sliding_attention",
        ggufSlidingTheta: 10_000,
        hasDivisors: false,
      }),
    };
    const nShared = config.int(["num_kv_shared_layers", "attention.shared_kv_layers"], {
      min: 0,
      max: nLayers - 1,
      fallback: 0,
    });
    const nOwn = nLayers - nShared;
    const inputs = loadLayerInputs(source, c);
    const sources = new Map<boolean, KeyValueSource>();
    const cap = optionalCap(config, "final_logit_softcapping");
    return loadDecoder(source, c, {
      embeddingScale: Math.sqrt(c.hiddenSize),
      head: { softcap: config.isGguf ? cap ?? GGUF_CAP : cap },
      kvLayers: layers.slice(0, nOwn).map(kvShape),
      begin: inputs,
      layer: (weights, i) => {
        const isSliding = windows[i] !== undefined;
        const { attention, source: keysAndValues } = loadGemma4Attention(weights, layers[i]!, i, {
          rope: isSliding ? ropes.local : ropes.global,
          window: windows[i],
          source: i < nOwn ? undefined : sources.get(isSliding),
          valuesAreKeys: valuesAreKeys(config, weights, isSliding),
        });
        if (i < nOwn) sources.set(isSliding, keysAndValues);
        return gemma4Layer(config, weights, layers[i]!, i, attention);
      },
    });
  },
};

/** A layer's own sizes. */
function layerConfig(config: ConfigReader, index: number, isSliding: boolean): DecoderConfig {
  const own = config.ofLayer(index);
  const c = decoderConfig(own, { activation: "gelu_tanh" });
  if (config.isGguf) {
    const key = isSliding ? "attention.key_length_swa" : "attention.key_length";
    return { ...c, headDim: config.int([undefined, key], { fallback: c.headDim }) };
  }
  if (isSliding || config.object("per_layer_config") !== undefined) {
    return { ...c, intermediateSize: mlpSize(config, c, index) };
  }
  const isShared = config.boolean(["attention_k_eq_v", undefined], false) &&
    config.raw(["num_global_key_value_heads", undefined]) !== undefined;
  return {
    ...c,
    intermediateSize: mlpSize(config, c, index),
    headDim: config.int(["global_head_dim", undefined], { fallback: GLOBAL_HEAD_DIM }),
    nKvHeads: isShared ? config.int(["num_global_key_value_heads", undefined]) : c.nKvHeads,
  };
}

/** Layers that share keys and values may have an MLP of twice the width. */
function mlpSize(config: ConfigReader, c: DecoderConfig, index: number): number {
  const nShared = config.int(["num_kv_shared_layers", undefined], { min: 0, fallback: 0 });
  const isWide = nShared > 0 && index >= c.nLayers - nShared &&
    config.boolean(["use_double_wide_mlp", undefined], false);
  return isWide ? 2 * c.intermediateSize : c.intermediateSize;
}

function valuesAreKeys(config: ConfigReader, weights: WeightLoader, isSliding: boolean): boolean {
  if (config.isGguf) return !weights.has([undefined, "attn_v"]);
  return !isSliding && config.boolean(["attention_k_eq_v", undefined], false);
}

function kvShape({ nKvHeads, headDim }: DecoderConfig): LayerKvShape {
  return { nKvHeads, kHeadDim: headDim, vHeadDim: headDim };
}

/** A layer around its attention. */
function gemma4Layer(
  config: ConfigReader,
  weights: WeightLoader,
  c: DecoderConfig,
  index: number,
  attention: Block,
): Layer {
  const norm = (name: TensorName) => loadRmsNorm(weights, c, name);
  const attentionNorm = norm(INPUT_NORM);
  const postAttention = norm(GEMMA_NORMS.postAttention);
  const mlpNorm = norm(GEMMA_NORMS.mlp);
  const mlp = loadGatedMlp(weights, c);
  const mixture = loadGemma4Mixture(config, weights, c);
  const postMlp = norm(GEMMA_NORMS.postMlp);
  const layerInput = loadLayerInput(config, weights, c, index);
  const scale = readScale(config, weights);
  return (pass, h) => {
    const mixed = attention(pass, attentionNorm(pass, h));
    h = postAttention(pass, mixed, h);
    const fed = mlp(pass, mlpNorm(pass, h));
    h = postMlp(pass, mixture === undefined ? fed : mixture(pass, h, fed), h);
    h = layerInput?.(pass, h) ?? h;
    if (scale === 1) return h;
    return pass.recorder.gatherColumns([{ value: h, width: c.hiddenSize, scale }], 1);
  };
}

/** What multiplies a layer's result. */
function readScale(config: ConfigReader, weights: WeightLoader): number {
  const weight = config.isGguf
    ? weights.optionalVector(LAYER_SCALE, 1)
    : weights.vector(LAYER_SCALE, 1, "");
  return weight === undefined ? 1 : weights.backend.readWeight(weight, 0, 1)[0]!;
}

function refuseBias(config: ConfigReader): void {
  const key = ["attention_bias", undefined] as const;
  if (config.boolean(key, false)) throw config.unsupported(key, true, "false in this architecture");
}

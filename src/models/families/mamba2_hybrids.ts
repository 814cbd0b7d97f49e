/** Bamba and Falcon-H1: Mamba-2 in most layers, or next to the attention of every layer. */
import type { Family, ModelSource } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import { type DecoderConfig, decoderConfig } from "../config/decoder_config.ts";
import {
  type BiasRule,
  biasRule,
  type Block,
  kvShape,
  loadAttention,
  loadGatedMlp,
  loadScaledRmsNorm,
  type MlpNames,
} from "../parts/blocks.ts";
import { type Layer, loadDecoder, loadRope, preNormDecoder } from "../parts/decoder.ts";
import {
  BAMBA_NAMES,
  loadMamba2,
  type Mamba2Config,
  mamba2Config,
  mamba2States,
} from "../parts/mamba2.ts";
import { indexAmongKind } from "../parts/recurrence.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

const MLP: MlpNames = {
  gate: ["feed_forward.gate_proj", "ffn_gate"],
  up: ["feed_forward.up_proj", "ffn_up"],
  down: ["feed_forward.down_proj", "ffn_down"],
};
const MLP_NORM: TensorName = ["pre_ff_layernorm", "ffn_norm"];
const FINAL_NORM: TensorName = ["final_layernorm", "output_norm"];

/** Bamba. GGUF files of it have the architecture of Granite's hybrids. */
export const bamba: Family = {
  huggingFace: ["bamba"],
  gguf: [],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const mamba = mamba2Config(config, c.hiddenSize, BAMBA_NAMES);
    const rope = loadRope(source, c, { layout: "half" });
    const bias = biasRule(config, "attention_bias");
    const isMamba = bambaLayers(config, c.nLayers);
    const indexOf = indexAmongKind(isMamba);
    return preNormDecoder(source, c, {
      mlpNorm: MLP_NORM,
      finalNorm: FINAL_NORM,
      kvLayers: isMamba.flatMap((is) => is ? [] : [kvShape(c)]),
      stateLayers: isMamba.flatMap((is) => is ? mamba2States(mamba) : []),
      attention: (weights, i) =>
        isMamba[i]
          ? loadMamba2(weights, c, mamba, { state: 2 * indexOf(i), norm: "row" })
          : loadAttention(weights, c, indexOf(i), { rope, bias, outputBias: bias }),
      mlp: (weights) =>
        loadGatedMlp(weights, c, { names: MLP, bias: biasRule(config, "mlp_bias") }),
    });
  },
};

/** Returns true for each layer without attention. */
function bambaLayers(config: ConfigReader, nLayers: number): readonly boolean[] {
  const key: Key = ["attn_layer_indices", undefined];
  const attention = config.raw(key) ?? [];
  const isLayer = (index: unknown) => Number.isInteger(index) && Number(index) < nLayers;
  if (!Array.isArray(attention) || !attention.every(isLayer)) {
    throw config.invalid(key, attention, `a list of layers, counted from 0, of ${nLayers}`);
  }
  return Array.from({ length: nLayers }, (_, i) => !attention.includes(i));
}

/** Falcon-H1, arXiv:2507.22448. */
export const falconH1: Family = {
  huggingFace: ["falcon_h1"],
  gguf: ["falcon-h1"],
  load(source) {
    const { config } = source;
    const c = decoderConfig(config);
    const multipliers = readMultipliers(config);
    const mamba = mamba2Config(config, c.hiddenSize, {
      ...BAMBA_NAMES,
      outputBias: "projectors_bias",
      inner: "mamba_d_ssm",
    });
    return loadDecoder(source, c, {
      finalNorm: FINAL_NORM,
      embeddingScale: multipliers.embedding,
      head: { scale: multipliers.logits },
      stateLayers: Array.from({ length: c.nLayers }, () => mamba2States(mamba)).flat(),
      layer: falconLayer(source, c, mamba, multipliers),
    });
  },
};

/**
 * Factors with which the model was trained (muP); llama.cpp's converter multiplies weights by them.
 */
interface Multipliers {
  readonly embedding: number;
  readonly logits: number;
  readonly attentionInput: number;
  readonly attentionOutput: number;
  readonly key: number;
  readonly mambaInput: number;
  readonly mambaOutput: number;
  /** Of the projected gate, x, b, c and dt. */
  readonly mamba: readonly [number, number, number, number, number];
  readonly mlpGate: number;
  readonly mlpOutput: number;
}

function readMultipliers(config: ConfigReader): Multipliers {
  const one = (name: string) => config.positive([name, undefined], 1);
  const list = (name: string, length: number): readonly number[] => {
    const key: Key = [name, undefined];
    const value = config.raw(key) ?? new Array(length).fill(1);
    const isValid = Array.isArray(value) && value.length === length &&
      value.every((factor) => typeof factor === "number" && factor > 0 && Number.isFinite(factor));
    if (!isValid) throw config.invalid(key, value, `a list of ${length} numbers above 0`);
    return value;
  };
  const [mlpGate = 1, mlpOutput = 1] = list("mlp_multipliers", 2);
  const [gate = 1, x = 1, b = 1, c = 1, dt = 1] = list("ssm_multipliers", 5);
  return {
    embedding: one("embedding_multiplier"),
    logits: one("lm_head_multiplier"),
    attentionInput: one("attention_in_multiplier"),
    attentionOutput: one("attention_out_multiplier"),
    key: one("key_multiplier"),
    mambaInput: one("ssm_in_multiplier"),
    mambaOutput: one("ssm_out_multiplier"),
    mamba: [gate, x, b, c, dt],
    mlpGate,
    mlpOutput,
  };
}

/**
 * Returns a loader of layers: Mamba-2 and attention read the same normalised stream, then an MLP.
 * Factors of a block's input are in the weights of the norm before it.
 */
function falconLayer(
  source: ModelSource,
  c: DecoderConfig,
  mamba: Mamba2Config,
  m: Multipliers,
): (weights: WeightLoader, index: number) => Layer {
  const { config } = source;
  const rope = loadRope(source, c, { layout: "half" });
  const attentionBias = biasRule(config, "attention_bias");
  const hasNorm = config.boolean(["mamba_rms_norm", undefined], false);
  const gatesAfterNorm = hasNorm && config.boolean(["mamba_norm_before_gate", undefined]);
  return (weights, i) => {
    const inputNorm = loadScaledRmsNorm(
      weights,
      c,
      ["input_layernorm", "attn_norm"],
      m.attentionInput,
    );
    const mixer = loadMamba2(weights, c, mamba, {
      state: 2 * i,
      norm: hasNorm ? "groups" : undefined,
      gatesAfterNorm,
      inputScale: m.mambaInput / m.attentionInput,
      factors: m.mamba,
      outputScale: m.mambaOutput,
    });
    const attention = loadAttention(weights, c, i, {
      rope,
      scale: m.key / Math.sqrt(c.headDim),
      bias: attentionBias,
      outputBias: attentionBias,
      outputScale: m.attentionOutput,
    });
    const mlp = loadFalconMlp(weights, c, m, biasRule(config, "mlp_bias"));
    return (pass, h) => {
      const normed = inputNorm(pass, h);
      h = attention(pass, normed, mixer(pass, normed, h));
      return mlp(pass, h, h);
    };
  };
}

/**
 * Loads the norm and the MLP after it. The factor of the gate is in the norm's weights, and so in
 * the other half of the product too: the output is divided by it.
 */
function loadFalconMlp(
  weights: WeightLoader,
  c: DecoderConfig,
  m: Multipliers,
  bias: BiasRule,
): Block {
  // llama.cpp's converter leaves out the suffix of this name.
  const suffix = weights.isGguf && !weights.has(MLP_NORM) ? "" : "weight";
  const norm = loadScaledRmsNorm(weights, c, MLP_NORM, m.mlpGate, suffix);
  const mlp = loadGatedMlp(weights, c, {
    names: MLP,
    bias,
    biasScale: m.mlpGate,
    outputScale: m.mlpOutput / m.mlpGate,
  });
  return (pass, h, residual) => mlp(pass, norm(pass, h), residual);
}

/** Nemotron-H and Mamba-2's own models: layers of one block each, after a norm. */
import type { CausalLm, Family, ModelSource } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import { activationOf, type DecoderConfig, decoderConfig } from "../config/decoder_config.ts";
import {
  type BiasRule,
  biasRule,
  type Block,
  kvShape,
  loadAttention,
  loadBias,
  loadPlainMlp,
  loadRmsNorm,
} from "../parts/blocks.ts";
import { type Layer, type LoadBlock, loadDecoder } from "../parts/decoder.ts";
import { loadMamba2, type Mamba2Config, mamba2Config, mamba2States } from "../parts/mamba2.ts";
import { loadPlainExperts, type PlainExpertParts } from "../parts/moe.ts";
import { addShared, routing } from "../parts/shared_expert_moe.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

const NORM: TensorName = ["norm", "attn_norm"];

type LayerType = "mamba" | "attention" | "mlp" | "moe";

/** Nemotron-H, arXiv:2504.03624, and Nemotron 3 with experts. Its attention has no positions. */
export const nemotronH: Family = {
  huggingFace: ["nemotron_h"],
  gguf: ["nemotron_h", "nemotron_h_moe"],
  load(source) {
    const { config } = source;
    const types = layerTypes(config);
    const anyMlp = Math.max(types.indexOf("mlp"), types.indexOf("moe"), 0);
    const anyAttention = Math.max(types.indexOf("attention"), 0);
    const c = decoderConfig(config.ofLayer(anyAttention), {
      nLayers: types.length,
      mlpLayer: anyMlp,
      normEps: ["layer_norm_epsilon", "attention.layer_norm_rms_epsilon"],
      activation: config.isGguf ? "relu_squared" : activationOf(config, "mlp_hidden_act"),
    });
    const mamba = mamba2Config(config, c.hiddenSize, {
      nHeads: "mamba_num_heads",
      headDim: "mamba_head_dim",
      nGroups: "n_groups",
      dState: "ssm_state_size",
      convWidth: "conv_kernel",
      convActivation: "mamba_hidden_act",
      convBias: "use_conv_bias",
      bias: "use_bias",
      // transformers does not read `time_step_limit` here.
      dtMin: "time_step_min",
    });
    // transformers ignores `attention_bias` here.
    const attentionBias = config.isGguf ? "optional" : "none";
    const mlp = { bias: biasRule(config, "mlp_bias") };
    const experts = types.includes("moe") ? expertLoader(config, c) : undefined;
    const indexOf = (layer: number) =>
      types.slice(0, layer).filter((type) => type === types[layer]).length;
    const loaders: Readonly<Record<LayerType, LoadBlock>> = {
      mamba: (weights, i) =>
        loadMamba2(weights, c, mamba, { state: 2 * indexOf(i), norm: "groups" }),
      attention: (weights, i) =>
        loadAttention(weights, c, indexOf(i), {
          rope: undefined,
          bias: attentionBias,
          outputBias: attentionBias,
        }),
      mlp: (weights) => loadPlainMlp(weights, c, mlp),
      moe: (weights, i) => experts!(weights, i),
    };
    return loadSingleBlocks(source, c, {
      mamba,
      isMamba: types.map((type) => type === "mamba"),
      kvLayers: types.filter((type) => type === "attention").length,
      block: (weights, i) => loaders[types[i]!](weights, i),
    });
  },
};

/** Mamba-2 without attention, as Codestral Mamba has it. */
export const mamba2: Family = {
  huggingFace: ["mamba2"],
  gguf: [],
  load(source) {
    const { config } = source;
    const nLayers = config.int(["num_hidden_layers", undefined], { max: 4096 });
    const hiddenSize = config.int(["hidden_size", undefined]);
    const mamba = mamba2Config(config, hiddenSize, {
      nHeads: "num_heads",
      headDim: "head_dim",
      nGroups: "n_groups",
      dState: "state_size",
      convWidth: "conv_kernel",
      convActivation: "hidden_act",
      convBias: "use_conv_bias",
      bias: "use_bias",
      expand: "expand",
    });
    const c: DecoderConfig = {
      hiddenSize,
      nLayers,
      nHeads: mamba.nHeads,
      nKvHeads: mamba.nHeads,
      headDim: mamba.headDim,
      intermediateSize: hiddenSize,
      normEps: config.positive(["layer_norm_epsilon", undefined]),
      activation: "silu",
      // The state has one size for any length.
      contextLength: config.int(["max_position_embeddings", undefined], { fallback: 2 ** 20 }),
    };
    return loadSingleBlocks(source, c, {
      mamba,
      isMamba: Array.from({ length: nLayers }, () => true),
      kvLayers: 0,
      block: (weights, i) => loadMamba2(weights, c, mamba, { state: 2 * i, norm: "row" }),
    });
  },
};

interface SingleBlocks {
  readonly mamba: Mamba2Config;
  readonly isMamba: readonly boolean[];
  /** Number of layers with attention. */
  readonly kvLayers: number;
  readonly block: LoadBlock;
}

function loadSingleBlocks(
  source: ModelSource,
  c: DecoderConfig,
  { mamba, isMamba, kvLayers, block }: SingleBlocks,
): CausalLm {
  return loadDecoder(source, c, {
    kvLayers: Array.from({ length: kvLayers }, () => kvShape(c)),
    stateLayers: isMamba.flatMap((is) => is ? mamba2States(mamba) : []),
    layer(weights, i): Layer {
      const norm = loadRmsNorm(weights, c, NORM);
      const mixer = block(weights, i);
      return (pass, h) => mixer(pass, norm(pass, h), h);
    },
  });
}

const TYPES: Readonly<Record<string, LayerType>> = {
  M: "mamba",
  mamba: "mamba",
  linear_attention: "mamba",
  "*": "attention",
  attention: "attention",
  full_attention: "attention",
  "-": "mlp",
  mlp: "mlp",
  E: "moe",
  moe: "moe",
};

/**
 * Returns the type of each layer: by `layers_block_type`, or a letter for each in the older
 * `hybrid_override_pattern`. GGUF files have the numbers of KV heads and of columns of the MLP.
 */
function layerTypes(config: ConfigReader): readonly LayerType[] {
  if (config.isGguf) return ggufLayerTypes(config);
  const listKey: Key = ["layers_block_type", undefined];
  const patternKey: Key = ["hybrid_override_pattern", undefined];
  const pattern = config.raw(patternKey);
  const key = config.raw(listKey) === undefined && pattern !== undefined ? patternKey : listKey;
  const value = key === patternKey
    ? typeof pattern === "string" ? [...pattern] : pattern
    : config.raw(listKey) ?? ["mamba", "moe", "attention", "mlp"];
  if (!Array.isArray(value) || value.length === 0 || value.length > 4096) {
    throw config.invalid(key, value, "a list with the type of each layer");
  }
  return value.map((name: unknown) => {
    const type = typeof name === "string" && Object.hasOwn(TYPES, name) ? TYPES[name] : undefined;
    if (type !== undefined) return type;
    throw config.unsupported(key, name, Object.keys(TYPES).join(", "));
  });
}

function ggufLayerTypes(config: ConfigReader): readonly LayerType[] {
  const next: Key = [undefined, "nextn_predict_layers"];
  const nBlocks = config.int([undefined, "block_count"], { max: 4096 });
  const nLayers = nBlocks - config.int(next, { min: 0, max: nBlocks - 1, fallback: 0 });
  const heads = config.perLayer([undefined, "attention.head_count_kv"], nLayers) ?? [];
  const sizes = config.perLayer([undefined, "feed_forward_length"], nLayers) ?? [];
  const hasExperts = config.modelType === "nemotron_h_moe";
  return Array.from({ length: nLayers }, (_, i) => {
    if (Number(heads[i]) > 0) return "attention";
    if (Number(sizes[i]) > 0) return hasExperts ? "moe" : "mlp";
    return "mamba";
  });
}

/** Returns a loader of experts without gates, next to an MLP that all tokens pass through. */
function expertLoader(config: ConfigReader, c: DecoderConfig): LoadBlock {
  if (c.activation !== "relu_squared") {
    const key: Key = ["mlp_hidden_act", undefined];
    throw config.unsupported(key, config.raw(key), '"relu2" in models with experts');
  }
  const nExperts = config.int(["n_routed_experts", "expert_count"]);
  const latentKey: Key = ["moe_latent_size", "moe_latent_size"];
  const latent = config.raw(latentKey) === undefined ? undefined : config.int(latentKey);
  const bias = biasRule(config, "mlp_bias");
  const experts: PlainExpertParts = {
    nExperts,
    topK: config.int(["num_experts_per_tok", "expert_used_count"], { max: nExperts }),
    intermediateSize: config.int(["moe_intermediate_size", "expert_feed_forward_length"]),
    inputSize: latent ?? c.hiddenSize,
    scale: config.positive(["routed_scaling_factor", "expert_weights_scale"], 1),
    ...routing(config, "sigmoid"),
    choiceBias: ["mlp.gate.e_score_correction_bias", "exp_probs_b"],
    names: { up: ["mlp.experts.{}.up_proj", "ffn_up_exps"], down: DOWN_EXPERTS },
  };
  const shared = {
    ...c,
    intermediateSize: config.int([
      "moe_shared_expert_intermediate_size",
      "expert_shared_feed_forward_length",
    ]),
  };
  return (weights) => {
    const router = weights.matrix(["mlp.gate", "ffn_gate_inp"], nExperts, c.hiddenSize);
    const routed = loadPlainExperts(weights, experts);
    const down = latent && loadProjection(weights, LATENT_DOWN, [latent, c.hiddenSize], bias);
    const up = latent && loadProjection(weights, LATENT_UP, [c.hiddenSize, latent], bias);
    const block: Block = (pass, x, residual) => {
      const { recorder } = pass;
      const logits = recorder.matmul(x, router);
      if (!down || !up) return routed(recorder, logits, x, residual);
      return up(pass, routed(recorder, logits, down(pass, x)), residual);
    };
    return addShared(block, loadPlainMlp(weights, shared, { bias, names: SHARED }));
  };
}

/** Loads a product with an optional bias. */
function loadProjection(
  weights: WeightLoader,
  name: TensorName,
  [rows, cols]: readonly [number, number],
  rule: BiasRule,
): Block {
  const matrix = weights.matrix(name, rows, cols);
  const bias = loadBias(weights, name, rows, rule);
  return ({ recorder }, x, residual) => recorder.matmul(x, matrix, { bias, residual });
}

const DOWN_EXPERTS: TensorName = ["mlp.experts.{}.down_proj", "ffn_down_exps"];
const LATENT_DOWN: TensorName = ["mlp.fc1_latent_proj", "ffn_latent_down"];
const LATENT_UP: TensorName = ["mlp.fc2_latent_proj", "ffn_latent_up"];
const SHARED = {
  up: ["mlp.shared_experts.up_proj", "ffn_up_shexp"],
  down: ["mlp.shared_experts.down_proj", "ffn_down_shexp"],
} as const satisfies Record<string, TensorName>;

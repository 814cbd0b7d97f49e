/**
 * LFM2: gated short convolutions in most layers, attention in the others, in some sizes with
 * experts. Liquid AI, "LFM2 Technical Report", arXiv:2511.23404.
 */
import type { Weight } from "../../backend.ts";
import type { Family, ModelSource, StateMatrix } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import { type DecoderConfig, decoderConfig } from "../config/decoder_config.ts";
import {
  type AttentionNames,
  type BiasRule,
  biasRule,
  type Block,
  kvShape,
  loadAttention,
  loadBias,
  loadGatedMlp,
  type MlpNames,
} from "../parts/blocks.ts";
import { type LoadBlock, loadRope, preNormDecoder } from "../parts/decoder.ts";
import { loadMoe, type MoeParts, readExpertCounts } from "../parts/moe.ts";
import { indexAmongKind, loadConv, MAX_CONV_WIDTH } from "../parts/recurrence.ts";
import { GGUF_SIGMOID } from "../parts/shared_expert_moe.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

const ATTENTION: AttentionNames = {
  qNorm: ["self_attn.q_layernorm", "attn_q_norm"],
  kNorm: ["self_attn.k_layernorm", "attn_k_norm"],
  out: ["self_attn.out_proj", "attn_output"],
};
const MLP: MlpNames = {
  gate: ["feed_forward.w1", "ffn_gate"],
  up: ["feed_forward.w3", "ffn_up"],
  down: ["feed_forward.w2", "ffn_down"],
};
const CONV: TensorName = ["conv.conv", "shortconv.conv"];
const CONV_IN: TensorName = ["conv.in_proj", "shortconv.in_proj"];
const CONV_OUT: TensorName = ["conv.out_proj", "shortconv.out_proj"];
const FINAL_NORMS: readonly TensorName[] = [
  ["embedding_norm", "token_embd_norm"],
  ["norm", "output_norm"],
];

export const lfm2: Family = {
  huggingFace: ["lfm2", "lfm2_moe"],
  gguf: ["lfm2", "lfm2moe"],
  writes: { lfm2: { architecture: "lfm2" }, lfm2_moe: { architecture: "lfm2moe" } },
  load(source) {
    const { config, weights } = source;
    const isConv = convLayers(config);
    const c = lfm2Config(config, isConv);
    const kvHeads = isConv.map((conv) => conv ? 0 : c.nKvHeads);
    config.sink?.setting("attention.head_count_kv", ["array", "i32", kvHeads]);
    config.sink?.setting("feed_forward_length", ["u32", c.intermediateSize]);
    const rope = loadRope(source, c, { layout: "half" });
    const width = config.int(["conv_L_cache", "shortconv.l_cache"], {
      min: 2,
      max: MAX_CONV_WIDTH,
    });
    const bias = biasRule(config, "conv_bias");
    const indexOf = indexAmongKind(isConv);
    const state: StateMatrix = { rows: width - 1, cols: c.hiddenSize };
    return preNormDecoder(source, c, {
      inputNorm: ["operator_norm", "attn_norm"],
      mlpNorm: ["ffn_norm", "ffn_norm"],
      finalNorm: FINAL_NORMS.find((name) => weights.has(name)) ?? FINAL_NORMS[0]!,
      head: { isTied: isTied(config) },
      kvLayers: isConv.flatMap((conv) => conv ? [] : [kvShape(c)]),
      stateLayers: isConv.flatMap((conv) => conv ? [state] : []),
      attention: (weights, i) =>
        isConv[i]
          ? loadShortConv(weights, c, { width, bias, state: indexOf(i) })
          : loadAttention(weights, c, indexOf(i), {
            rope,
            qkNorm: "head",
            names: ATTENTION,
          }),
      mlp: mlpLoader(source, c),
    });
  },
};

/**
 * True if the output matrix is the embedding. Reads the older name of the setting, else the usual
 * one.
 */
function isTied(config: ConfigReader): boolean {
  const older: Key = ["tie_embedding", undefined];
  const key: Key = ["tie_word_embeddings", undefined];
  return config.boolean(config.raw(older) === undefined ? key : older, false);
}

/** Returns true for each layer that is a convolution. In GGUF files these have no KV heads. */
function convLayers(config: ConfigReader): readonly boolean[] {
  const nLayers = config.int(["num_hidden_layers", "block_count"], { max: 4096 });
  const kvHeads: Key = [undefined, "attention.head_count_kv"];
  if (config.isGguf) {
    const heads = config.perLayer(kvHeads, nLayers) ?? [];
    return Array.from({ length: nLayers }, (_, i) => heads[i] === 0);
  }
  const typesKey: Key = ["layer_types", undefined];
  const types = config.perLayer(typesKey, nLayers);
  if (types === undefined) {
    const key: Key = ["full_attn_idxs", undefined];
    const attention = config.raw(key) ?? [];
    if (!Array.isArray(attention)) throw config.invalid(key, attention, "a list of layers");
    return Array.from({ length: nLayers }, (_, i) => !attention.includes(i));
  }
  return Array.from({ length: nLayers }, (_, i) => {
    const type = types[i];
    if (type === "conv") return true;
    if (type === "full_attention") return false;
    throw config.unsupported(typesKey, type, '"conv" and "full_attention" in this architecture');
  });
}

function lfm2Config(config: ConfigReader, isConv: readonly boolean[]): DecoderConfig {
  const anyAttention = Math.max(isConv.indexOf(false), 0);
  const feedForward = config.raw(["block_ff_dim", undefined]);
  const c = decoderConfig(config.ofLayer(anyAttention), {
    normEps: ["norm_eps", "attention.layer_norm_rms_epsilon"],
    ...(typeof feedForward === "number" ? { intermediateSize: feedForward } : {}),
  });
  if (config.isGguf || config.modelType !== "lfm2") return c;
  const size = config.int(["block_ff_dim", undefined], { fallback: c.intermediateSize });
  return { ...c, intermediateSize: adjustedSize(config, size) };
}

/** Returns the width of the MLP: two thirds of the setting, rounded up to a multiple. */
function adjustedSize(config: ConfigReader, size: number): number {
  if (!config.boolean(["block_auto_adjust_ff_dim", undefined])) return size;
  const multiplier = config.positive(["block_ffn_dim_multiplier", undefined]);
  const multiple = config.int(["block_multiple_of", undefined]);
  return Math.ceil(Math.trunc(multiplier * Math.trunc(2 * size / 3)) / multiple) * multiple;
}

/** Returns a loader of MLPs: in models with experts, all but the first layers have them. */
function mlpLoader({ config }: ModelSource, c: DecoderConfig): LoadBlock {
  const plain = (weights: WeightLoader) => loadGatedMlp(weights, c, { names: MLP });
  if (config.modelType !== "lfm2_moe" && config.modelType !== "lfm2moe") return plain;
  const nDense = config.int(["num_dense_layers", "leading_dense_block_count"], { min: 0 });
  config.sink?.setting("expert_gating_func", ["u32", GGUF_SIGMOID]);
  const isBiased = config.isGguf || config.boolean(["use_expert_bias", undefined]);
  const experts: MoeParts = {
    ...readExpertCounts(config, ["num_experts", "expert_count"]),
    intermediateSize: config.int(["moe_intermediate_size", "expert_feed_forward_length"]),
    scores: "sigmoid",
    normalize: config.boolean(["norm_topk_prob", undefined], true),
    scale: config.positive(["routed_scaling_factor", "expert_weights_scale"], 1),
    choiceBias: isBiased ? ["feed_forward.expert_bias", "exp_probs_b"] : undefined,
    names: {
      router: "feed_forward.gate",
      gate: "feed_forward.experts.{}.w1",
      up: "feed_forward.experts.{}.w3",
      down: "feed_forward.experts.{}.w2",
    },
  };
  return (weights, layer) => layer < nDense ? plain(weights) : loadMoe(weights, c, experts);
}

interface ShortConvParts {
  /** Number of tokens that the convolution covers. */
  readonly width: number;
  readonly bias: BiasRule;
  /** Index of the layer's state among the model's. */
  readonly state: number;
}

/** Loads a depthwise convolution over the last `width` tokens, with a gate before and after it. */
function loadShortConv(
  weights: WeightLoader,
  { hiddenSize }: DecoderConfig,
  { width, bias, state }: ShortConvParts,
): Block {
  weights.assertWhole("convolutions");
  weights.useStates(state);
  // Rows: the gate before the convolution, the gate after it, and its input.
  const tensor = weights.tensor(CONV_IN, "weight", [3 * hiddenSize, hiddenSize]);
  const third = (i: number) => ({ tensor, firstRow: i * hiddenSize, nRows: hiddenSize });
  const before = weights.mapSlices([third(0), third(2)], hiddenSize);
  const after = weights.mapSlices([third(1)], hiddenSize);
  const biases = loadThirds(weights, hiddenSize, bias);
  const conv = loadConv(weights, CONV, hiddenSize, width);
  const convBias = loadBias(weights, CONV, hiddenSize, bias);
  const out = weights.matrix(CONV_OUT, hiddenSize, hiddenSize);
  const outBias = loadBias(weights, CONV_OUT, hiddenSize, bias);

  return ({ recorder, states }, x, residual) => {
    const pair = recorder.matmul(x, before, { bias: biases?.before });
    const gated = recorder.glu(pair, hiddenSize, "identity");
    const mixed = recorder.causalConv1d(gated, conv, states[state]!, {
      bias: convBias,
      activation: "identity",
    });
    const gate = recorder.matmul(x, after, { bias: biases?.after });
    const both = recorder.gatherColumns([
      { value: gate, width: hiddenSize },
      { value: mixed, width: hiddenSize },
    ], 1);
    const hidden = recorder.glu(both, hiddenSize, "identity");
    return recorder.matmul(hidden, out, { bias: outBias, residual });
  };
}

/** Loads the biases of the input projection, split as its weights are. */
function loadThirds(
  weights: WeightLoader,
  size: number,
  rule: BiasRule,
): { readonly before: Weight; readonly after: Weight } | undefined {
  const stored = loadBias(weights, CONV_IN, 3 * size, rule);
  if (stored === undefined) return undefined;
  const values = weights.backend.readWeight(stored, 0, 1);
  const before = new Float32Array(2 * size);
  before.set(values.subarray(0, size));
  before.set(values.subarray(2 * size), size);
  return {
    before: weights.uploadVector(before),
    after: weights.uploadVector(Float32Array.from(values.subarray(size, 2 * size))),
  };
}

/**
 * Gemma 4 (text): Gemma 3 with larger heads in the layers with full attention, keys and values that
 * later layers share, an embedding for each layer, and in some sizes experts next to the MLP.
 * Google DeepMind, Gemma 4 model card, 2026.
 */
import type { ColumnPiece, Value, Weight } from "../../backend.ts";
import type { Family, ForwardPass, ModelSource } from "../causal_lm.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import {
  type DecoderConfig,
  decoderConfig,
  readSoftcap,
  slidingWindows,
} from "../config/decoder_config.ts";
import { type Block, kvShape, loadGatedMlp, loadRmsNorm, sumOfRanks } from "../parts/blocks.ts";
import {
  INPUT_NORM,
  type Layer,
  loadDecoder,
  loadRope,
  POST_ATTENTION_NORM,
  POST_MLP_NORM,
  PRE_MLP_NORM,
} from "../parts/decoder.ts";
import { joinColumns } from "../parts/embedding.ts";
import { loadRoutedExperts, readExpertCounts } from "../parts/moe.ts";
import type { Rope } from "../parts/rope.ts";
import { divideHeads, rowsOf } from "../weights/division.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

/** Soft-cap of the logits in GGUF files without one, as in llama.cpp. */
const GGUF_CAP = 30;

const LAYER_SCALE: TensorName = ["layer_scalar", "layer_output_scale"];

export const gemma4: Family = {
  huggingFace: ["gemma4_text"],
  gguf: ["gemma4"],
  load(source) {
    const { config } = source;
    assertNoBias(config);
    const nLayers = decoderConfig(config.ofLayer(0)).nLayers;
    const windows = slidingWindows(config, nLayers, 6);
    // The last layer has full attention whatever the config says.
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
    if (nShared > 0) source.weights.assertOneStage("layers with the keys and values of others");
    const nOwn = nLayers - nShared;
    const sources = new Map<boolean, KeyValueSource>();
    const cap = readSoftcap(config, "final_logit_softcapping");
    return loadDecoder(source, c, {
      embeddingScale: Math.sqrt(c.hiddenSize),
      head: { softcap: config.isGguf ? cap ?? GGUF_CAP : cap },
      kvLayers: layers.slice(0, nOwn).map(kvShape),
      begin: loadLayerInputs(source, c),
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

/** Returns the settings of one layer. */
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
  const isShared = config.boolean(["attention_k_eq_v", undefined]) &&
    config.raw(["num_global_key_value_heads", undefined]) !== undefined;
  return {
    ...c,
    intermediateSize: mlpSize(config, c, index),
    headDim: config.int(["global_head_dim", undefined]),
    nKvHeads: isShared ? config.int(["num_global_key_value_heads", undefined]) : c.nKvHeads,
  };
}

/**
 * Returns the width of a layer's MLP: doubled in some models for layers that share keys and values.
 */
function mlpSize(config: ConfigReader, c: DecoderConfig, index: number): number {
  const nShared = config.int(["num_kv_shared_layers", undefined], { min: 0 });
  const isWide = nShared > 0 && index >= c.nLayers - nShared &&
    config.boolean(["use_double_wide_mlp", undefined]);
  return isWide ? 2 * c.intermediateSize : c.intermediateSize;
}

function valuesAreKeys(config: ConfigReader, weights: WeightLoader, isSliding: boolean): boolean {
  if (config.isGguf) return !weights.has([undefined, "attn_v"]);
  return !isSliding && config.boolean(["attention_k_eq_v", undefined]);
}

/** Arranges a layer around its attention. */
function gemma4Layer(
  config: ConfigReader,
  weights: WeightLoader,
  c: DecoderConfig,
  index: number,
  attention: Block,
): Layer {
  const norm = (name: TensorName) => loadRmsNorm(weights, c, name);
  const attentionNorm = norm(INPUT_NORM);
  const postAttention = norm(POST_ATTENTION_NORM);
  const mlpNorm = norm(PRE_MLP_NORM);
  const mlp = loadGatedMlp(weights, c);
  const mixture = loadGemma4Mixture(config, weights, c);
  const postMlp = norm(POST_MLP_NORM);
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

/** Returns the factor of a layer's output. */
function readScale(config: ConfigReader, weights: WeightLoader): number {
  const weight = config.isGguf
    ? weights.optionalVector(LAYER_SCALE, 1)
    : weights.vector(LAYER_SCALE, 1, "");
  return weight === undefined ? 1 : weights.backend.readWeight(weight, 0, 1)[0]!;
}

function assertNoBias(config: ConfigReader): void {
  const key = ["attention_bias", undefined] as const;
  if (config.boolean(key, false)) throw config.unsupported(key, true, "false in this architecture");
}

/** Source of the keys and values that a layer attends to. */
interface KeyValueSource {
  /** Index of the layer whose cache holds them: the layer itself or an earlier one. */
  readonly layer: number;
  /** Weight of the norm of the keys. */
  readonly kNorm: Weight;
}

interface Gemma4AttentionParts {
  readonly rope: Rope;
  readonly window: number | undefined;
  /** The earlier layer that provides keys and values; `undefined` for a layer with its own. */
  readonly source: KeyValueSource | undefined;
  /** True if the values are the keys before their norm. */
  readonly valuesAreKeys: boolean;
}

const Q: TensorName = ["self_attn.q_proj", "attn_q"];
const K: TensorName = ["self_attn.k_proj", "attn_k"];
const V: TensorName = ["self_attn.v_proj", "attn_v"];
const K_NORM: TensorName = ["self_attn.k_norm", "attn_k_norm"];

/**
 * Loads the attention of layer `index`. Layers with their own keys and values come first, so the
 * index of a cache is that of its layer.
 */
function loadGemma4Attention(
  weights: WeightLoader,
  c: DecoderConfig,
  index: number,
  parts: Gemma4AttentionParts,
): { readonly attention: Block; readonly source: KeyValueSource } {
  const { headDim, hiddenSize } = c;
  const { rank } = weights;
  const { q } = divideHeads(c.nHeads, c.nKvHeads, rank);
  const [, nHeads] = q;
  weights.useKv(parts.source?.layer ?? index);
  const qNorm = weights.vector(["self_attn.q_norm", "attn_q_norm"], headDim);
  const out = weights.columns(
    ["self_attn.o_proj", "attn_output"],
    hiddenSize,
    c.nHeads * headDim,
    rowsOf(q, headDim),
  );
  const source = parts.source ?? { layer: index, kNorm: weights.vector(K_NORM, headDim) };
  const qkv = parts.source === undefined
    ? loadOwn(weights, c, index, parts.valuesAreKeys)
    : loadBorrowed(weights, c, parts.source.layer);

  const attention: Block = (pass, x, residual) => {
    const { recorder } = pass;
    const cache = pass.kv[source.layer]!;
    const q = recorder.ropeAppend(qkv(pass, x), cache, {
      nHeads,
      qNorm,
      kNorm: source.kNorm,
      eps: c.normEps,
      rope: pass.ropeTable(parts.rope),
      ropeLayout: parts.rope.layout,
    });
    const mixed = recorder.attention(q, cache, { nHeads, scale: 1, window: parts.window });
    return sumOfRanks(recorder, rank, mixed, out, { residual });
  };
  return { attention, source };
}

/**
 * Loads projections to queries, keys and normalised values. The pass keeps the result for later
 * layers.
 */
function loadOwn(weights: WeightLoader, c: DecoderConfig, index: number, valuesAreKeys: boolean) {
  const { nHeads, nKvHeads, headDim, hiddenSize, normEps: eps } = c;
  const own = divideHeads(nHeads, nKvHeads, weights.rank);
  const [qRows, kvRows] = [rowsOf(own.q, headDim), rowsOf(own.kv, headDim)];
  const [[, qSize], [, kvSize]] = [qRows, kvRows];
  const allKeys = nKvHeads * headDim;
  const stored = [
    [Q, nHeads * headDim, [qRows]],
    [K, allKeys, [kvRows]],
    [V, allKeys, [kvRows]],
  ] as const;
  const weight = weights.concat(valuesAreKeys ? stored.slice(0, 2) : stored, hiddenSize);
  const ones = weights.uploadVector(new Float32Array(headDim).fill(1));
  const before = valuesAreKeys ? qSize : qSize + kvSize;
  return ({ recorder, kept }: ForwardPass, x: Parameters<Block>[1]) => {
    const all = recorder.matmul(x, weight);
    const values = recorder.gatherColumns([{ value: all, first: before, width: kvSize }], 1);
    const normed = recorder.rmsNorm(values, ones, { eps });
    const pieces: ColumnPiece[] = [
      { value: all, width: qSize + kvSize },
      { value: normed, width: kvSize },
    ];
    const qkv = recorder.gatherColumns(pieces, 1);
    kept.set(keptName(index), qkv);
    return qkv;
  };
}

/**
 * Loads the projection to queries, which are joined with the keys and values of an earlier layer.
 * Appending these to its cache again writes the same numbers to the same places.
 */
function loadBorrowed(weights: WeightLoader, c: DecoderConfig, source: number) {
  const own = divideHeads(c.nHeads, c.nKvHeads, weights.rank);
  const qRows = rowsOf(own.q, c.headDim);
  const [[, qSize], [, kvSize]] = [qRows, rowsOf(own.kv, c.headDim)];
  const weight = weights.matrix(Q, c.nHeads * c.headDim, c.hiddenSize, [qRows]);
  // Some files hold these tensors; mark them as used.
  for (const unused of [K, V, K_NORM]) weights.has(unused);
  return ({ recorder, kept }: ForwardPass, x: Parameters<Block>[1]) =>
    recorder.gatherColumns([
      { value: recorder.matmul(x, weight), width: qSize },
      { value: kept.get(keptName(source))!, first: qSize, width: 2 * kvSize },
    ], 1);
}

function keptName(layer: number): string {
  return `qkv ${layer}`;
}

const LAYER_EMBEDDING: TensorName = ["embed_tokens_per_layer", "per_layer_token_embd"];
const PROJECTION: TensorName = ["per_layer_model_projection", "per_layer_model_proj"];
const PROJECTION_NORM: TensorName = ["per_layer_projection_norm", "per_layer_proj_norm"];
const GATE: TensorName = ["per_layer_input_gate", "inp_gate"];
const LAYER_PROJECTION: TensorName = ["per_layer_projection", "proj"];
const INPUT_POST_NORM: TensorName = ["post_per_layer_input_norm", "post_norm"];

/** Name under which a pass keeps the inputs of all layers. */
const LAYER_INPUTS = "layer inputs";

/** Returns the size of a layer's input; 0 if the model has none. */
function inputSize(config: ConfigReader): number {
  return config.int(["hidden_size_per_layer_input", "embedding_length_per_layer_input"], {
    min: 0,
    fallback: 0,
  });
}

/**
 * Returns a function that records the inputs of all layers, given the embeddings; `undefined` if
 * the model has none.
 */
function loadLayerInputs(source: ModelSource, c: DecoderConfig) {
  const { config, weights } = source;
  const size = inputSize(config);
  if (size === 0) return undefined;
  const all = c.nLayers * size;
  const vocabulary = weights.isGguf
    ? weights.shape(LAYER_EMBEDDING)[0] ?? 0
    : config.int(["vocab_size_per_layer_input", undefined]);
  const [embedding, own] = weights.embeddingPart(LAYER_EMBEDDING, vocabulary, all);
  const projection = weights.matrix(PROJECTION, all, c.hiddenSize);
  const norm = weights.vector(PROJECTION_NORM, size);
  return ({ recorder, kept }: ForwardPass, h: Value) => {
    const projected = recorder.matmul(h, projection, { alpha: 1 / Math.sqrt(c.hiddenSize) });
    const embedded = recorder.embed(embedding, Math.sqrt(size));
    const residual = joinColumns(recorder, embedded, own, all);
    kept.set(LAYER_INPUTS, recorder.rmsNorm(projected, norm, { eps: c.normEps, residual }));
  };
}

/** Loads the block that adds layer `index`'s gated input to its hidden states. */
function loadLayerInput(
  config: ConfigReader,
  weights: WeightLoader,
  c: DecoderConfig,
  index: number,
): Block | undefined {
  const size = inputSize(config);
  if (size === 0) return undefined;
  const gate = weights.matrix(GATE, size, c.hiddenSize);
  const projection = weights.matrix(LAYER_PROJECTION, c.hiddenSize, size);
  const postNorm = loadRmsNorm(weights, c, INPUT_POST_NORM);
  return (pass, h) => {
    const { recorder, kept } = pass;
    const gated = recorder.gatherColumns([
      { value: recorder.matmul(h, gate), width: size },
      // The input is a sum of two terms; the factor keeps its variance.
      { value: kept.get(LAYER_INPUTS)!, first: index * size, width: size, scale: Math.SQRT1_2 },
    ], 1);
    const added = recorder.matmul(recorder.glu(gated, size, c.activation), projection);
    return postNorm(pass, added, h);
  };
}

const ROUTER: TensorName = ["router.proj", "ffn_gate_inp"];
const DENSE_NORM: TensorName = ["post_feedforward_layernorm_1", "post_ffw_norm_1"];
const EXPERTS_PRE_NORM: TensorName = ["pre_feedforward_layernorm_2", "pre_ffw_norm_2"];
const EXPERTS_POST_NORM: TensorName = ["post_feedforward_layernorm_2", "post_ffw_norm_2"];

/** Adds the experts' output for the hidden states `h` to the MLP's output `fed`. */
type Mixture = (pass: ForwardPass, h: Value, fed: Value) => Value;

/** Loads the experts of a layer; `undefined` if the model has none. */
function loadGemma4Mixture(
  config: ConfigReader,
  weights: WeightLoader,
  c: DecoderConfig,
): Mixture | undefined {
  const count: Key = ["num_experts", "expert_count"];
  const has = config.isGguf
    ? (config.raw(count) ?? 0) !== 0
    : config.boolean(["enable_moe_block", undefined]);
  if (!has) return undefined;
  const counts = readExpertCounts(config, count, ["top_k_experts", "expert_used_count"]);
  const { nExperts } = counts;
  const router = weights.matrix(ROUTER, nExperts, c.hiddenSize);
  const routerNorm = loadRouterNorm(weights, c);
  const mlpNorm = loadRmsNorm(weights, c, DENSE_NORM);
  const expertsNorm = loadRmsNorm(weights, c, EXPERTS_PRE_NORM);
  const postNorm = loadRmsNorm(weights, c, EXPERTS_POST_NORM);
  const experts = loadRoutedExperts(weights, c, {
    ...counts,
    intermediateSize: config.int(["moe_intermediate_size", "expert_feed_forward_length"]),
    normalize: true,
    expertScales: loadExpertScales(weights, nExperts),
    names: {
      router: "router.proj",
      gateUp: "experts.gate_up_proj",
      down: "experts.down_proj",
    },
  });
  return (pass, h, fed) => {
    const { recorder } = pass;
    const logits = recorder.matmul(recorder.rmsNorm(h, routerNorm, { eps: c.normEps }), router);
    const made = experts(recorder, logits, expertsNorm(pass, h));
    return postNorm(pass, made, mlpNorm(pass, fed));
  };
}

/** Loads the weight of the router's norm, which includes the factor of its input. */
function loadRouterNorm(weights: WeightLoader, c: DecoderConfig) {
  const scale = weights.isGguf
    ? weights.vector(ROUTER, c.hiddenSize, "scale")
    : weights.vector(["router.scale", undefined], c.hiddenSize, "");
  const values = weights.backend.readWeight(scale, 0, 1);
  return weights.uploadVector(values.map((value) => value / Math.sqrt(c.hiddenSize)));
}

function loadExpertScales(weights: WeightLoader, nExperts: number) {
  return weights.isGguf
    ? weights.optionalVector([undefined, "ffn_down_exps"], nExperts, "scale")
    : weights.vector(["router.per_expert_scale", undefined], nExperts, "");
}

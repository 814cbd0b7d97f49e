/**
 * Blocks that decoders are built from. Each `load…` function takes the weights of one block from a
 * layer and returns a function that records the block.
 */
import type { Activation, MatmulOptions, Recorder, Value, Weight } from "../../backend.ts";
import type { ForwardPass, LayerKvShape } from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import type { Rope } from "./rope.ts";
import { divideHeads, type Rank, rowsOf, type Span } from "../weights/division.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

/** A block, which maps hidden states to hidden states. */
export interface Block {
  /** Records the block. Adds `residual` to the result if given. */
  (pass: ForwardPass, x: Value, residual?: Value): Value;
  /**
   * Records only what attention appends to its KV cache, and returns the rotated queries. Blocks
   * without a cache lack it.
   */
  readonly append?: ((pass: ForwardPass, x: Value) => Value) | undefined;
}

/** Options of a norm. */
export interface NormOptions {
  /** Added to the stored weight. Gemma's checkpoints store the weight less 1. @default 0 */
  readonly weightOffset?: number | undefined;
  /** Bias of a LayerNorm. @default "required" */
  readonly bias?: BiasRule | undefined;
}

/** Loads RMSNorm over the hidden size. */
export function loadRmsNorm(
  weights: WeightLoader,
  c: DecoderConfig,
  name: TensorName,
  options: NormOptions = {},
): Block {
  const weight = weights.vector(name, c.hiddenSize);
  const { weightOffset } = options;
  return ({ recorder }, x, residual) =>
    recorder.rmsNorm(x, weight, { eps: c.normEps, weightOffset, residual });
}

/** Loads RMSNorm over the hidden size, whose result is multiplied by a factor. */
export function loadScaledRmsNorm(
  weights: WeightLoader,
  c: DecoderConfig,
  name: TensorName,
  factor: number,
  suffix = "weight",
): Block {
  const stored = weights.vector(name, c.hiddenSize, suffix);
  const weight = scaled(weights, stored, factor);
  return ({ recorder }, x, residual) => recorder.rmsNorm(x, weight, { eps: c.normEps, residual });
}

/** Loads LayerNorm over the hidden size. */
export function loadLayerNorm(
  weights: WeightLoader,
  c: DecoderConfig,
  name: TensorName,
  { weightOffset = 0, bias: rule = "required" }: NormOptions = {},
): Block {
  const stored = weights.vector(name, c.hiddenSize);
  const weight = weightOffset === 0 ? stored : weights.uploadVector(
    Float32Array.from(weights.backend.readWeight(stored, 0, 1), (value) => value + weightOffset),
  );
  const bias = loadBias(weights, name, c.hiddenSize, rule);
  return ({ recorder }, x) => recorder.layerNorm(x, weight, bias, c.normEps);
}

/** Options of attention. */
export interface AttentionParts {
  /** The rotation, or `undefined` for a layer without positions. */
  readonly rope: Rope | undefined;
  /** Factor of the scores. @default 1 / sqrt(head_dim) */
  readonly scale?: number | undefined;
  readonly window?: number | undefined;
  /** True if the window divides positions into chunks. @default false */
  readonly chunked?: boolean | undefined;
  /** Factors of the queries by position. @default 1 */
  readonly positionScale?: PositionScale | undefined;
  readonly softcap?: number | undefined;
  /** True if each head has a logit that attends to nothing (attention sink). @default false */
  readonly hasSinks?: boolean | undefined;
  /** Biases of q, k and v. @default "none" */
  readonly bias?: BiasRule | undefined;
  /** Bias of the output projection. @default "none" */
  readonly outputBias?: BiasRule | undefined;
  /**
   * RMSNorm of q and k. "head" normalises each head before rotation, "all" all heads at once before
   * rotation, "rotated head" each head after rotation. "plain head" has no weights, so that its
   * place before or after rotation does not matter.
   */
  readonly qkNorm?: "head" | "all" | "rotated head" | "plain head" | undefined;
  /**
   * Records a change of the rows `(q heads | k heads | v heads)` before rotation, for norms that
   * `qkNorm` does not cover.
   */
  readonly changeHeads?: ((recorder: Recorder, qkv: Value) => Value) | undefined;
  /** False if tokens also see later ones. @default true */
  readonly causal?: boolean | undefined;
  /** As in {@linkcode NormOptions}, for q and k. @default 0 */
  readonly normOffset?: number | undefined;
  /** Multiplies the output before the residual is added. @default 1 */
  readonly outputScale?: number | undefined;
  /**
   * True if q_proj holds, after the rows of each head's query, the rows of its output gate.
   * @default false
   */
  readonly hasOutputGate?: boolean | undefined;
  /** Columns of the input. @default the hidden size */
  readonly inputSize?: number | undefined;
  /** @default the usual ones */
  readonly names?: AttentionNames | undefined;
}

/** Tensor names that differ between families. */
export interface AttentionNames {
  readonly qNorm: TensorName;
  readonly kNorm: TensorName;
  readonly out: TensorName;
}

/** A "required" bias must be in the file; an "optional" one is used if it is. */
export type BiasRule = "none" | "optional" | "required";

const Q: TensorName = ["self_attn.q_proj", "attn_q"];
const K: TensorName = ["self_attn.k_proj", "attn_k"];
const V: TensorName = ["self_attn.v_proj", "attn_v"];
const QKV: TensorName = ["self_attn.qkv_proj", "attn_qkv"];
const NAMES: AttentionNames = {
  qNorm: ["self_attn.q_norm", "attn_q_norm"],
  kNorm: ["self_attn.k_norm", "attn_k_norm"],
  out: ["self_attn.o_proj", "attn_output"],
};
const SINKS: TensorName = ["self_attn.sinks", "attn_sinks"];

/** Factors of queries by position, between 0 and `most`. */
export interface PositionScale {
  /** `[positions, cols]`: logits of the factors' shares of `most`, the same in each column. */
  readonly logits: Weight;
  readonly most: number;
}

/** Uploads factors of queries, each above 0, for the positions of a model's context. */
export function loadPositionScale(
  { backend }: WeightLoader,
  { contextLength, nHeads, headDim }: DecoderConfig,
  factorOf: (position: number) => number,
): PositionScale {
  const factors = Float64Array.from({ length: contextLength }, (_, position) => factorOf(position));
  const most = 2 * factors.reduce((largest, factor) => Math.max(largest, factor), 0);
  // GPUs read rows of an embedding in pieces of 8 numbers.
  const cols = nHeads * headDim % 8 === 0 ? 8 : 1;
  const logits = Float32Array.from({ length: contextLength * cols }, (_, i) => {
    const factor = factors[Math.floor(i / cols)]!;
    return Math.log(factor / (most - factor));
  });
  const data = new Uint8Array(logits.buffer);
  return { logits: backend.uploadWeight("F32", contextLength, cols, data), most };
}

/** Records queries times the share of `most` that their positions have. */
function scaleByPosition(recorder: Recorder, q: Value, { logits }: PositionScale): Value {
  const zeros = recorder.gatherColumns([{ value: q, width: logits.cols, scale: 0 }], 1);
  return recorder.sigmoidGate(q, recorder.addEmbedding(zeros, logits));
}

/**
 * Records a product with the columns of a matrix that a rank holds, and the sum over all ranks. The
 * first rank adds bias and residual.
 */
export function sumOfRanks(
  recorder: Recorder,
  rank: Rank,
  x: Value,
  weight: Weight,
  { bias, alpha, residual }: MatmulOptions,
): Value {
  if (rank.count === 1) return recorder.matmul(x, weight, { bias, alpha, residual });
  const once = rank.index === 0 ? { bias, residual } : {};
  return recorder.allReduce(recorder.matmul(x, weight, { alpha, ...once }));
}

/** Loads grouped-query self-attention over KV cache `index` of the model. */
export function loadAttention(
  weights: WeightLoader,
  c: DecoderConfig,
  index: number,
  parts: AttentionParts,
): Block {
  const { headDim, hiddenSize } = c;
  const { names = NAMES, inputSize = hiddenSize } = parts;
  const { rank } = weights;
  weights.useKv(index);
  if (parts.qkNorm === "all") weights.assertWhole("norm over all heads");
  if (parts.hasOutputGate) weights.assertWhole("gated attention");
  if (parts.changeHeads) weights.assertWhole("change of all heads");
  const own = divideHeads(c.nHeads, c.nKvHeads, rank);
  const [, nHeads] = own.q;
  const qSize = c.nHeads * headDim;
  const kvSize = c.nKvHeads * headDim;
  const [qRows, kvRows] = [rowsOf(own.q, headDim), rowsOf(own.kv, headDim)];
  const heads = [[Q, qSize, [qRows]], [K, kvSize, [kvRows]], [V, kvSize, [kvRows]]] as const;
  const fused = [qRows, rowsOf(own.kv, headDim, qSize), rowsOf(own.kv, headDim, qSize + kvSize)];
  const { qkv, gate } = parts.hasOutputGate ? loadGatedQkv(weights, c) : {
    qkv: weights.has(QKV)
      ? weights.matrix(QKV, qSize + 2 * kvSize, inputSize, fused)
      : weights.concat(heads, inputSize),
    gate: undefined,
  };
  const qkvBias = weights.has(QKV)
    ? loadBias(weights, QKV, qSize + 2 * kvSize, parts.bias, fused)
    : hasBias(weights, Q, parts.bias)
    ? weights.concatVectors(heads, "bias")
    : undefined;
  const out = weights.columns(names.out, hiddenSize, qSize, qRows);
  const outBias = loadBias(weights, names.out, hiddenSize, parts.outputBias);
  const { qNorm, kNorm, rotatedNorm } = loadQkNorms(weights, c, parts.qkNorm, names);
  const sinks = parts.hasSinks
    ? weights.vector(SINKS, c.nHeads, ["", "weight"], [own.q])
    : undefined;
  const { rope, window, softcap } = parts;

  const append = (pass: ForwardPass, x: Value): Value => {
    const { recorder, kv } = pass;
    const projected = recorder.matmul(x, qkv, { bias: qkvBias });
    const changed = parts.changeHeads?.(recorder, projected) ?? projected;
    return recorder.ropeAppend(changed, kv[index]!, {
      nHeads,
      qNorm,
      kNorm,
      eps: c.normEps,
      weightOffset: parts.normOffset,
      rope: rope && pass.ropeTable(rope),
      ropeLayout: rope?.layout ?? "half",
    });
  };
  const attend: Block = (pass, x, residual) => {
    const { recorder, kv } = pass;
    const rotated = append(pass, x);
    const normed = rotatedNorm
      ? recorder.rmsNorm(rotated, rotatedNorm, { eps: c.normEps })
      : rotated;
    const { positionScale, scale = 1 / Math.sqrt(headDim) } = parts;
    const q = positionScale ? scaleByPosition(recorder, normed, positionScale) : normed;
    const mixed = recorder.attention(q, kv[index]!, {
      nHeads,
      scale: scale * (positionScale?.most ?? 1),
      window,
      softcap,
      sinks,
      causal: parts.causal,
      chunked: parts.chunked,
    });
    const gated = gate ? recorder.sigmoidGate(mixed, recorder.matmul(x, gate)) : mixed;
    const epilogue = { bias: outBias, alpha: parts.outputScale, residual };
    return sumOfRanks(recorder, rank, gated, out, epilogue);
  };
  return Object.assign(attend, { append });
}

interface QkNorms {
  readonly qNorm?: Weight | undefined;
  readonly kNorm?: Weight | undefined;
  /** Applied to queries after rotation. */
  readonly rotatedNorm?: Weight | undefined;
}

function loadQkNorms(
  weights: WeightLoader,
  { nHeads, nKvHeads, headDim }: DecoderConfig,
  kind: AttentionParts["qkNorm"],
  names: AttentionNames,
): QkNorms {
  if (kind === undefined) return {};
  const ones = () => weights.uploadVector(new Float32Array(headDim).fill(1));
  if (kind === "plain head") return { qNorm: ones(), kNorm: ones() };
  const qNorm = weights.vector(names.qNorm, kind === "all" ? nHeads * headDim : headDim);
  const kNorm = weights.vector(names.kNorm, kind === "all" ? nKvHeads * headDim : headDim);
  if (kind !== "rotated head") return { qNorm, kNorm };
  // Rotation keeps lengths, so keys are normalised before it. Scores depend only on the product of
  // both weights, which is applied to the queries.
  const ofKeys = weights.backend.readWeight(kNorm, 0, 1);
  const both = weights.backend.readWeight(qNorm, 0, 1).map((weight, i) => weight * ofKeys[i]!);
  return { kNorm: ones(), rotatedNorm: weights.uploadVector(Float32Array.from(both)) };
}

/**
 * Loads queries, keys and values as one weight, and the output gates, whose rows alternate with
 * those of the queries.
 */
function loadGatedQkv(weights: WeightLoader, c: DecoderConfig): { qkv: Weight; gate: Weight } {
  const { nHeads, nKvHeads, headDim, hiddenSize } = c;
  const of = (name: TensorName, rows: number) => weights.tensor(name, "weight", [rows, hiddenSize]);
  const tensor = of(Q, 2 * nHeads * headDim);
  const headRows = (offset: number) =>
    Array.from({ length: nHeads }, (_, head) => {
      return { tensor, firstRow: (2 * head + offset) * headDim, nRows: headDim };
    });
  const keys = { tensor: of(K, nKvHeads * headDim) };
  const values = { tensor: of(V, nKvHeads * headDim) };
  return {
    qkv: weights.mapSlices([...headRows(0), keys, values], hiddenSize),
    gate: weights.mapSlices(headRows(1), hiddenSize),
  };
}

/** Returns the KV shape of an attention layer whose keys and values have heads of equal size. */
export function kvShape(c: DecoderConfig): LayerKvShape {
  return { nKvHeads: c.nKvHeads, kHeadDim: c.headDim, vHeadDim: c.headDim };
}

/** Options of a gated MLP. */
interface MlpParts {
  /** Biases of all three products. @default "none" */
  readonly bias?: BiasRule | undefined;
  /** Factor of the biases, if the input has this factor. @default 1 */
  readonly biasScale?: number | undefined;
  /** @default the config's */
  readonly activation?: Activation | undefined;
  /** As in {@linkcode AttentionParts}. */
  readonly outputScale?: number | undefined;
  /** @default the config's */
  readonly intermediateSize?: number | undefined;
  /** @default the usual ones */
  readonly names?: MlpNames | undefined;
}

/** Names of the three matrices. */
export interface MlpNames {
  readonly gate: TensorName;
  readonly up: TensorName;
  readonly down: TensorName;
}

export const MLP_NAMES: MlpNames = {
  gate: ["mlp.gate_proj", "ffn_gate"],
  up: ["mlp.up_proj", "ffn_up"],
  down: ["mlp.down_proj", "ffn_down"],
};
const GATE_UP: TensorName = ["mlp.gate_up_proj", "ffn_up"];

/**
 * Loads the gated MLP `down(activation(gate(x)) * up(x))`. Phi-3 and GLM-4 store gate and up as one
 * matrix.
 */
export function loadGatedMlp(
  weights: WeightLoader,
  c: DecoderConfig,
  parts: MlpParts = {},
): Block {
  const { hiddenSize } = c;
  const { names = MLP_NAMES, intermediateSize = c.intermediateSize } = parts;
  const { gate, up, down: downName } = names;
  const { rank } = weights;
  const isFused = names === MLP_NAMES &&
    (weights.isGguf ? !weights.has(gate) : weights.has(GATE_UP));
  const own = weights.ownColumns(downName, [hiddenSize, intermediateSize]);
  const fused = [own, rowsOf(own, 1, intermediateSize)];
  const units = [[gate, intermediateSize, [own]], [up, intermediateSize, [own]]] as const;
  const gateUp = isFused
    ? weights.matrix(GATE_UP, 2 * intermediateSize, hiddenSize, fused)
    : weights.concat(units, hiddenSize);
  const gateUpBias = scaled(
    weights,
    isFused
      ? loadBias(weights, GATE_UP, 2 * intermediateSize, parts.bias, fused)
      : hasBias(weights, up, parts.bias)
      ? weights.concatVectors(units, "bias")
      : undefined,
    parts.biasScale,
  );
  const down = weights.columns(downName, hiddenSize, intermediateSize, own);
  const downBias = scaled(
    weights,
    loadBias(weights, downName, hiddenSize, parts.bias),
    parts.biasScale,
  );
  const { activation = c.activation, outputScale } = parts;
  return ({ recorder }, x, residual) => {
    const both = recorder.matmul(x, gateUp, { bias: gateUpBias });
    const hidden = recorder.glu(both, own[1], activation);
    const epilogue = { bias: downBias, alpha: outputScale, residual };
    return sumOfRanks(recorder, rank, hidden, down, epilogue);
  };
}

/** Returns a vector times a factor. */
function scaled<Vector extends Weight | undefined>(
  weights: WeightLoader,
  vector: Vector,
  factor = 1,
): Vector | Weight {
  if (vector === undefined || factor === 1) return vector;
  const values = weights.backend.readWeight(vector, 0, 1);
  return weights.uploadVector(Float32Array.from(values, (value) => value * factor));
}

export interface PlainMlpParts {
  /** Biases of both products. */
  readonly bias: BiasRule;
  /** @default the usual ones */
  readonly names?: Pick<MlpNames, "up" | "down"> | undefined;
}

/** Loads the MLP without a gate, `down(activation(up(x)))`. */
export function loadPlainMlp(
  weights: WeightLoader,
  { hiddenSize, intermediateSize, activation }: DecoderConfig,
  { bias, names = MLP_NAMES }: PlainMlpParts,
): Block {
  const { rank } = weights;
  const own = weights.ownColumns(names.down, [hiddenSize, intermediateSize]);
  const up = weights.matrix(names.up, intermediateSize, hiddenSize, [own]);
  const upBias = loadBias(weights, names.up, intermediateSize, bias, [own]);
  const down = weights.columns(names.down, hiddenSize, intermediateSize, own);
  const downBias = loadBias(weights, names.down, hiddenSize, bias);
  return ({ recorder }, x, residual) => {
    const hidden = recorder.matmul(x, up, { bias: upBias, activation });
    return sumOfRanks(recorder, rank, hidden, down, { bias: downBias, residual });
  };
}

/**
 * Returns the bias rule that a setting of config.json implies. GGUF has no such setting: its files
 * hold biases or do not.
 */
export function biasRule(config: ConfigReader, name: string): BiasRule {
  if (config.isGguf) return "optional";
  return config.boolean([name, undefined], false) ? "required" : "none";
}

/** Loads a bias, or some of its numbers, if the rule and the file provide one. */
export function loadBias(
  weights: WeightLoader,
  name: TensorName,
  size: number,
  rule: BiasRule | undefined,
  spans?: readonly Span[],
): Weight | undefined {
  return hasBias(weights, name, rule) ? weights.vector(name, size, "bias", spans) : undefined;
}

function hasBias(weights: WeightLoader, name: TensorName, rule: BiasRule = "none"): boolean {
  return rule === "required" || (rule === "optional" && weights.has(name, "bias"));
}

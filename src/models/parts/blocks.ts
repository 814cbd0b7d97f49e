/**
 * The parts that decoders are built from. Each `load…` takes the weights of one part from a layer
 * and returns a function that records what the part does.
 */
import type { Activation, Recorder, Value, Weight } from "../../backend.ts";
import type { ForwardPass, LayerKvShape } from "../causal_lm.ts";
import type { ConfigReader } from "../config/config_reader.ts";
import type { DecoderConfig } from "../config/decoder_config.ts";
import type { Rope } from "./rope.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

/** Records a part that maps hidden states to hidden states. */
export type Block = (pass: ForwardPass, x: Value, residual?: Value) => Value;

/** How a norm differs from plain RMSNorm. */
export interface NormOptions {
  /** Gemma's checkpoints store the weight less 1. @default 0 */
  readonly weightOffset?: number | undefined;
}

/** RMSNorm over the hidden size; adds `residual` to the result when one is given. */
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

/** LayerNorm with a bias over the hidden size. */
export function loadLayerNorm(
  weights: WeightLoader,
  c: DecoderConfig,
  name: TensorName,
  { weightOffset = 0 }: NormOptions = {},
): Block {
  const stored = weights.vector(name, c.hiddenSize);
  const weight = weightOffset === 0 ? stored : weights.uploadVector(
    Float32Array.from(weights.backend.readWeight(stored, 0, 1), (value) => value + weightOffset),
  );
  const bias = weights.vector(name, c.hiddenSize, "bias");
  return ({ recorder }, x) => recorder.layerNorm(x, weight, bias, c.normEps);
}

/** What attention has beside its projections. */
export interface AttentionParts {
  /** The rotation, or `undefined` for a layer without positions. */
  readonly rope: Rope | undefined;
  /** Factor of the scores. @default 1 / sqrt(head_dim) */
  readonly scale?: number | undefined;
  readonly window?: number | undefined;
  readonly softcap?: number | undefined;
  /** Whether each head has a logit of its own that attends to nothing. @default false */
  readonly hasSinks?: boolean | undefined;
  /** Whether q, k and v have biases. @default "none" */
  readonly bias?: BiasRule | undefined;
  /** Whether the output projection has a bias. @default "none" */
  readonly outputBias?: BiasRule | undefined;
  /**
   * RMSNorm of q and k before rotation: over each head, or over all heads at once; or over each
   * head after it, or without weights, where before and after are the same.
   */
  readonly qkNorm?: "head" | "all" | "rotated head" | "plain head" | undefined;
  /**
   * Changes the rows `(q heads | k heads | v heads)` before rotation in ways that `qkNorm` does not
   * have.
   */
  readonly changeHeads?: ((recorder: Recorder, qkv: Value) => Value) | undefined;
  /** As in {@linkcode NormOptions}, for q and k. @default 0 */
  readonly normOffset?: number | undefined;
  /** Multiplies what the block adds to the residual. @default 1 */
  readonly outputScale?: number | undefined;
  /**
   * Whether q_proj holds, behind the rows of each head's query, those of its output gate.
   *
   * @default false
   */
  readonly hasOutputGate?: boolean | undefined;
  /** @default the usual ones */
  readonly names?: AttentionNames | undefined;
}

/** What some families call tensors of attention that others call by the usual names. */
export interface AttentionNames {
  readonly qNorm: TensorName;
  readonly kNorm: TensorName;
  readonly out: TensorName;
}

/** `required` is an error when the tensor is absent; `optional` takes it when it is there. */
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

/** Grouped-query self-attention over KV cache `index` of the model. */
export function loadAttention(
  weights: WeightLoader,
  c: DecoderConfig,
  index: number,
  parts: AttentionParts,
): Block {
  const { nHeads, nKvHeads, headDim, hiddenSize } = c;
  const { names = NAMES } = parts;
  const qSize = nHeads * headDim;
  const kvSize = nKvHeads * headDim;
  const heads = [[Q, qSize], [K, kvSize], [V, kvSize]] as const;
  const { qkv, gate } = parts.hasOutputGate
    ? loadGatedQkv(weights, c)
    : { qkv: loadQkv(weights, heads, hiddenSize), gate: undefined };
  const qkvBias = wantsBias(weights, Q, parts.bias)
    ? weights.concatVectors(heads, "bias")
    : undefined;
  const out = weights.matrix(names.out, hiddenSize, qSize);
  const outBias = loadBias(weights, names.out, hiddenSize, parts.outputBias);
  const { qNorm, kNorm, turnedNorm } = loadQkNorms(weights, c, parts.qkNorm, names);
  const sinks = parts.hasSinks
    ? weights.vector(SINKS, nHeads, weights.isGguf ? "weight" : "")
    : undefined;
  const { rope, window, softcap } = parts;

  return (pass, x, residual) => {
    const { recorder, kv } = pass;
    const projected = recorder.matmul(x, qkv, { bias: qkvBias });
    const changed = parts.changeHeads?.(recorder, projected) ?? projected;
    const turned = recorder.ropeAppend(changed, kv[index]!, {
      nHeads,
      qNorm,
      kNorm,
      eps: c.normEps,
      weightOffset: parts.normOffset,
      rope: rope && pass.ropeTable(rope),
      ropeLayout: rope?.layout ?? "half",
    });
    const q = turnedNorm ? recorder.rmsNorm(turned, turnedNorm, { eps: c.normEps }) : turned;
    const mixed = recorder.attention(q, kv[index]!, {
      nHeads,
      scale: parts.scale ?? 1 / Math.sqrt(headDim),
      window,
      softcap,
      sinks,
    });
    const gated = gate ? recorder.sigmoidGate(mixed, recorder.matmul(x, gate)) : mixed;
    return recorder.matmul(gated, out, { bias: outBias, alpha: parts.outputScale, residual });
  };
}

interface QkNorms {
  readonly qNorm?: Weight | undefined;
  readonly kNorm?: Weight | undefined;
  /** For queries that have been rotated. */
  readonly turnedNorm?: Weight | undefined;
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
  // A rotation keeps lengths, so that keys can be normalised before it; only products of the two
  // weights count, and the queries can have them.
  const ofKeys = weights.backend.readWeight(kNorm, 0, 1);
  const both = weights.backend.readWeight(qNorm, 0, 1).map((weight, i) => weight * ofKeys[i]!);
  return { kNorm: ones(), turnedNorm: weights.uploadVector(Float32Array.from(both)) };
}

function loadQkv(
  weights: WeightLoader,
  heads: readonly (readonly [TensorName, rows: number])[],
  hiddenSize: number,
): Weight {
  const rows = heads.reduce((sum, [, size]) => sum + size, 0);
  return weights.has(QKV)
    ? weights.matrix(QKV, rows, hiddenSize)
    : weights.concat(heads, hiddenSize);
}

/**
 * Queries, keys and values in one weight, and the output gates, which stand between the queries.
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

/** The KV shape of an attention layer with equal heads for keys and values. */
export function kvShape(c: DecoderConfig): LayerKvShape {
  return { nKvHeads: c.nKvHeads, kHeadDim: c.headDim, vHeadDim: c.headDim };
}

/** How a gated MLP differs from the usual one. */
export interface MlpParts {
  /** Whether all three products have biases. @default "none" */
  readonly bias?: BiasRule | undefined;
  /** @default the config's */
  readonly activation?: Activation | undefined;
  /** As in {@linkcode AttentionParts}. */
  readonly outputScale?: number | undefined;
  /** @default the config's */
  readonly intermediateSize?: number | undefined;
  /** @default the usual ones */
  readonly names?: MlpNames | undefined;
}

/** The names of its three matrices. */
export interface MlpNames {
  readonly gate: TensorName;
  readonly up: TensorName;
  readonly down: TensorName;
}

const MLP_NAMES: MlpNames = {
  gate: ["mlp.gate_proj", "ffn_gate"],
  up: ["mlp.up_proj", "ffn_up"],
  down: ["mlp.down_proj", "ffn_down"],
};
const GATE_UP: TensorName = ["mlp.gate_up_proj", "ffn_up"];

/** The gated MLP `down(activation(gate(x)) * up(x))`. Phi-3 and GLM-4 store gate and up as one. */
export function loadGatedMlp(
  weights: WeightLoader,
  c: DecoderConfig,
  parts: MlpParts = {},
): Block {
  const { hiddenSize } = c;
  const { names = MLP_NAMES, intermediateSize = c.intermediateSize } = parts;
  const { gate, up, down: downName } = names;
  const isFused = names === MLP_NAMES &&
    (weights.isGguf ? !weights.has(gate) : weights.has(GATE_UP));
  const gateUp = isFused
    ? weights.matrix(GATE_UP, 2 * intermediateSize, hiddenSize)
    : weights.concat([[gate, intermediateSize], [up, intermediateSize]], hiddenSize);
  const gateUpBias = wantsBias(weights, up, parts.bias)
    ? weights.concatVectors([[gate, intermediateSize], [up, intermediateSize]], "bias")
    : undefined;
  const down = weights.matrix(downName, hiddenSize, intermediateSize);
  const downBias = loadBias(weights, downName, hiddenSize, parts.bias);
  const { activation = c.activation, outputScale } = parts;
  return ({ recorder }, x, residual) => {
    const both = recorder.matmul(x, gateUp, { bias: gateUpBias });
    const hidden = recorder.glu(both, intermediateSize, activation);
    return recorder.matmul(hidden, down, { bias: downBias, alpha: outputScale, residual });
  };
}

export interface PlainMlpParts {
  /** Whether both products have biases. */
  readonly bias: BiasRule;
  /** @default the usual ones */
  readonly names?: Pick<MlpNames, "up" | "down"> | undefined;
}

/** The MLP without a gate, `down(activation(up(x)))`. */
export function loadPlainMlp(
  weights: WeightLoader,
  { hiddenSize, intermediateSize, activation }: DecoderConfig,
  { bias, names = MLP_NAMES }: PlainMlpParts,
): Block {
  const up = weights.matrix(names.up, intermediateSize, hiddenSize);
  const upBias = loadBias(weights, names.up, intermediateSize, bias);
  const down = weights.matrix(names.down, hiddenSize, intermediateSize);
  const downBias = loadBias(weights, names.down, hiddenSize, bias);
  return ({ recorder }, x, residual) => {
    const hidden = recorder.matmul(x, up, { bias: upBias, activation });
    return recorder.matmul(hidden, down, { bias: downBias, residual });
  };
}

/**
 * The rule that a switch of config.json sets. GGUF has none: its files hold biases or they do not.
 */
export function biasRule(config: ConfigReader, name: string, fallback: boolean): BiasRule {
  if (config.isGguf) return "optional";
  return config.boolean([name, undefined], fallback) ? "required" : "none";
}

/** A bias as its rule asks. */
export function loadBias(
  weights: WeightLoader,
  name: TensorName,
  size: number,
  rule: BiasRule | undefined,
): Weight | undefined {
  return wantsBias(weights, name, rule) ? weights.vector(name, size, "bias") : undefined;
}

function wantsBias(weights: WeightLoader, name: TensorName, rule: BiasRule = "none"): boolean {
  return rule === "required" || (rule === "optional" && weights.has(name, "bias"));
}

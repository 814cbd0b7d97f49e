/** The recorder of a step: its operations, and what they are told. */
import type { KvCache, StateCache, Weight } from "./memory.ts";
import type { Step, Value } from "./step.ts";

/** Activation functions of a matmul's epilogue and of gated units. */
export type Activation = "identity" | "silu" | "gelu_tanh" | "gelu_erf" | "relu_squared";

/** How gate and up become one: the activation of the gate times up, or gpt-oss's unit with limits. */
export type GatedUnit = Activation | "clamped_swiglu";

/** Which elements of a head RoPE rotates together: `(i, i + n)` or `(2i, 2i + 1)`. */
export type RopeLayout = "half" | "interleaved";

/** `residual + x / sqrt(mean(x²) + eps) * (weight + weightOffset)` */
export interface RmsNormOptions {
  readonly eps: number;
  /** @default 0 */
  readonly weightOffset?: number | undefined;
  readonly residual?: Value | undefined;
}

/** `residual + alpha * activation(x weightᵀ + bias)` */
export interface MatmulOptions {
  readonly bias?: Weight | undefined;
  /** @default 1 */
  readonly alpha?: number | undefined;
  /** @default "identity" */
  readonly activation?: Activation | undefined;
  readonly residual?: Value | undefined;
}

/** Options of {@linkcode Recorder.ropeAppend}. */
export interface RopeAppendOptions {
  readonly nHeads: number;
  /** RMSNorm of q and k before rotation: per head, or over all heads when as wide as all of them. */
  readonly qNorm?: Weight | undefined;
  readonly kNorm?: Weight | undefined;
  readonly eps: number;
  /** @default 0 */
  readonly weightOffset?: number | undefined;
  /** A value of {@linkcode Recorder.ropeTable}; without it nothing is rotated. */
  readonly rope?: Value | undefined;
  readonly ropeLayout: RopeLayout;
}

/** Options of {@linkcode Recorder.attention}. */
export interface AttentionOptions {
  readonly nHeads: number;
  /** Multiplies the scores. */
  readonly scale: number;
  /** How many positions a token sees, itself included; all of them without it. */
  readonly window?: number | undefined;
  /** Scores become `softcap * tanh(score / softcap)`. */
  readonly softcap?: number | undefined;
  /** `[1, n_heads]`: logits that take part in the softmax and carry no value. */
  readonly sinks?: Weight | undefined;
}

/** `x / sqrt(mean(x²) + eps) * weight * activation(gate)` */
export interface GatedRmsNormOptions {
  readonly eps: number;
  readonly activation: Activation;
}

/** Options of {@linkcode Recorder.causalConv1d}. */
export interface CausalConv1dOptions {
  /** `[1, cols]` */
  readonly bias?: Weight | undefined;
  readonly activation: Activation;
}

/**
 * Which key head a value head reads where several share one: neighbours do (`grouped`), or those that
 * are as far apart as there are key heads (`tiled`).
 */
export type HeadOrder = "grouped" | "tiled";

/** Options of {@linkcode Recorder.gatedDeltaRule}. */
export interface GatedDeltaRuleOptions {
  /** How fast each value head forgets, `[1, n_v_heads]`: negative. */
  readonly rate: Weight;
  /** Added to the decays' inputs, `[1, n_v_heads]`. */
  readonly dtBias: Weight;
  readonly nKHeads: number;
  readonly headOrder: HeadOrder;
  /** Multiplies the normalised queries. */
  readonly scale: number;
  /** Of the norms of queries and keys. */
  readonly eps: number;
}

/** Columns of a value that become part of each group of {@linkcode Recorder.gatherColumns}. */
export interface ColumnPiece {
  readonly value: Value;
  readonly width: number;
  /** The column that group 0 takes first. @default 0 */
  readonly first?: number;
  /** How many columns further each next group takes. @default 0 */
  readonly step?: number;
  /** @default 1 */
  readonly scale?: number;
}

/** Options of {@linkcode Recorder.moeRoute}. */
export interface MoeRouteOptions {
  /** Experts chosen for each token. */
  readonly topK: number;
  /** Whether the chosen experts' weights are made to sum to 1. */
  readonly normalize: boolean;
  /** @default 1 */
  readonly scale?: number | undefined;
  /** What the logits become. @default "softmax" */
  readonly scores?: "softmax" | "sigmoid" | undefined;
  /** `[1, n_experts]`, added to the scores for the choice alone. */
  readonly bias?: Weight | undefined;
  /** `[1, n_experts]`, factors of the chosen experts' weights. */
  readonly expertScales?: Weight | undefined;
  /** Groups of neighbouring experts, of which the best `topGroups` take part. @default 1 */
  readonly nGroups?: number | undefined;
  /** @default all */
  readonly topGroups?: number | undefined;
}

/**
 * Records the operations of one step, in order. Every method returns the value it defines and throws
 * a `ForgeError("device")` when the operation contradicts what was recorded before.
 */
export interface Recorder {
  /** `[tokens, cols]`: `scale` times the weight's row of each token id. */
  embed(weight: Weight, scale?: number): Value;
  /** RMSNorm over each group of as many columns as the weight has. */
  rmsNorm(x: Value, weight: Weight, options: RmsNormOptions): Value;
  /** `(x - mean) / sqrt(variance + eps) * weight + bias` over each row. */
  layerNorm(x: Value, weight: Weight, bias: Weight | undefined, eps: number): Value;
  /** `[rows, weight.rows]`: see {@linkcode MatmulOptions}. */
  matmul(x: Value, weight: Weight, options?: MatmulOptions): Value;
  /** `[rows, weight.rows]`: each head's columns of `x` times its own of as many blocks of the weight's rows. */
  headMatmul(x: Value, weight: Weight, nHeads: number): Value;
  /** `[tokens, 2 n]`: cosines, then sines, of `position * invFreq[1, n]`, times `scale`. */
  ropeTable(invFreq: Weight, scale: number): Value;
  /**
   * Splits `qkv[tokens, q heads | k heads | v heads]`, normalises and rotates q and k, appends k and v
   * to the cache; returns q, `[tokens, nHeads * kHeadDim]`. Where values are in the keys there are no v
   * heads, and the last elements of a head are rotated instead of the first.
   */
  ropeAppend(qkv: Value, kv: KvCache, options: RopeAppendOptions): Value;
  /** Causal attention over the cached keys and values: `[tokens, nHeads * vHeadDim]`. */
  attention(q: Value, kv: KvCache, options: AttentionOptions): Value;
  /** A gated unit over groups of `(gate[width] | up[width])`. */
  glu(x: Value, width: number, unit: GatedUnit): Value;
  /** `residual + sigmoid(gate) * x`; a column of `gate` is for as many neighbouring columns of `x`. */
  sigmoidGate(x: Value, gate: Value, residual?: Value): Value;
  /** RMSNorm over groups as wide as the weight, times an activation of the gate. */
  gatedRmsNorm(x: Value, gate: Value, weight: Weight, options: GatedRmsNormOptions): Value;
  /** Depthwise convolution over each sequence's tokens; weight `[cols, width]`. */
  causalConv1d(x: Value, weight: Weight, state: StateCache, options: CausalConv1dOptions): Value;
  /** Linear attention by the gated delta rule over `qkv` and its gates `ba`: `[tokens, n_v_heads * v_dim]`. */
  gatedDeltaRule(
    qkv: Value,
    ba: Value,
    state: StateCache,
    options: GatedDeltaRuleOptions,
  ): Value;
  /** Groups of columns, each the pieces one behind another; at most three. */
  gatherColumns(pieces: readonly ColumnPiece[], nGroups: number): Value;
  /**
   * The columns of `x` in another order, `order[i]` being the column that becomes column `i`. With `route`
   * there is an order of `cols` columns for each expert, and the columns for each chosen one in its own.
   */
  permuteColumns(x: Value, order: Uint32Array<ArrayBuffer>, cols: number, route?: Value): Value;
  /**
   * `[tokens, 2 topK]`: the experts chosen by router logits `[tokens, n_experts]`, then their weights.
   * Only the two operations below read it.
   */
  moeRoute(logits: Value, options: MoeRouteOptions): Value;
  /** Products of each token with its chosen experts, whose blocks of rows the weight stacks. */
  moeMatmul(x: Value, route: Value, weight: Weight, nExperts: number, bias?: Weight): Value;
  /** `residual` + the sum over the chosen experts of weight times their columns of `x`. */
  moeCombine(x: Value, route: Value, residual?: Value): Value;
  /** The rows of `x` that the inputs name as outputs. */
  gatherOutputs(x: Value): Value;
  /** `cap * tanh(x / cap)` */
  softcap(x: Value, cap: number): Value;
  /** `x` held within `-limit` and `limit`. */
  clamp(x: Value, limit: number): Value;
  /** Chooses a token for each output, and reports up to `maxTop` others; the step's last operation. */
  sample(logits: Value, maxTop: number): void;
  /** Keeps a value readable after a run. */
  keep(value: Value): void;
  /** Ends recording; the recorder is of no use afterwards. */
  finish(): Promise<Step>;
}

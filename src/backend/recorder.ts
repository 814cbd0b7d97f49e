/**
 * The recorder of a step: the operations of the table in `csrc/common/operations.h`, with types.
 */
import { ForgeError } from "../errors.ts";
import { quote } from "../formats/quote.ts";
import type { AdapterWeights, KvCache, StateCache, Weight } from "./memory.ts";
import type { Step, Value } from "./step.ts";

/** Activation functions of a matmul's epilogue and of gated units. */
export type Activation = "identity" | "silu" | "gelu_tanh" | "gelu_erf" | "relu_squared";

/** A gated unit: `activation(gate) * up`, or the clamped SwiGLU of gpt-oss. */
export type GatedUnit = Activation | "clamped_swiglu";

/** Pairs of elements of a head that RoPE rotates: `(i, i + n)` or `(2i, 2i + 1)`. */
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

/** `residual + alpha * activation(y + the corrections of the adapters)` */
export interface LoraOptions extends Omit<MatmulOptions, "bias"> {
  /** Experts of each row, whose results `y` holds side by side. */
  readonly route?: Value | undefined;
}

/** Options of {@linkcode Recorder.ropeAppend}. */
export interface RopeAppendOptions {
  readonly nHeads: number;
  /**
   * RMSNorm of q and k before rotation: per head, or over all heads when as wide as all of them.
   */
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
  /**
   * Number of positions that a token sees, itself included; all without it. Without causality the
   * token sees positions less than `window` from its own on both sides.
   */
  readonly window?: number | undefined;
  /** True if a token sees its own chunk of `window` positions, up to its own. @default false */
  readonly chunked?: boolean | undefined;
  /** Scores become `softcap * tanh(score / softcap)`. */
  readonly softcap?: number | undefined;
  /** `[1, n_heads]`: logits that take part in the softmax and carry no value. */
  readonly sinks?: Weight | undefined;
  /** False if a token sees all positions that the `keyLengths` of a run count. @default true */
  readonly causal?: boolean | undefined;
  /** True if the `attentionMask` of a run applies, if it has one. @default false */
  readonly masked?: boolean | undefined;
}

/** `x / sqrt(mean(x²) + eps) * weight * activation(gate)` */
export interface GatedRmsNormOptions {
  readonly eps: number;
  readonly activation: Activation;
}

/** `beta x + (x > 0 ? alphaP x² : alphaN (exp(min(x, eps)) - 1 - x))` */
export interface XieluOptions {
  readonly alphaP: number;
  readonly alphaN: number;
  readonly beta: number;
  readonly eps: number;
}

/** Options of {@linkcode Recorder.causalConv1d}. */
export interface CausalConv1dOptions {
  /** `[1, cols]` */
  readonly bias?: Weight | undefined;
  readonly activation: Activation;
}

/**
 * The key head that value head `i` reads, where `r` value heads share each of `n` key heads:
 * `i / r` (`grouped`) or `i mod n` (`tiled`).
 */
export type HeadOrder = "grouped" | "tiled";

/** Options of {@linkcode Recorder.gatedDeltaRule}. */
export interface GatedDeltaRuleOptions {
  /** Decay rate of each value head, `[1, n_v_heads]`, negative. */
  readonly rate: Weight;
  /** Bias of the decays' inputs, `[1, n_v_heads]`. */
  readonly dtBias: Weight;
  readonly nKHeads: number;
  readonly headOrder: HeadOrder;
  /** Multiplies the normalised queries. */
  readonly scale: number;
  /** Added under the roots of the norms of queries and keys. */
  readonly eps: number;
}

/** Options of {@linkcode Recorder.selectiveScan}. */
export interface SelectiveScanOptions {
  /** Decay rate of each head, `[1, n_heads]`, negative. */
  readonly rate: Weight;
  /** Bias of the time steps, `[1, n_heads]`. */
  readonly dtBias: Weight;
  /** Factor with which each head adds its input to its output, `[1, n_heads]`. */
  readonly skip: Weight;
  /** Number of groups of heads that share `b` and `c`. */
  readonly nGroups: number;
  /** The least and the greatest time step. @default [0, Infinity] */
  readonly dtLimits?: readonly [number, number] | undefined;
  /** Of the result's shape: the result is multiplied by `silu(gate)`. */
  readonly gate?: Value | undefined;
}

/** Columns of a value that form part of each group of {@linkcode Recorder.gatherColumns}. */
export interface ColumnPiece {
  readonly value: Value;
  readonly width: number;
  /** First column of group 0. @default 0 */
  readonly first?: number;
  /** Distance in columns from one group to the next. @default 0 */
  readonly step?: number;
  /** @default 1 */
  readonly scale?: number;
}

/** Options of {@linkcode Recorder.moeRoute}. */
export interface MoeRouteOptions {
  /** Experts chosen for each token. */
  readonly topK: number;
  /** Scales the chosen experts' weights to a sum of 1. */
  readonly normalize: boolean;
  /** @default 1 */
  readonly scale?: number | undefined;
  /** Function of the logits. @default "softmax" */
  readonly scores?: "softmax" | "sigmoid" | "sparsemixer" | undefined;
  /**
   * Of "sparsemixer": an expert takes part in the softmax of the best one if its logit is below by
   * at most this fraction. @default 0
   */
  readonly threshold?: number | undefined;
  /** `[1, n_experts]`, added to the scores only for the choice of experts. */
  readonly bias?: Weight | undefined;
  /** `[1, n_experts]`, factors of the chosen experts' weights. */
  readonly expertScales?: Weight | undefined;
  /**
   * Number of groups of neighbouring experts; only the best `topGroups` are candidates. @default 1
   */
  readonly nGroups?: number | undefined;
  /** @default all */
  readonly topGroups?: number | undefined;
}

/** Experts whose matrices a weight stacks, and the value that chooses among them. */
export interface ProductExperts {
  readonly route: Value;
  readonly nExperts: number;
  /** Experts chosen for each token. */
  readonly topK: number;
}

/**
 * The operand of an operation: a value, a weight, a cache, a number, or a member of an enumeration.
 */
export type Operand =
  | Value
  | number
  | boolean
  | string
  | { readonly handle: number }
  | readonly ColumnPiece[]
  | undefined;

/** Receives the operations of a step, by the names of the table of operations. */
export interface OperationSink {
  /** Appends an operation and returns the value that it defines. */
  record(operation: string, operands: Readonly<Record<string, Operand>>): Value;
  keep(value: Value): void;
  finish(): Promise<Step>;
}

/**
 * Records the operations of one step, in order. Every method returns the value it defines and
 * throws a `ForgeError("device")` when the operation contradicts the operations before it.
 */
export class Recorder {
  /** Called with the weight and the input of each product, before their columns are reordered. */
  onProduct?: (weight: Weight, input: Value, experts?: ProductExperts) => void;
  /** Receives the operations. */
  readonly sink: OperationSink;
  /** Experts chosen for each token, by the value of the route. */
  readonly #topK = new Map<Value, number>();

  constructor(sink: OperationSink) {
    this.sink = sink;
  }

  /** `[tokens, cols]`: `scale` times the weight's row of each token id. */
  embed(weight: Weight, scale = 1): Value {
    const { adapters } = weight;
    if (adapters?.rows === undefined) assertUnadapted(weight);
    assertOrdered(weight);
    const y = this.sink.record("embed", { weight, scale });
    return adapters?.rows ? this.lora(y, this.embed(adapters.rows, scale), adapters) : y;
  }

  /**
   * `x` plus the weight's row of each token's position, or with `period`, the rows of the embedding
   * of tokens, of its type: a token id is then `type * period` more than in the vocabulary.
   */
  addEmbedding(x: Value, weight: Weight, period = 0): Value {
    assertPlain(weight);
    return this.sink.record("add_embedding", { x, weight, period });
  }

  /**
   * RMSNorm over each group of as many columns as the weight has; the weight has one row for all
   * groups, or a row for each.
   */
  rmsNorm(x: Value, weight: Weight, options: RmsNormOptions): Value {
    const { eps, weightOffset: weight_offset = 0, residual } = options;
    return this.sink.record("rms_norm", { x, weight, eps, weight_offset, residual });
  }

  /** `(x - mean) / sqrt(variance + eps) * weight + bias` over each row. */
  layerNorm(x: Value, weight: Weight, bias: Weight | undefined, eps: number): Value {
    return this.sink.record("layer_norm", { x, weight, bias, eps });
  }

  /** `[rows, weight.rows]`: see {@linkcode MatmulOptions}. */
  matmul(x: Value, weight: Weight, options: MatmulOptions = {}): Value {
    const { bias, alpha = 1, activation = "identity", residual } = options;
    this.onProduct?.(weight, x);
    const ordered = this.#inOrder(x, weight);
    const { adapters } = weight;
    const epilogue = adapters === undefined
      ? { alpha, activation, residual }
      : { alpha: 1, activation: "identity" };
    const y = this.sink.record("matmul", { x: ordered, weight, bias, ...epilogue });
    return adapters === undefined ? y : this.lora(y, x, adapters, options);
  }

  /** The result `y` of a product with `x`, corrected by low-rank adapters. */
  lora(y: Value, x: Value, adapters: AdapterWeights, options: LoraOptions = {}): Value {
    const { alpha = 1, activation = "identity", residual, route } = options;
    const { a, b, ranks, nAdapters: n_adapters, nBlocks: n_blocks = 1 } = adapters;
    return this.sink.record("lora", {
      y,
      x,
      route,
      a,
      b,
      ranks,
      n_adapters,
      n_blocks,
      alpha,
      activation,
      residual,
    });
  }

  /**
   * `[rows, weight.rows]`: a product for each head, of its columns of `x` and its block of the
   * weight's rows.
   */
  headMatmul(x: Value, weight: Weight, nHeads: number): Value {
    assertOrdered(weight);
    const y = this.sink.record("head_matmul", { x, weight, n_heads: nHeads });
    return weight.adapters === undefined ? y : this.lora(y, x, weight.adapters);
  }

  /** `[tokens, 2 n]`: cosines, then sines, of `position * invFreq[1, n]`, times `scale`. */
  ropeTable(invFreq: Weight, scale: number): Value {
    return this.sink.record("rope_table", { inv_freq: invFreq, scale });
  }

  /**
   * Splits `qkv[tokens, q heads | k heads | v heads]`, normalises and rotates q and k, appends k
   * and v to the cache; returns q, `[tokens, nHeads * kHeadDim]`. Where values are in the keys,
   * `qkv` has no v heads, and the last elements of a head are rotated instead of the first.
   */
  ropeAppend(qkv: Value, kv: KvCache, options: RopeAppendOptions): Value {
    return this.sink.record("rope_append", {
      qkv,
      kv,
      n_heads: options.nHeads,
      q_norm: options.qNorm,
      k_norm: options.kNorm,
      eps: options.eps,
      weight_offset: options.weightOffset ?? 0,
      rope: options.rope,
      rope_layout: options.ropeLayout,
    });
  }

  /**
   * Attention over the cached keys and values: `[tokens, nHeads * vHeadDim]`, zeros for a token
   * that sees nothing.
   */
  attention(q: Value, kv: KvCache, options: AttentionOptions): Value {
    const { nHeads: n_heads, scale, window = 0, softcap = 0, sinks } = options;
    const { causal = true, masked = false, chunked = false } = options;
    return this.sink.record("attention", {
      q,
      kv,
      n_heads,
      scale,
      window,
      softcap,
      sinks,
      causal,
      masked,
      chunked,
    });
  }

  /**
   * Keeps a row of each token in the keys of a cache whose values are in its keys: stores `x`, if
   * given, at the token's position, and returns the row stored at the position before, zeros at
   * position 0.
   */
  previousRows(x: Value | undefined, kv: KvCache): Value {
    return this.sink.record("previous_rows", { x, kv });
  }

  /** A gated unit over groups of `(gate[width] | up[width])`. */
  glu(x: Value, width: number, unit: GatedUnit): Value {
    return this.sink.record("glu", { x, width, unit });
  }

  /**
   * `residual + sigmoid(gate) * x`; a column of `gate` applies to as many neighbouring columns of
   * `x`.
   */
  sigmoidGate(x: Value, gate: Value, residual?: Value): Value {
    return this.sink.record("sigmoid_gate", { x, gate, residual });
  }

  /** RMSNorm over groups as in {@linkcode rmsNorm}, times an activation of the gate. */
  gatedRmsNorm(x: Value, gate: Value, weight: Weight, options: GatedRmsNormOptions): Value {
    return this.sink.record("gated_rms_norm", { x, gate, weight, ...options });
  }

  /** Causal depthwise convolution over each sequence's tokens; weight `[cols, width]`. */
  causalConv1d(x: Value, weight: Weight, state: StateCache, options: CausalConv1dOptions): Value {
    return this.sink.record("causal_conv1d", { x, weight, state, ...options });
  }

  /**
   * Linear attention by the gated delta rule over `qkv` and its gates `ba`:
   * `[tokens, n_v_heads * v_dim]`.
   */
  gatedDeltaRule(
    qkv: Value,
    ba: Value,
    state: StateCache,
    options: GatedDeltaRuleOptions,
  ): Value {
    const { rate, dtBias: dt_bias, nKHeads: n_k_heads, headOrder: head_order, scale, eps } =
      options;
    return this.sink.record("gated_delta_rule", {
      qkv,
      ba,
      rate,
      dt_bias,
      state,
      n_k_heads,
      head_order,
      scale,
      eps,
    });
  }

  /**
   * The scan of Mamba-2 over `xbc`, `(x heads | b groups | c groups)`, and the time steps
   * `dt[tokens, n_heads]`: `[tokens, n_heads * head_dim]`.
   */
  selectiveScan(xbc: Value, dt: Value, state: StateCache, options: SelectiveScanOptions): Value {
    const { rate, dtBias: dt_bias, skip, nGroups: n_groups, gate } = options;
    const [dt_min, dt_max] = options.dtLimits ?? [0, Infinity];
    return this.sink.record("selective_scan", {
      xbc,
      dt,
      gate,
      rate,
      dt_bias,
      skip,
      state,
      n_groups,
      dt_min,
      dt_max,
    });
  }

  /** Concatenates pieces of columns into groups; at most three pieces. */
  gatherColumns(pieces: readonly ColumnPiece[], nGroups: number): Value {
    return this.sink.record("gather_columns", { pieces, n_groups: nGroups });
  }

  /**
   * Permutes the columns of `x`: column `order[0][i]` becomes column `i`. With `route`, `order` has
   * a row for each expert, and each chosen expert gets the columns in its order.
   */
  permuteColumns(x: Value, order: Weight, route?: Value): Value {
    return this.sink.record("permute_columns", { x, route, order });
  }

  /**
   * Permutes the columns of `x` into the order of a weight's; with experts, into the order of each.
   */
  #inOrder(x: Value, { columnOrder }: Weight, route?: Value): Value {
    return columnOrder === undefined ? x : this.permuteColumns(x, columnOrder, route);
  }

  /**
   * `[tokens, 2 topK]`: the experts chosen by router logits `[tokens, n_experts]`, then their
   * weights. Only {@linkcode moeMatmul} and {@linkcode moeCombine} read it.
   */
  moeRoute(logits: Value, options: MoeRouteOptions): Value {
    const { nGroups = 1, topGroups = nGroups } = options;
    const route = this.sink.record("moe_route", {
      logits,
      top_k: options.topK,
      normalize: options.normalize,
      scale: options.scale ?? 1,
      scores: options.scores ?? "softmax",
      bias: options.bias,
      expert_scales: options.expertScales,
      n_groups: nGroups,
      top_groups: topGroups,
      threshold: options.threshold ?? 0,
    });
    this.#topK.set(route, options.topK);
    return route;
  }

  /** Products of each token with its chosen experts, whose blocks of rows the weight stacks. */
  moeMatmul(x: Value, route: Value, weight: Weight, nExperts: number, bias?: Weight): Value {
    this.onProduct?.(weight, x, { route, nExperts, topK: this.#topK.get(route)! });
    const ordered = this.#inOrder(x, weight, route);
    const { adapters } = weight;
    const y = this.sink.record("moe_matmul", {
      x: ordered,
      route,
      weight,
      bias,
      n_experts: nExperts,
    });
    return adapters === undefined ? y : this.lora(y, x, adapters, { route });
  }

  /** `residual` + the sum over the chosen experts of weight times their columns of `x`. */
  moeCombine(x: Value, route: Value, residual?: Value): Value {
    return this.sink.record("moe_combine", { x, route, residual });
  }

  /** Gathers the rows of `x` that the inputs name as outputs. */
  gatherOutputs(x: Value): Value {
    return this.sink.record("gather_outputs", { x });
  }

  /** `cap * tanh(x / cap)` */
  softcap(x: Value, cap: number): Value {
    return this.sink.record("softcap", { x, cap });
  }

  /** Clamps `x` to `[-limit, limit]`. */
  clamp(x: Value, limit: number): Value {
    return this.sink.record("clamp", { x, limit });
  }

  /** The activation xIELU. */
  xielu(x: Value, { alphaP: alpha_p, alphaN: alpha_n, beta, eps }: XieluOptions): Value {
    return this.sink.record("xielu", { x, alpha_p, alpha_n, beta, eps });
  }

  /** The sum of `x` over the ranks of a stage, which record it at the same place. */
  allReduce(x: Value): Value {
    return this.sink.record("all_reduce", { x });
  }

  /** Sends `x[tokens, cols]` to the next stage of a group. */
  send(x: Value): void {
    this.sink.record("send", { x });
  }

  /** `[tokens, cols]`: what the previous stage sends. */
  receive(cols: number): Value {
    return this.sink.record("receive", { cols });
  }

  /**
   * Chooses a token for each output, and reports up to `maxTop` others; the step's last operation.
   */
  sample(logits: Value, maxTop: number): void {
    this.sink.record("sample", { logits, max_top: maxTop });
  }

  /** Keeps a value readable after a run. */
  keep(value: Value): void {
    this.sink.keep(value);
  }

  /** Ends recording and returns the step; no more operations can be recorded. */
  finish(): Promise<Step> {
    return this.sink.finish();
  }
}

/** Rejects a weight with adapters, which only matrix products support. */
function assertUnadapted({ adapters }: Weight): void {
  if (adapters === undefined) return;
  throw new ForgeError(
    "unsupported",
    `an adapter changes the matrix ${quote(adapters.targets[0]!)}, which forge cannot adapt`,
  );
}

/** Rejects a weight with permuted columns or adapters, which only products support. */
function assertPlain(weight: Weight): void {
  assertUnadapted(weight);
  assertOrdered(weight);
}

function assertOrdered({ columnOrder }: Weight): void {
  if (columnOrder === undefined) return;
  throw new ForgeError(
    "unsupported",
    "a matrix whose columns GPTQ has reordered (desc_act) can be used in products only",
  );
}

/**
 * What a model graph and the engine see of a device. A step is recorded once, as operations over
 * values, and run many times with different inputs; see `csrc/forge.h` for the exact meaning of every
 * operation. `ffi/` implements these interfaces over a native library.
 */
import type { ForgeError } from "./errors.ts";
import type { TensorInfo, TensorType } from "./formats/tensor_info.ts";

/** A native library that implements the ABI. */
export type BackendKind = "cpu" | "reference" | "cuda" | "metal";

/** Element types a KV cache can have. */
export type KvType = "F32" | "F16" | "BF16" | "Q8_0";

/** Kernels of attention, in the order of `FORGE_ATTENTION_AUTO` and on. */
export const ATTENTION_KERNELS = ["auto", "flash", "tiled", "naive"] as const;

/** Which kernels compute attention; `auto` takes the fastest that device and shapes allow. */
export type AttentionKernels = (typeof ATTENTION_KERNELS)[number];

/** Activation functions of a matmul's epilogue and of gated units. */
export type Activation = "identity" | "silu" | "gelu_tanh" | "gelu_erf";

/** How gate and up become one: the activation of the gate times up, or gpt-oss's unit with limits. */
export type GatedUnit = Activation | "clamped_swiglu";

/** Which elements of a head RoPE rotates together: `(i, i + n)` or `(2i, 2i + 1)`. */
export type RopeLayout = "half" | "interleaved";

/** What a device says of itself. */
export interface DeviceInfo {
  readonly name: string;
  readonly threads: number;
  readonly features: readonly string[];
  /** The kernel set in use, such as `avx512`. */
  readonly kernels: string;
  /** Whether sampling takes masks; without, they are applied to what it reports. @default true */
  readonly masks?: boolean;
  /** What else there is to know, a line each: memory, drivers, where files were found. */
  readonly details?: readonly string[];
}

declare const brand: unique symbol;

/** A matrix of activations inside one recorded step; its rows are the step's tokens or outputs. */
export type Value = number & { readonly [brand]: "value" };

/** A weight matrix `[rows, cols]` = `[out_features, in_features]` on a device. */
export interface Weight {
  readonly handle: number;
  readonly rows: number;
  readonly cols: number;
}

/** The paged keys and values of one layer. */
export interface KvCache {
  readonly handle: number;
  readonly pageBytes: number;
  /** Copies a page onto another. */
  copyPage(from: number, to: number): void;
  /** The `pageBytes` bytes of a page, in the device's own layout. */
  readPage(page: number): Uint8Array<ArrayBuffer>;
  /** Replaces a page by what {@linkcode readPage} gave for a page of the same shape. */
  writePage(page: number, data: Uint8Array<ArrayBuffer>): void;
}

export interface KvShape {
  readonly type: KvType;
  readonly nPages: number;
  readonly pageTokens: number;
  readonly nKvHeads: number;
  readonly kHeadDim: number;
  readonly vHeadDim: number;
}

/**
 * What one operation of one layer remembers of the tokens before: a matrix `[rows, cols]` of floats for
 * each sequence that holds a slot.
 */
export interface StateCache {
  readonly handle: number;
  readonly slotBytes: number;
  /** Copies a slot onto another. */
  copySlot(from: number, to: number): void;
  /** The `slotBytes` bytes of a slot, in the device's own layout. */
  readSlot(slot: number): Uint8Array<ArrayBuffer>;
  /** Replaces a slot by what {@linkcode readSlot} gave for a slot of the same shape. */
  writeSlot(slot: number, data: Uint8Array<ArrayBuffer>): void;
}

export interface StateShape {
  readonly nSlots: number;
  readonly rows: number;
  readonly cols: number;
}

/** The largest run a step must be able to hold. */
export interface StepLimits {
  readonly maxTokens: number;
  readonly maxOutputs: number;
  readonly maxSequences: number;
  /** Pages of one sequence. */
  readonly maxPages: number;
}

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

export interface AttentionOptions {
  readonly nHeads: number;
  readonly scale: number;
  /** How many positions a token sees, itself included; all of them without it. */
  readonly window?: number | undefined;
  /** Scores become `softcap * tanh(score / softcap)`. */
  readonly softcap?: number | undefined;
  readonly sinks?: Weight | undefined;
}

/** `x / sqrt(mean(x²) + eps) * weight * activation(gate)` */
export interface GatedRmsNormOptions {
  readonly eps: number;
  readonly activation: Activation;
}

export interface CausalConv1dOptions {
  readonly bias?: Weight | undefined;
  readonly activation: Activation;
}

/**
 * Which key head a value head reads where several share one: neighbours do (`grouped`), or those that
 * are as far apart as there are key heads (`tiled`).
 */
export type HeadOrder = "grouped" | "tiled";

export interface GatedDeltaRuleOptions {
  /** How fast each value head forgets, `[1, n_v_heads]`: negative. */
  readonly rate: Weight;
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

export interface MoeRouteOptions {
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
  /** Over each group of as many columns as the weight has. */
  rmsNorm(x: Value, weight: Weight, options: RmsNormOptions): Value;
  layerNorm(x: Value, weight: Weight, bias: Weight | undefined, eps: number): Value;
  matmul(x: Value, weight: Weight, options?: MatmulOptions): Value;
  /** Cosines and sines of `position * invFreq[1, n]`, times `scale`. */
  ropeTable(invFreq: Weight, scale: number): Value;
  /** Splits q, k and v, normalises and rotates q and k, appends k and v to the cache; returns q. */
  ropeAppend(qkv: Value, kv: KvCache, options: RopeAppendOptions): Value;
  attention(q: Value, kv: KvCache, options: AttentionOptions): Value;
  /** A gated unit over groups of `(gate[width] | up[width])`. */
  glu(x: Value, width: number, unit: GatedUnit): Value;
  /** `residual + sigmoid(gate) * x`; a column of `gate` is for as many neighbouring columns of `x`. */
  sigmoidGate(x: Value, gate: Value, residual?: Value): Value;
  /** RMSNorm over groups as wide as the weight, times an activation of the gate. */
  gatedRmsNorm(x: Value, gate: Value, weight: Weight, options: GatedRmsNormOptions): Value;
  /** Depthwise convolution over each sequence's tokens; weight `[cols, width]`. */
  causalConv1d(x: Value, weight: Weight, state: StateCache, options: CausalConv1dOptions): Value;
  /** Linear attention by the gated delta rule over `qkv` and its gates `ba`. */
  gatedDeltaRule(
    qkv: Value,
    ba: Value,
    state: StateCache,
    options: GatedDeltaRuleOptions,
  ): Value;
  /** Groups of columns, each the pieces one behind another; at most three. */
  gatherColumns(pieces: readonly ColumnPiece[], nGroups: number): Value;
  moeRoute(logits: Value, options: MoeRouteOptions): Value;
  /** Products of each token with its chosen experts, whose blocks of rows the weight stacks. */
  moeMatmul(x: Value, route: Value, weight: Weight, nExperts: number, bias?: Weight): Value;
  moeCombine(x: Value, route: Value, residual?: Value): Value;
  /** The rows of `x` that the inputs name as outputs. */
  gatherOutputs(x: Value): Value;
  softcap(x: Value, cap: number): Value;
  /** Chooses a token for each output; the step's last operation. */
  sample(logits: Value, maxTop: number): void;
  /** Keeps a value readable after a run. */
  keep(value: Value): void;
  /** Ends recording; the recorder is of no use afterwards. */
  finish(): Promise<Step>;
}

/** How one output's token is chosen; the order of the members is the order of the chain. */
export interface SamplingParams {
  /** Divides positive logits of tokens in `history`, multiplies negative ones. 1 is off. */
  readonly repeatPenalty: number;
  readonly presencePenalty: number;
  readonly frequencyPenalty: number;
  /** Added to the logits of single tokens. */
  readonly bias?: ReadonlyMap<number, number> | undefined;
  /** Bit `i` of word `w` allows token `32 w + i`. */
  readonly mask?: Uint32Array | undefined;
  /** 0 takes the largest logit. */
  readonly temperature: number;
  /** 0 is off. */
  readonly topK: number;
  /** 1 is off. */
  readonly topP: number;
  /** 0 is off. */
  readonly minP: number;
  /** Key of the random draw, 64 bits. */
  readonly seed: bigint;
}

/** One row whose logits are wanted, and how its token is chosen. */
export interface OutputRequest {
  /** The index of the row among the step's tokens. */
  readonly row: number;
  readonly sampling: SamplingParams;
  /** Tokens the penalties look at. */
  readonly history: ArrayLike<number>;
  /** Counter of the random draw, with the token's position in its sequence. */
  readonly stream: number;
  readonly position: number;
  /** Chooses this token and reports its log-probability. */
  readonly forcedToken?: number | undefined;
  /** How many of the most probable tokens to report. */
  readonly nTop: number;
  /**
   * Fills `sampling.mask`, which is read after that. It is called when the device is at work, so that
   * the mask is computed beside the forward pass. What it throws becomes the output's result.
   */
  readonly fillMask?: (() => void) | undefined;
}

/** What one run computes. `tokens`, `positions` and `sequences` have one entry a token. */
export interface StepInputs {
  readonly tokens: ArrayLike<number>;
  readonly positions: ArrayLike<number>;
  /** Which of `pageTables` a token uses. */
  readonly sequences: ArrayLike<number>;
  readonly pageTables: readonly ArrayLike<number>[];
  /** The slot that holds each sequence's recurrent state; left out where the step has none. */
  readonly slots?: ArrayLike<number> | undefined;
  readonly outputs: readonly OutputRequest[];
}

/** A token id with its natural log-probability under the model's own distribution. */
export interface TokenLogprob {
  readonly token: number;
  readonly logprob: number;
}

/** The token chosen for one output, and the most probable ones. */
export interface StepOutput extends TokenLogprob {
  readonly top: readonly TokenLogprob[];
}

/**
 * What came of one request: its output, or why there is none. That is `bad_model` when a logit is NaN
 * or infinite, and `bad_input` when mask and bias allow no token; the other outputs are not touched.
 */
export type StepResult = StepOutput | ForgeError;

/** A recorded step. */
export interface Step {
  /** Bytes of activation memory it holds. */
  readonly scratchBytes: number;
  /**
   * Runs the step; one result for each request.
   *
   * @throws {ForgeError} `cancelled` after {@linkcode cancel}
   */
  run(inputs: StepInputs): Promise<StepResult[]>;
  /** Rows of a kept value of the last run, `[nRows, cols]`. */
  read(value: Value, cols: number, firstRow: number, nRows: number): Float32Array;
  /** What the last run that succeeded took inside the device's library, in nanoseconds. */
  nativeTime(): number;
  /** Makes the run in progress stop early; without one, does nothing. */
  cancel(): void;
  release(): void;
}

/** The bytes of a weight, or what makes them. */
export type WeightData = Uint8Array<ArrayBuffer> | (() => Uint8Array<ArrayBuffer>);

/** An open device. */
export interface Backend {
  readonly kind: BackendKind;
  readonly info: DeviceInfo;
  /** The weight whose rows are those of the tensors, in order; they must agree in columns. */
  mapWeight(parts: readonly WeightSlice[], cols: number): Weight;
  /** A weight from memory, in the block format of its type; a device that holds nothing makes no data. */
  uploadWeight(type: TensorType, rows: number, cols: number, data: WeightData): Weight;
  /** Dequantised rows, `[nRows, cols]`. */
  readWeight(weight: Weight, firstRow: number, nRows: number): Float32Array;
  createKv(shape: KvShape): KvCache;
  /** @throws {ForgeError} `device` where the device has no operations with recurrent state */
  createState(shape: StateShape): StateCache;
  record(limits: StepLimits): Recorder;
  /** Releases the device and everything made on it. */
  close(): void;
}

/** What can make weights of a type from floats. */
export interface Quantizer {
  /**
   * Quantises `data[rows, cols]` to the block format of a type: round to nearest, no search. Meant for
   * synthetic models: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q6_K.
   */
  quantize(
    type: TensorType,
    rows: number,
    cols: number,
    data: Float32Array<ArrayBuffer>,
  ): Uint8Array<ArrayBuffer>;
}

/** What a device knows of its machine, for benchmarks. */
export interface Meter {
  /** Bytes a second that the device reads of its memory at most, measured now; 0 where unknown. */
  readBandwidth(): number;
  /** The most memory that this process has held resident so far, in bytes; 0 where unknown. */
  peakMemory(): number;
}

/** Consecutive rows of a tensor in a file, its leading dimensions flattened. */
export interface WeightSlice {
  readonly tensor: TensorInfo;
  /** @default 0 */
  readonly firstRow?: number;
  /** @default all rows from `firstRow` on */
  readonly nRows?: number;
}

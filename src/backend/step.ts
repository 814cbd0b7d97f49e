/** Recorded steps: inputs of a run, parameters of sampling, and results. */
import type { ForgeError } from "../errors.ts";

declare const brand: unique symbol;

/** Matrix of activations in a recorded step; its rows are the step's tokens or outputs. */
export type Value = number & { readonly [brand]: "value" };

/** Largest run of a step. */
export interface StepLimits {
  readonly maxTokens: number;
  readonly maxOutputs: number;
  readonly maxSequences: number;
  /** Most pages of one sequence. */
  readonly maxPages: number;
}

/** Sampling parameters of one output, in the order of the sampling chain. */
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
  /** Key of the random number, 64 bits. */
  readonly seed: bigint;
}

/** Request for one output: the row whose logits are computed, and how its token is sampled. */
export interface OutputRequest {
  /** Index of the row among the step's tokens. */
  readonly row: number;
  readonly sampling: SamplingParams;
  /** Tokens that the penalties cover. */
  readonly history: ArrayLike<number>;
  /** Most tokens of the history as a run of several steps appends its choices. @default 0 */
  readonly historySize?: number | undefined;
  /** Counter of the random number, together with the token's position in its sequence. */
  readonly stream: number;
  readonly position: number;
  /** Chooses this token and reports its log-probability. */
  readonly forcedToken?: number | undefined;
  /** Number of the most probable tokens to report. */
  readonly nTop: number;
  /**
   * Fills `sampling.mask`. It is called while the device computes, so that mask and forward pass
   * overlap. An exception becomes the output's result.
   */
  readonly fillMask?: (() => void) | undefined;
}

/** Mask of what masked attention sees, of each token of a run. */
export interface AttentionMask {
  /** 1 if all heads share it, or else the number of query heads. */
  readonly nHeads: number;
  /** Positions that it covers, from 0: at least all that any token sees. */
  readonly nPositions: number;
  /**
   * `[tokens, nHeads, nPositions]` numbers that are added to the scores, of which `-Infinity` hides
   * a position, or `[tokens, nHeads, words]` bits: bit `i` of word `w` shows position `32 w + i`.
   */
  readonly values: Float32Array | Uint32Array;
}

/** Inputs of one run. `tokens`, `positions` and `sequences` have one entry per token. */
export interface StepInputs {
  readonly tokens: ArrayLike<number>;
  readonly positions: ArrayLike<number>;
  /** Index into `pageTables` of each token. */
  readonly sequences: ArrayLike<number>;
  readonly pageTables: readonly ArrayLike<number>[];
  /**
   * Row of the token before each token, -1 if it is not in the step, for a tree of tokens: see
   * `forge_step_header` in `csrc/abi/run.h`. @default the tokens of each sequence are a chain
   */
  readonly parents?: ArrayLike<number> | undefined;
  /** Slot of each sequence's recurrent state; omitted for a step without any. */
  readonly slots?: ArrayLike<number> | undefined;
  /**
   * Number of positions of each sequence that attention without causality sees.
   *
   * @default those up to the last token of the sequence in the run
   */
  readonly keyLengths?: ArrayLike<number> | undefined;
  readonly attentionMask?: AttentionMask | undefined;
  /**
   * `[sequences, adapters]`: the scale of each adapter of the step, 0 for adapters that a sequence
   * does not use. Omitted for a step without any.
   */
  readonly adapterScales?: ArrayLike<number> | undefined;
  readonly outputs: readonly OutputRequest[];
  /**
   * Number of steps, each on the tokens that the previous one chose. Above 1, each sequence has one
   * token and one output, in order, without masks or forced tokens. @default 1
   */
  readonly nSteps?: number | undefined;
  /** Tokens that end a run of several steps when any output chooses them. @default none */
  readonly endTokens?: ArrayLike<number> | undefined;
}

/** Token id with its natural log-probability under the model's own distribution. */
export interface TokenLogprob {
  /** Token id. */
  readonly token: number;
  /** Natural logarithm of its probability. */
  readonly logprob: number;
}

/** Token chosen for one output, and the most probable ones. */
export interface StepOutput extends TokenLogprob {
  readonly top: readonly TokenLogprob[];
}

/**
 * Result of one request: its output, or an error that leaves the other outputs valid. The error is
 * `bad_model` if a logit is NaN or infinite, and `bad_input` if mask and bias allow no token.
 */
export type StepResult = StepOutput | ForgeError;

/** Time and work of one operation of a run; on a GPU, of one of its kernels. */
export interface OperationTime {
  /** Step of the run, from 0. */
  readonly step: number;
  /** Name of the operation, such as `matmul`. */
  readonly operation: string;
  /** Rows, columns and type of the matrix that it multiplies with; empty without one. */
  readonly matrix: string;
  /** Name of the kernel, on a GPU; else empty. */
  readonly kernel: string;
  /** Nanoseconds since the run began. */
  readonly begin: number;
  /** Nanoseconds. */
  readonly duration: number;
  /**
   * Least bytes that the operation's formula moves: weights, cached keys and values, inputs and
   * results, each once. 0 for the second and later kernels of an operation, like the flops.
   */
  readonly bytes: number;
  /** Two for each multiplication and addition. */
  readonly flops: number;
}

/** A recorded step. */
export interface Step {
  /** Bytes of its activations. */
  readonly scratchBytes: number;
  /**
   * Runs the step. Returns one result for each request of each step that ran, in order. Of several
   * steps, a device may run fewer.
   *
   * @throws {ForgeError} `cancelled` after {@linkcode cancel}
   */
  run(inputs: StepInputs): Promise<StepResult[]>;
  /** Returns rows of a kept value after the last run, `[nRows, cols]`. */
  read(value: Value, cols: number, firstRow: number, nRows: number): Float32Array;
  /** Returns the nanoseconds that the last successful run took in the native library. */
  nativeTime(): number;
  /**
   * Turns the measurement of operations on or off, for later runs. A GPU then runs one kernel at a
   * time.
   */
  profile(enabled: boolean): void;
  /** Returns the times of the operations of the last run, if it was measured. */
  operationTimes(): OperationTime[];
  /** Stops the run in progress early, if any. */
  cancel(): void;
  release(): void;
}

/** A recorded step: what a run is given, how tokens are chosen, and what comes back. */
import type { ForgeError } from "../errors.ts";

declare const brand: unique symbol;

/** A matrix of activations inside one recorded step; its rows are the step's tokens or outputs. */
export type Value = number & { readonly [brand]: "value" };

/** The largest run a step must be able to hold. */
export interface StepLimits {
  readonly maxTokens: number;
  readonly maxOutputs: number;
  readonly maxSequences: number;
  /** Pages of one sequence. */
  readonly maxPages: number;
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
  /** How many of them to keep as a run of several steps adds those it chooses. @default 0 */
  readonly historySize?: number | undefined;
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
  /**
   * How often the step runs, each time on the tokens that the time before chose. Above 1 it takes one
   * token and one output of each sequence, in order, without masks or forced tokens. @default 1
   */
  readonly nSteps?: number | undefined;
  /** Tokens that end a run of several steps when any output chooses them. @default none */
  readonly endTokens?: ArrayLike<number> | undefined;
}

/** A token id with its natural log-probability under the model's own distribution. */
export interface TokenLogprob {
  /** The id. */
  readonly token: number;
  /** Its natural logarithm of the probability. */
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
   * Runs the step; one result for each request, of each of the steps that ran, in order.
   *
   * @throws {ForgeError} `cancelled` after {@linkcode cancel}
   */
  run(inputs: StepInputs): Promise<StepResult[]>;
  /** Rows of a kept value of the last step of the last run, `[nRows, cols]`. */
  read(value: Value, cols: number, firstRow: number, nRows: number): Float32Array;
  /** What the last run that succeeded took inside the device's library, in nanoseconds. */
  nativeTime(): number;
  /** Makes the run in progress stop early; without one, does nothing. */
  cancel(): void;
  release(): void;
}

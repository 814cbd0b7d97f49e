import type { AttentionKernels, KvType } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { quantized, QUANTIZED_TYPES, type QuantizedType } from "../../formats/quantized.ts";
import { quote, quoteList } from "../../formats/quote.ts";
import { DEFAULT_CONTEXT, DEFAULT_PARALLEL, MAX_PARALLEL } from "../limits.ts";
import { checkWholeNumber, type OptionChecks } from "../request/options.ts";

/** Where and how large a model is opened. Every member has a default. */
export interface LoadOptions {
  /** `auto`, `cpu`, `cpu:VARIANT`, `cuda`, `cuda:N`, `metal` or `reference`. @default "auto" */
  readonly device?: string | undefined;
  /** Threads that compute. @default one a core */
  readonly threads?: number | undefined;
  /** Tokens of prompt and answer together. @default the model's own limit, at most 32768 */
  readonly contextLength?: number | undefined;
  /**
   * Sequences that are computed at a time. More of them wait their turn; fewer leave threads with less
   * to do at once. @default 32
   */
  readonly parallel?: number | undefined;
  /**
   * Quantise weights that are stored as floats while they load, to a quarter of their memory and up to four
   * times the speed at 4 bits; nothing is written. @default as they are stored
   */
  readonly quantize?: QuantizedType | undefined;
  /**
   * The most bytes of the KV cache and recurrent states, for all sequences together.
   * @default a share of the memory that the weights leave: 3/4 on CUDA, 1/2 on Metal, 1/4 on a processor
   */
  readonly kvMemory?: number | undefined;
  /** Type of the KV cache. @default "F16"; "F32" on the reference device */
  readonly kvType?: KvType | undefined;
  /**
   * Which kernels compute attention on a CUDA device; one that device and model cannot have is an
   * error that says why. @default "auto"
   */
  readonly attention?: AttentionKernels | undefined;
  /**
   * Whether steps that decode take guesses of the next tokens along: `on` as many as pay, `off` none, or
   * always so many a sequence, 1 to 32. On the CPU no token changes by it; on a GPU the last digits of
   * logits may, and with them, rarely, a token. `auto` is `on` where nothing changes.
   * @default "auto"
   */
  readonly speculate?: Speculation | undefined;
  /**
   * The path of a smaller model with the same vocabulary, which guesses tokens where the text itself gives
   * no hint. Turns guesses on on every device.
   */
  readonly draftModel?: string | undefined;
}

/** The names of {@linkcode LoadOptions}; each value is checked where it is used. */
export const LOAD_OPTIONS: OptionChecks<LoadOptions> = {
  device: undefined,
  threads: undefined,
  contextLength: undefined,
  parallel: undefined,
  quantize: undefined,
  kvMemory: undefined,
  kvType: undefined,
  attention: undefined,
  speculate: undefined,
  draftModel: undefined,
};

/** How many tokens are guessed ahead. */
export type Speculation = "auto" | "on" | "off" | number;

/**
 * The context a model is opened with.
 *
 * @param longest the most that the model was made for
 * @throws {ForgeError} `usage` when the one asked for is longer, or none at all
 */
export function resolveContext(asked: number | undefined, longest: number): number {
  const contextLength = asked ?? Math.min(longest, DEFAULT_CONTEXT);
  if (!Number.isInteger(contextLength) || contextLength < 1 || contextLength > longest) {
    throw new ForgeError(
      "usage",
      `the context length is ${contextLength}; valid for this model is 1 to ${longest}`,
    );
  }
  return contextLength;
}

/**
 * A checkpoint with its weights in the types that are asked for.
 *
 * @throws {ForgeError} `usage` for a type that there is not, or where nothing can be quantised
 */
export function asLoaded(
  checkpoint: Checkpoint,
  { quantize }: Pick<LoadOptions, "quantize">,
): Checkpoint {
  if (quantize === undefined) return checkpoint;
  if (QUANTIZED_TYPES.includes(quantize)) return quantized(checkpoint, quantize);
  throw new ForgeError(
    "usage",
    `quantize is ${quote(String(quantize))}; valid is ${quoteList(QUANTIZED_TYPES)}`,
  );
}

/** How many sequences a model computes at a time. @throws {ForgeError} `usage` out of range */
export function resolveParallel(asked: number | undefined): number {
  return checkWholeNumber("parallel", asked ?? DEFAULT_PARALLEL, 1, MAX_PARALLEL);
}

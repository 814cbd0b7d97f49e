import { ForgeError } from "../../errors.ts";
import { quote, quoteList } from "../../formats/quote.ts";
import {
  BOOLEAN,
  checkOptions,
  checkWholeNumber,
  type OptionChecks,
  SIGNAL,
} from "../request/options.ts";
import { type EmbeddingRecipe, type Pooling, POOLINGS } from "./pooling.ts";

/** Options of embedding. Every member has a default. */
export interface EmbedOptions {
  /**
   * Pooling of hidden states: the `last` token's, the `mean` of all, or the first token's (`cls`).
   * @default the model's own, else `last`
   */
  readonly pooling?: Pooling | undefined;
  /** True to normalise vectors to length 1. @default the model's own, else true */
  readonly normalize?: boolean | undefined;
  /**
   * Number of leading elements kept before normalisation, for models trained for it (Matryoshka).
   * @default all
   */
  readonly dimensions?: number | undefined;
  /**
   * True to cut a text that exceeds the context, keeping the tokenizer's end tokens; otherwise such
   * a text is an error. @default false
   */
  readonly truncate?: boolean | undefined;
  /** Stops the work. */
  readonly signal?: AbortSignal | undefined;
}

const EMBED_OPTIONS: OptionChecks<EmbedOptions> = {
  pooling: undefined,
  normalize: BOOLEAN,
  dimensions: undefined,
  truncate: BOOLEAN,
  signal: SIGNAL,
};

/** Resolved {@linkcode EmbedOptions}. */
export interface ResolvedEmbedding {
  readonly pooling: Pooling;
  readonly normalize: boolean;
  readonly dimensions: number;
}

/**
 * Checks options and fills in defaults.
 *
 * @param recipe reads the model's own settings; called only if needed
 * @param hiddenSize largest number of dimensions
 * @throws {ForgeError} `usage` for an invalid option; errors of `recipe`
 */
export function resolveEmbedding(
  options: EmbedOptions,
  recipe: () => EmbeddingRecipe,
  hiddenSize: number,
): ResolvedEmbedding {
  checkOptions("embed", options, EMBED_OPTIONS);
  const { pooling, normalize, dimensions = hiddenSize } = options;
  if (pooling !== undefined && !POOLINGS.includes(pooling)) {
    throw new ForgeError(
      "usage",
      `pooling is ${quote(String(pooling))}; valid is ${quoteList(POOLINGS)}`,
    );
  }
  checkWholeNumber("dimensions", dimensions, 1, hiddenSize);
  return {
    pooling: pooling ?? recipe().pooling ?? "last",
    normalize: normalize ?? recipe().normalize ?? true,
    dimensions,
  };
}

/** Returns the leading elements of a pooled state, normalised if asked for. */
export function finishVector(
  pooled: Float32Array,
  { normalize, dimensions }: ResolvedEmbedding,
): Float32Array {
  const vector = pooled.slice(0, dimensions);
  if (!normalize) return vector;
  const length = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
  return length === 0 ? vector : vector.map((value) => value / length);
}

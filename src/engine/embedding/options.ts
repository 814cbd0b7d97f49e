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

/** How texts become vectors. Every member has a default. */
export interface EmbedOptions {
  /**
   * What of the hidden states becomes the vector: that of the `last` token, the `mean` of all, or that of
   * the first token (`cls`). @default what the model's files say, else `last`
   */
  readonly pooling?: Pooling | undefined;
  /** Whether vectors are made one long. @default what the model's files say, else true */
  readonly normalize?: boolean | undefined;
  /**
   * How many of the first numbers are kept, before vectors are made one long; for models that were
   * trained for it (Matryoshka). @default all
   */
  readonly dimensions?: number | undefined;
  /**
   * Whether a text that the context does not hold is cut at its end, which keeps the tokens that the
   * tokenizer puts there; otherwise it is an error. @default false
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

/** What {@linkcode EmbedOptions} come to. */
export interface ResolvedEmbedding {
  readonly pooling: Pooling;
  readonly normalize: boolean;
  readonly dimensions: number;
}

/**
 * Fills in what options leave open.
 *
 * @param recipe reads what the model's files say; asked where it is needed
 * @param hiddenSize the most dimensions that there are
 * @throws {ForgeError} `usage` for an option that is not valid; what `recipe` throws
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

/** The vector of an embedding: as many numbers as are wanted, one long where that is wanted. */
export function finishVector(
  pooled: Float32Array,
  { normalize, dimensions }: ResolvedEmbedding,
): Float32Array {
  const vector = pooled.slice(0, dimensions);
  if (!normalize) return vector;
  const length = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
  return length === 0 ? vector : vector.map((value) => value / length);
}

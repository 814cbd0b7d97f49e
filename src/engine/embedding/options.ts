import { ForgeError } from "../../errors.ts";
import { quote, quoteList } from "../../formats/quote.ts";
import type { AdapterChoice } from "../request/adapters.ts";
import {
  BOOLEAN,
  checkOptions,
  checkWholeNumber,
  type OptionChecks,
  SIGNAL,
} from "../../formats/arguments.ts";
import { ADAPTER_CHOICE } from "../request/options.ts";
import type { DenseLayer } from "../../models/causal_lm.ts";
import { applyLayers } from "./dense.ts";
import { type EmbeddingRecipe, type Pooling, POOLINGS } from "./pooling.ts";

/** Options of embedding. Every member has a default. */
export interface EmbedOptions {
  /**
   * Pooling of hidden states: the `last` token's, the `mean` of all, or the first token's (`cls`).
   * @default the model's own, else `mean` for an encoder and `last` for others
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
  /** Adapters to apply. @default those that the model was loaded with */
  readonly lora?: AdapterChoice | undefined;
  /** Stops the work. */
  readonly signal?: AbortSignal | undefined;
}

const EMBED_OPTIONS: OptionChecks<EmbedOptions> = {
  pooling: undefined,
  normalize: BOOLEAN,
  dimensions: undefined,
  truncate: BOOLEAN,
  lora: ADAPTER_CHOICE,
  signal: SIGNAL,
};

/** Resolved {@linkcode EmbedOptions}. */
interface ResolvedEmbedding {
  readonly pooling: Pooling;
  readonly normalize: boolean;
  readonly dimensions: number;
  /** Layers between pooling and normalisation. */
  readonly layers: readonly DenseLayer[];
}

/** A model's own settings, and those it has where its files set none. */
interface EmbeddingDefaults {
  /** Reads the settings of the files. */
  readonly recipe: () => EmbeddingRecipe;
  readonly pooling: Pooling;
  /** Returns the layers after the pooling. */
  readonly layers: () => readonly DenseLayer[];
  readonly hiddenSize: number;
}

/**
 * Checks options and fills in defaults.
 *
 * @throws {ForgeError} `usage` for an invalid option; errors of `recipe`
 */
export function resolveEmbedding(
  options: EmbedOptions,
  defaults: EmbeddingDefaults,
): ResolvedEmbedding {
  checkOptions("embed", options, EMBED_OPTIONS);
  const { pooling, normalize } = options;
  if (pooling !== undefined && !POOLINGS.includes(pooling)) {
    throw new ForgeError(
      "usage",
      `pooling is ${quote(String(pooling))}; valid is ${quoteList(POOLINGS)}`,
    );
  }
  const layers = defaults.layers();
  const size = layers.at(-1)?.rows ?? defaults.hiddenSize;
  const dimensions = checkWholeNumber("dimensions", options.dimensions ?? size, 1, size);
  return {
    pooling: pooling ?? defaults.recipe().pooling ?? defaults.pooling,
    normalize: normalize ?? defaults.recipe().normalize ?? true,
    dimensions,
    layers,
  };
}

/** Returns the leading elements of a pooled state after its layers, normalised if asked for. */
export function finishVector(
  pooled: Float32Array,
  { normalize, dimensions, layers }: ResolvedEmbedding,
): Float32Array {
  const vector = applyLayers(layers, pooled).slice(0, dimensions);
  if (!normalize) return vector;
  const length = Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
  return length === 0 ? vector : vector.map((value) => value / length);
}

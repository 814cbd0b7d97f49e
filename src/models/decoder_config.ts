import type { ConfigReader, Key } from "./config_reader.ts";

/** The settings that every decoder has. */
export interface DecoderConfig {
  readonly hiddenSize: number;
  readonly nLayers: number;
  readonly nHeads: number;
  readonly nKvHeads: number;
  readonly headDim: number;
  readonly intermediateSize: number;
  readonly normEps: number;
  /** The longest sequence the model was made for. */
  readonly contextLength: number;
}

export type NormKind = "rms" | "layer";

const NORM_EPS_KEYS: Record<NormKind, Key> = {
  rms: ["rms_norm_eps", "attention.layer_norm_rms_epsilon"],
  layer: ["norm_epsilon", "attention.layer_norm_epsilon"],
};

/** Reads them. @throws {ForgeError} `bad_model` when one is missing or contradicts another. */
export function decoderConfig(config: ConfigReader, norm: NormKind = "rms"): DecoderConfig {
  const hiddenSize = config.int(["hidden_size", "embedding_length"]);
  const nHeads = config.int(["num_attention_heads", "attention.head_count"]);
  const kvHeadsKey: Key = ["num_key_value_heads", "attention.head_count_kv"];
  const nKvHeads = config.int(kvHeadsKey, { fallback: nHeads });
  if (nHeads % nKvHeads !== 0) {
    throw config.invalid(kvHeadsKey, nKvHeads, `a divisor of the ${nHeads} attention heads`);
  }
  const headDimKey: Key = ["head_dim", "attention.key_length"];
  const headDim = config.int(headDimKey, { fallback: Math.floor(hiddenSize / nHeads) });
  if (headDim > 4096) throw config.invalid(headDimKey, headDim, "at most 4096");
  return {
    hiddenSize,
    nHeads,
    nKvHeads,
    headDim,
    nLayers: config.int(["num_hidden_layers", "block_count"]),
    intermediateSize: config.int(["intermediate_size", "feed_forward_length"]),
    normEps: config.positive(NORM_EPS_KEYS[norm]),
    contextLength: config.int(["max_position_embeddings", "context_length"]),
  };
}

/**
 * Which layers attend over a sliding window, from `layer_types`, GGUF's
 * `attention.sliding_window_pattern`, or else a period: of every `period` layers the last attends to
 * everything.
 *
 * @returns the window of each layer, `undefined` for full attention.
 */
export function slidingWindows(
  config: ConfigReader,
  nLayers: number,
  period: number | undefined,
): (number | undefined)[] {
  const windowKey: Key = ["sliding_window", "attention.sliding_window"];
  const raw = config.raw(windowKey);
  if (raw === undefined || (config.isGguf && raw === 0)) {
    return Array.from({ length: nLayers }, () => undefined);
  }
  const window = config.int(windowKey);
  const typesKey: Key = ["layer_types", "attention.sliding_window_pattern"];
  // GGUF may also hold the period itself under this key.
  const declared = config.raw(typesKey);
  if (typeof declared === "number") period = config.int(typesKey);
  const types = typeof declared === "number" ? undefined : config.perLayer(typesKey, nLayers);
  return Array.from({ length: nLayers }, (_, i) => {
    const sliding = types === undefined
      ? period === undefined || (i + 1) % period !== 0
      : types[i] === "sliding_attention" || types[i] === true || types[i] === 1;
    return sliding ? window : undefined;
  });
}

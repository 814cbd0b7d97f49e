import type { Activation } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import { quote, quoteList } from "../../formats/quote.ts";
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
  /** The activation of the MLP. */
  readonly activation: Activation;
  /** The longest sequence the model was made for. */
  readonly contextLength: number;
}

/** What holds where a config is silent, and where it says things elsewhere. */
export interface DecoderDefaults {
  /** Where the norms' epsilon stands. @default the usual place of RMSNorm's */
  readonly normEps?: Key;
  /** The activation where the config names none, as in GGUF. @default "silu" */
  readonly activation?: Activation;
  /** The width of the MLP where the config has none, as where all layers have experts. */
  readonly intermediateSize?: number;
}

const RMS_NORM_EPS: Key = ["rms_norm_eps", "attention.layer_norm_rms_epsilon"];

/** Far above any real model; what a damaged file may ask for is not worked through. */
const MAX_LAYERS = 4096;
const MAX_HEAD_DIM = 4096;

/**
 * Reads them.
 *
 * @throws {ForgeError} `bad_model` when one is missing or contradicts another; `unsupported` for an
 * activation forge does not know, a size that differs between layers, or a model that embeds text.
 */
export function decoderConfig(config: ConfigReader, defaults: DecoderDefaults = {}): DecoderConfig {
  assertCausal(config);
  const { normEps = RMS_NORM_EPS, activation = "silu" } = defaults;
  const nLayers = countLayers(config);
  // Checked in families too that do not read it, as transformers does.
  config.perLayer(["layer_types", undefined], nLayers);
  const hiddenSize = config.int(["hidden_size", "embedding_length"]);
  const nHeads = config.int(["num_attention_heads", "attention.head_count"]);
  const kvHeadsKey: Key = ["num_key_value_heads", "attention.head_count_kv"];
  const nKvHeads = config.raw(kvHeadsKey) === undefined ? nHeads : config.int(kvHeadsKey);
  if (nHeads % nKvHeads !== 0) {
    throw config.invalid(kvHeadsKey, nKvHeads, `a divisor of the ${nHeads} attention heads`);
  }
  const headDimKey: Key = ["head_dim", "attention.key_length"];
  const equalShare = Math.floor(hiddenSize / nHeads);
  return {
    hiddenSize,
    nHeads,
    nKvHeads,
    headDim: config.raw(headDimKey) === undefined && equalShare > 0
      ? equalShare
      : config.int(headDimKey, { max: MAX_HEAD_DIM, fallback: equalShare }),
    nLayers,
    intermediateSize: config.int(
      ["intermediate_size", "feed_forward_length"],
      defaults.intermediateSize === undefined ? {} : { fallback: defaults.intermediateSize },
    ),
    normEps: config.positive(normEps),
    activation: readActivation(config, activation),
    contextLength: config.int(["max_position_embeddings", "context_length"]),
  };
}

/** Counts the layers of the model. GGUF files may hold more, which predict further tokens and are not run. */
function countLayers(config: ConfigReader): number {
  const stored = config.int(["num_hidden_layers", "block_count"], { max: MAX_LAYERS });
  const key: Key = [undefined, "nextn_predict_layers"];
  return stored - config.int(key, { min: 0, max: stored - 1, fallback: 0 });
}

/** Refuses an encoder in a decoder's clothes, such as EmbeddingGemma. */
function assertCausal(config: ConfigReader): void {
  const bidirectional = config.raw(["use_bidirectional_attention", undefined]) ?? false;
  // Of the pictures that "vision" is about there are none.
  if (bidirectional === false || bidirectional === "vision") return;
  throw new ForgeError(
    "unsupported",
    `${quote(config.path)} attends in both directions: it embeds text and does not generate any`,
  );
}

/** What config.json calls the activations. */
const ACTIVATIONS: Readonly<Record<string, Activation>> = {
  silu: "silu",
  swish: "silu",
  gelu: "gelu_erf",
  gelu_new: "gelu_tanh",
  gelu_pytorch_tanh: "gelu_tanh",
  relu2: "relu_squared",
};

function readActivation(config: ConfigReader, fallback: Activation): Activation {
  // Gemma has a name of its own for the setting.
  const name = ["hidden_activation", "hidden_act"].find((key) => config.default(key) !== undefined);
  if (config.isGguf || name === undefined) return fallback;
  const named = config.string([name, undefined]);
  const known = Object.entries(ACTIVATIONS).find(([name]) => name === named);
  if (known !== undefined) return known[1];
  throw new ForgeError(
    "unsupported",
    `${quote(config.path)} has the activation ${
      quote(String(named))
    }, which forge does not know; ` +
      `it knows ${quoteList(Object.keys(ACTIVATIONS))}`,
  );
}

/**
 * Which layers attend over a sliding window, from `layer_types`, GGUF's
 * `attention.sliding_window_pattern`, or else a period: of every `period` layers the last attends to
 * everything.
 *
 * @returns the window of each layer, `undefined` for full attention.
 * @throws {ForgeError} `unsupported` for a layer that is neither.
 */
export function slidingWindows(
  config: ConfigReader,
  nLayers: number,
  period: number | undefined,
): (number | undefined)[] {
  const isSliding = slidingLayers(config, nLayers, period);
  const windowKey: Key = ["sliding_window", "attention.sliding_window"];
  const hasWindow = config.raw(windowKey) !== undefined &&
    !(config.isGguf && config.raw(windowKey) === 0);
  const isOptional = config.isGguf ||
    (period === undefined && config.raw(["layer_types", undefined]) === undefined);
  const window = hasWindow || !(isOptional || !isSliding.includes(true))
    ? config.int(windowKey)
    : undefined;
  return isSliding.map((sliding) => sliding ? window : undefined);
}

function slidingLayers(
  config: ConfigReader,
  nLayers: number,
  period: number | undefined,
): readonly boolean[] {
  const key: Key = ["layer_types", "attention.sliding_window_pattern"];
  // GGUF may also hold the period itself under this key.
  const isPeriod = typeof config.raw(key) === "number";
  const types = isPeriod ? undefined : config.perLayer(key, nLayers);
  const every = isPeriod ? config.int(key) : period;
  return Array.from({ length: nLayers }, (_, i) => {
    if (types === undefined) return every === undefined || (i + 1) % every !== 0;
    const type = types[i];
    if (type === "sliding_attention" || type === true || type === 1) return true;
    if (type === "full_attention" || type === false || type === 0) return false;
    throw new ForgeError(
      "unsupported",
      `${quote(config.path)}: layer ${i} is of the type ${quote(String(type))}; ` +
        `forge knows "full_attention" and "sliding_attention" in this architecture`,
    );
  });
}

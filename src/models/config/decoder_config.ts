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

/** Defaults of settings that a config lacks. */
interface DecoderDefaults {
  /** Key of the norms' epsilon. @default RMSNorm's */
  readonly normEps?: Key;
  /** The activation of a config that names none, as in GGUF. @default "silu" */
  readonly activation?: Activation;
  /** True if the family reads and computes an activation of its own. */
  readonly hasOwnActivation?: boolean;
  /** Width of the MLP of a config without one, for instance if all layers have experts. */
  readonly intermediateSize?: number;
  /** Number of layers. @default the setting */
  readonly nLayers?: number;
  /** Layer whose MLP has the width, where not all layers have an MLP. */
  readonly mlpLayer?: number;
}

const RMS_NORM_EPS: Key = ["rms_norm_eps", "attention.layer_norm_rms_epsilon"];

/** Limits far above any real model, so that a damaged file fails at once. */
const MAX_LAYERS = 4096;
const MAX_HEAD_DIM = 4096;

/**
 * Reads the settings that every decoder has.
 *
 * @throws {ForgeError} `bad_model` if one is missing or contradicts another; `unsupported` for an
 * unknown activation, or a size that differs between layers.
 */
export function decoderConfig(config: ConfigReader, defaults: DecoderDefaults = {}): DecoderConfig {
  const { normEps = RMS_NORM_EPS, activation = "silu", hasOwnActivation, mlpLayer } = defaults;
  const nLayers = defaults.nLayers ?? countLayers(config);
  // transformers checks the length of this list in families that do not use it, too.
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
    intermediateSize: (mlpLayer === undefined ? config : config.ofLayer(mlpLayer)).int(
      ["intermediate_size", "feed_forward_length"],
      defaults.intermediateSize === undefined ? {} : { fallback: defaults.intermediateSize },
    ),
    normEps: config.positive(normEps),
    activation: hasOwnActivation ? activation : readActivation(config, activation),
    contextLength: config.int(["max_position_embeddings", "context_length"]),
  };
}

/**
 * Counts the layers that are run. GGUF counts the layers for multi-token prediction among the
 * blocks.
 */
function countLayers(config: ConfigReader): number {
  const stored = config.int(["num_hidden_layers", "block_count"], { max: MAX_LAYERS });
  const key: Key = [undefined, "nextn_predict_layers"];
  return stored - config.int(key, { min: 0, max: stored - 1, fallback: 0 });
}

/** Activations by their name in config.json. */
const ACTIVATIONS: Readonly<Record<string, Activation>> = {
  silu: "silu",
  swish: "silu",
  gelu: "gelu_erf",
  gelu_new: "gelu_tanh",
  gelu_pytorch_tanh: "gelu_tanh",
  relu2: "relu_squared",
};

function readActivation(config: ConfigReader, fallback: Activation): Activation {
  // Gemma calls the setting "hidden_activation".
  const name = ["hidden_activation", "hidden_act"].find((key) => config.default(key) !== undefined);
  return config.isGguf || name === undefined ? fallback : activationOf(config, name);
}

/** Reads the activation that a setting of config.json names. @throws {ForgeError} `unsupported` */
export function activationOf(config: ConfigReader, name: string): Activation {
  const named = config.string([name, undefined]);
  const known = Object.entries(ACTIVATIONS).find(([name]) => name === named);
  if (known !== undefined) return known[1];
  throw config.unsupported([name, undefined], named, quoteList(Object.keys(ACTIVATIONS)));
}

/**
 * Returns the sliding window of each layer, `undefined` for full attention. `layer_types` or GGUF's
 * `attention.sliding_window_pattern` names the layers with a window. Without either, the last of
 * every `period` layers has full attention and all others a window.
 *
 * @throws {ForgeError} `unsupported` for a layer of another type.
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

/** Tells the sink which layers have a window, if any has one. */
export function noteWindows(config: ConfigReader, windows: readonly (number | undefined)[]): void {
  const isSliding = windows.map((window) => window !== undefined);
  if (!isSliding.includes(true)) return;
  config.sink?.setting("attention.sliding_window_pattern", ["array", "bool", isSliding]);
}

function slidingLayers(
  config: ConfigReader,
  nLayers: number,
  period: number | undefined,
): readonly boolean[] {
  const key: Key = ["layer_types", "attention.sliding_window_pattern"];
  // In GGUF the value may be the period.
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
        `forge supports "full_attention" and "sliding_attention" in this architecture`,
    );
  });
}

/** Returns for each layer whether it rotates queries and keys (Llama 4, SmolLM3). */
export function rotatedLayers(config: ConfigReader, nLayers: number): boolean[] {
  const key: Key = ["no_rope_layers", undefined];
  const named = config.raw(key);
  const isEmpty = Array.isArray(named) && named.length === 0;
  // Despite the name of the list, 1 means that the layer rotates.
  const listed = isEmpty ? undefined : config.perLayer(key, nLayers);
  const interval = config.int(["no_rope_layer_interval", undefined], { fallback: 4 });
  return Array.from(
    { length: nLayers },
    (_, i) => listed === undefined ? (i + 1) % interval !== 0 : Boolean(listed[i]),
  );
}

/** Returns the bound of a soft-cap, or `undefined` if the config sets none. */
export function readSoftcap(config: ConfigReader, name: string): number | undefined {
  return config.raw([name, name]) === undefined ? undefined : config.positive([name, name]);
}

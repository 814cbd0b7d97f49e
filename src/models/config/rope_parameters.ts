/**
 * Settings of rotary position embedding: `rope_parameters` in newer config.json files, `rope_theta`
 * and `rope_scaling` in older ones, the `rope.*` keys in GGUF.
 */
import { ForgeError } from "../../errors.ts";
import { isJsonObject } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";
import type { ConfigReader } from "./config_reader.ts";

/** The layers a rotation is for, and defaults for GGUF files. */
export interface RopeLayers {
  /** Type of the layers, in families whose `rope_parameters` hold a set for each type. */
  readonly layerType?: "full_attention" | "sliding_attention" | undefined;
  /**
   * Base of sliding layers in a GGUF file without the setting. @default that of the other layers
   */
  readonly ggufSlidingTheta?: number;
  /** True if YaRN rounds the ends of its ramp in GGUF files. @default true */
  readonly ggufTruncate?: boolean;
}

/** GGUF keys by the names of `rope_parameters`. */
const GGUF_KEYS: Readonly<Record<string, string>> = {
  rope_theta: "rope.freq_base",
  rope_type: "rope.scaling.type",
  factor: "rope.scaling.factor",
  original_max_position_embeddings: "rope.scaling.original_context_length",
  attention_factor: "rope.scaling.attn_factor",
  beta_fast: "rope.scaling.yarn_beta_fast",
  beta_slow: "rope.scaling.yarn_beta_slow",
  mscale_all_dim: "rope.scaling.yarn_log_multiplier",
};

type Settings = Readonly<Record<string, unknown>>;

/** Parameters of one rotation, under the names of `rope_parameters`. */
export class RopeParameters {
  readonly #config: ConfigReader;
  readonly #settings: Settings;

  private constructor(config: ConfigReader, settings: Settings) {
    this.#config = config;
    this.#settings = settings;
  }

  /** Reads the parameters. @throws {ForgeError} `bad_model` if a type of layer lacks them */
  static read(config: ConfigReader, layers: RopeLayers): RopeParameters {
    if (config.isGguf) return new RopeParameters(config, ggufSettings(config, layers));
    const settings = layers.layerType === undefined
      ? commonSettings(config)
      : layerSettings(config, layers.layerType);
    return new RopeParameters(config, withOriginalLength(config, settings));
  }

  /** Kind of scaling; "default" if none is named. */
  get type(): string {
    if (isByPlace(this.#config, this.#settings)) return "default";
    const type = typeOf(this.#settings);
    if (typeof type !== "string") throw this.invalid("rope_type", type, "text");
    return type;
  }

  has(name: string): boolean {
    return this.#settings[name] !== undefined && this.#settings[name] !== null;
  }

  /** True if a parameter is present, even as `null`. */
  isWritten(name: string): boolean {
    return this.#settings[name] !== undefined;
  }

  /** Rejects config.json files that lack a parameter, even if `null` would be valid. */
  assertWritten(name: string): void {
    if (this.isWritten(name) || this.#config.isGguf) return;
    throw this.invalid(name, undefined, "a number above 0, or null");
  }

  /**
   * Reads a finite number. @throws {ForgeError} `bad_model` for anything else, as the methods below
   */
  number(name: string, fallback?: number): number {
    const value = this.isWritten(name) ? this.#settings[name] : fallback;
    if (typeof value !== "number" || !Number.isFinite(value)) {
      throw this.invalid(name, value, "a finite number");
    }
    return value;
  }

  /** Reads a number above 0, or returns `otherwise` if it is absent or null. */
  derived(name: string, otherwise: number): number {
    return this.has(name) ? this.positive(name) : this.#above0(name, otherwise);
  }

  positive(name: string, fallback?: number): number {
    return this.#above0(name, this.number(name, fallback));
  }

  boolean(name: string, fallback: boolean): boolean {
    const value = this.isWritten(name) ? this.#settings[name] : fallback;
    if (typeof value !== "boolean") throw this.invalid(name, value, "true or false");
    return value;
  }

  /** Reads a list of `length` numbers above 0. */
  positives(name: string, length: number): readonly number[] {
    const value = this.#settings[name];
    const isList = Array.isArray(value) && value.length === length &&
      value.every((entry) => typeof entry === "number" && entry > 0);
    if (!isList) throw this.invalid(name, value, `a list of ${length} numbers above 0`);
    return value;
  }

  /** Returns the error for an invalid parameter. */
  invalid(name: string, value: unknown, expected: string): ForgeError {
    return this.#config.invalid([`RoPE's ${name}`, ggufName(name)], value, expected);
  }

  #above0(name: string, value: number): number {
    if (value > 0 && Number.isFinite(value)) return value;
    throw this.invalid(name, value, "a number above 0");
  }

  /** Returns the error for an unknown kind of scaling. */
  unsupported(known: readonly string[]): ForgeError {
    return new ForgeError(
      "unsupported",
      `${quote(this.#config.path)} scales RoPE by ${
        quote(this.type)
      }, which forge does not support; ` +
        `it supports ${known.join(", ")}`,
    );
  }
}

function ggufName(name: string): string {
  return GGUF_KEYS[name] ?? `rope ${name}`;
}

function typeOf(settings: Settings): unknown {
  const { rope_type, type } = settings;
  return rope_type !== undefined ? rope_type : type !== undefined ? type : "default";
}

/**
 * True if each token has a position in time, height and width. The three are equal in text, so the
 * rotation is the plain one.
 */
const isByPlace = (config: ConfigReader, settings: Settings) =>
  typeOf(settings) === "mrope" && (config.isGguf || config.modelType.startsWith("qwen2_"));

/**
 * Returns the parameters of all layers: the older `rope_scaling` if there is one, else
 * `rope_parameters`.
 */
function commonSettings(config: ConfigReader): Settings {
  const parameters = config.object("rope_parameters") ?? config.default("rope_parameters");
  const newer = isJsonObject(parameters) ? parameters : {};
  const older = config.object("rope_scaling") ?? {};
  const named = Object.keys(older).length > 0 ? older : newer;
  if (Object.values(named).some(isJsonObject)) {
    throw config.invalid(["rope_parameters", undefined], named, "one set for all layers");
  }
  const name = "partial_rotary_factor";
  const isUnset = config.setting(name) === null && config.default(name) === undefined;
  // transformers ignores Bamba's setting.
  const own = config.modelType === "bamba" ? config.default(name) : config.setting(name);
  const partial = isUnset ? undefined : own;
  return {
    rope_theta: config.setting("rope_theta"),
    ...(partial === undefined ? {} : { partial_rotary_factor: partial }),
    ...named,
  };
}

/**
 * Returns the parameters of one type of layer. The older `rope_scaling` applies to layers with full
 * attention only.
 */
function layerSettings(
  config: ConfigReader,
  layerType: NonNullable<RopeLayers["layerType"]>,
): Settings {
  const parameters = config.object("rope_parameters") ?? config.default("rope_parameters");
  const all = isJsonObject(parameters) ? parameters : {};
  const own = all[layerType] ?? undefined;
  if (own !== undefined && !isJsonObject(own)) {
    throw config.invalid([`rope_parameters.${layerType}`, undefined], own, "an object");
  }
  const older = config.object("rope_scaling");
  if (older !== undefined && config.default("rope_parameters") !== undefined) {
    throw config.invalid(["rope_scaling", undefined], older, "rope_parameters in its place");
  }
  if (older?.type !== undefined && older.rope_type === undefined) {
    // transformers ignores "type" here and would not scale at all.
    throw config.invalid(["rope_scaling's type", undefined], older.type, "rope_type in its place");
  }
  if (older !== undefined && parameters !== undefined && all.full_attention === undefined) {
    throw config.invalid(["rope_scaling", undefined], older, "none next to rope_parameters");
  }
  if (layerType === "full_attention") {
    return { rope_theta: config.setting("rope_theta"), ...own, ...older };
  }
  const local = "rope_local_base_freq";
  const theta = config.default(local) === undefined
    ? config.default("rope_theta")
    : config.setting(local);
  return { rope_theta: theta, ...own };
}

/** Kinds of scaling that depend on the original context length. */
const SCALES_LENGTH = ["llama3", "yarn", "longrope", "su"];

/**
 * Adds the original context length, which Phi-3 has next to the parameters. The default is the
 * model's context length.
 */
function withOriginalLength(config: ConfigReader, settings: Settings): Settings {
  if (!SCALES_LENGTH.some((type) => type === typeOf(settings))) return settings;
  const name = "original_max_position_embeddings";
  const outside = config.setting(name);
  if (outside !== undefined) return { ...settings, [name]: outside };
  return { [name]: config.setting("max_position_embeddings"), ...settings };
}

function ggufSettings(config: ConfigReader, layers: RopeLayers): Settings {
  const settings: Record<string, unknown> = {};
  for (const [name, key] of Object.entries(GGUF_KEYS)) {
    settings[name] = config.raw([undefined, key]);
  }
  settings.rope_theta ??= 10_000;
  if (layers.layerType === "sliding_attention") {
    const local = config.raw([undefined, "rope.freq_base_swa"]) ?? layers.ggufSlidingTheta;
    return { rope_theta: local ?? settings.rope_theta };
  }
  // YaRN has its own key for the factor; `attn_factor` is LongRoPE's.
  settings.attention_factor = config.raw([undefined, "rope.scaling.yarn_attn_factor"]) ??
    settings.attention_factor;
  settings.truncate = layers.ggufTruncate;
  // DeepSeek's attention scale includes this factor, so sines and cosines are not scaled: equal
  // values cancel.
  settings.mscale = settings.mscale_all_dim;
  // Older files have a factor without a type and mean linear scaling.
  if (settings.rope_type === undefined && settings.factor !== undefined) {
    settings.rope_type = "linear";
  }
  return settings;
}

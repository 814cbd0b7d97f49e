/**
 * Where a model describes its rotary position embedding: `rope_parameters` in newer config.json
 * files, `rope_theta` and `rope_scaling` in older ones, the `rope.*` keys in GGUF.
 */
import { ForgeError } from "../../errors.ts";
import { isJsonObject } from "../../formats/json.ts";
import { quote } from "../../formats/quote.ts";
import type { ConfigReader } from "./config_reader.ts";

/** Which layers a rotation is for, and what a GGUF file does not say. */
export interface RopeLayers {
  /** The type of layer, in a family whose `rope_parameters` hold a set for each type. */
  readonly layerType?: "full_attention" | "sliding_attention" | undefined;
  /** The base of sliding layers in a GGUF file without one. @default that of the others */
  readonly ggufSlidingTheta?: number;
  /** Whether YaRN rounds the ends of its ramp in GGUF files. @default true */
  readonly ggufTruncate?: boolean;
}

/** GGUF's keys for what rope_parameters calls by the names on the left. */
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

/** The parameters of one rotation, under the names of `rope_parameters`. */
export class RopeParameters {
  readonly #config: ConfigReader;
  readonly #settings: Settings;

  private constructor(config: ConfigReader, settings: Settings) {
    this.#config = config;
    this.#settings = settings;
  }

  /** @throws {ForgeError} `bad_model` when a type of layer lacks its parameters. */
  static read(config: ConfigReader, layers: RopeLayers): RopeParameters {
    if (config.isGguf) return new RopeParameters(config, ggufSettings(config, layers));
    const settings = layers.layerType === undefined
      ? commonSettings(config)
      : layerSettings(config, layers.layerType);
    return new RopeParameters(config, withOriginalLength(config, settings));
  }

  /** The kind of scaling; "default" where none is named. */
  get type(): string {
    if (isByPlace(this.#config, this.#settings)) return "default";
    const type = typeOf(this.#settings);
    if (typeof type !== "string") throw this.invalid("rope_type", type, "text");
    return type;
  }

  has(name: string): boolean {
    return this.#settings[name] !== undefined && this.#settings[name] !== null;
  }

  /** True for a parameter that is there, be it `null`. */
  isWritten(name: string): boolean {
    return this.#settings[name] !== undefined;
  }

  /** Refuses parameters of config.json without one, where `null` would do. */
  assertWritten(name: string): void {
    if (this.isWritten(name) || this.#config.isGguf) return;
    throw this.invalid(name, undefined, "a number above 0, or null");
  }

  /** A finite number. @throws {ForgeError} `bad_model` for anything else, as the others here. */
  number(name: string, fallback?: number): number {
    const value = this.isWritten(name) ? this.#settings[name] : fallback;
    if (typeof value !== "number" || !Number.isFinite(value)) {
      throw this.invalid(name, value, "a finite number");
    }
    return value;
  }

  /** A number above 0 that is derived where it is absent or null. */
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

  /** A list of `length` numbers above 0. */
  positives(name: string, length: number): readonly number[] {
    const value = this.#settings[name];
    const isList = Array.isArray(value) && value.length === length &&
      value.every((entry) => typeof entry === "number" && entry > 0);
    if (!isList) throw this.invalid(name, value, `a list of ${length} numbers above 0`);
    return value;
  }

  /** The error for a parameter that cannot be used. */
  invalid(name: string, value: unknown, expected: string): ForgeError {
    return this.#config.invalid([`RoPE's ${name}`, ggufName(name)], value, expected);
  }

  #above0(name: string, value: number): number {
    if (value > 0 && Number.isFinite(value)) return value;
    throw this.invalid(name, value, "a number above 0");
  }

  /** The error for a kind of scaling that forge does not know. */
  unsupported(known: readonly string[]): ForgeError {
    return new ForgeError(
      "unsupported",
      `${quote(this.#config.path)} scales RoPE by ${
        quote(this.type)
      }, which forge does not know; ` +
        `it knows ${known.join(", ")}`,
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
 * Rotates by a position in time, height and width, which is the same one where there is but text.
 */
const isByPlace = (config: ConfigReader, settings: Settings) =>
  typeOf(settings) === "mrope" && (config.isGguf || config.modelType.startsWith("qwen2_"));

/** One set for all layers: the older `rope_scaling` where there is one, else `rope_parameters`. */
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
  const partial = isUnset ? undefined : config.setting(name);
  return {
    rope_theta: config.setting("rope_theta"),
    ...(partial === undefined ? {} : { partial_rotary_factor: partial }),
    ...named,
  };
}

/** The set of one type of layer. The older `rope_scaling` scales layers of full attention alone. */
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
    // transformers passes over it here, and would not scale at all.
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

/** The kinds of scaling that ask for the length before it. */
const SCALES_LENGTH = ["llama3", "yarn", "longrope", "su"];

/** Phi-3 has that length next to the parameters, not within; without any, it is the model's own. */
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
  // YaRN's factor has a key of its own; the other is LongRoPE's.
  settings.attention_factor = config.raw([undefined, "rope.scaling.yarn_attn_factor"]) ??
    settings.attention_factor;
  settings.truncate = layers.ggufTruncate;
  // Where attention's scale takes it up, sines and cosines keep their length.
  settings.mscale = settings.mscale_all_dim;
  // A factor without a type is of the days when there was but one type.
  if (settings.rope_type === undefined && settings.factor !== undefined) {
    settings.rope_type = "linear";
  }
  return settings;
}

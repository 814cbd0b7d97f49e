/**
 * Where a model describes its rotary position embedding: `rope_parameters` in newer config.json files,
 * `rope_theta` and `rope_scaling` in older ones, the `rope.*` keys in GGUF.
 */
import { ForgeError } from "../errors.ts";
import { isJsonObject } from "../formats/json.ts";
import { quote } from "../formats/quote.ts";
import type { ConfigReader, Key } from "./config_reader.ts";

/** Which layers a rotation is for, and what holds where the model says nothing. */
export interface RopeLayers {
  /** The type of layer, in a family that rotates its types differently. */
  readonly layerType?: "full_attention" | "sliding_attention";
  /** The base frequency when none is named. @default 10000 */
  readonly defaultTheta?: number;
  /** Whether YaRN rounds the ends of its ramp where the model does not say. @default true */
  readonly defaultTruncate?: boolean;
  /** The base of sliding layers when they have none of their own. @default that of the others */
  readonly slidingTheta?: number;
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
    const settings = config.isGguf
      ? ggufSettings(config, layers)
      : huggingFaceSettings(config, layers);
    const theta = settings.rope_theta ?? layers.defaultTheta ?? 10000;
    return new RopeParameters(config, { ...settings, rope_theta: theta });
  }

  /** The kind of scaling; "default" where none is named. */
  get type(): string {
    const type = this.#settings.rope_type ?? this.#settings.type ?? "default";
    if (typeof type !== "string") throw this.invalid("rope_type", type, "text");
    return type;
  }

  has(name: string): boolean {
    return this.#settings[name] !== undefined && this.#settings[name] !== null;
  }

  /** A finite number. @throws {ForgeError} `bad_model` for anything else, as the others here. */
  number(name: string, fallback?: number): number {
    const value = this.#settings[name] ?? fallback;
    if (typeof value !== "number" || !Number.isFinite(value)) {
      throw this.invalid(name, value, "a finite number");
    }
    return value;
  }

  positive(name: string, fallback?: number): number {
    const value = this.number(name, fallback);
    if (value <= 0) throw this.invalid(name, value, "a number above 0");
    return value;
  }

  boolean(name: string, fallback: boolean): boolean {
    const value = this.#settings[name] ?? fallback;
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

function huggingFaceSettings(config: ConfigReader, layers: RopeLayers): Settings {
  const { layerType } = layers;
  const parameters = config.object("rope_parameters");
  const original = config.raw(["original_max_position_embeddings", undefined]);
  if (parameters !== undefined && Object.values(parameters).some(isJsonObject)) {
    if (layerType === undefined) {
      throw config.invalid(["rope_parameters", undefined], parameters, "one set for all layers");
    }
    const own = parameters[layerType];
    if (isJsonObject(own)) return { rope_theta: config.raw(THETA), ...own };
    throw config.invalid([`rope_parameters.${layerType}`, undefined], own, "an object");
  }
  const settings: Settings = {
    rope_theta: config.raw(THETA),
    ...(parameters ?? config.object("rope_scaling")),
    // Phi-3 has it beside the scaling, not within.
    ...(typeof original === "number" ? { original_max_position_embeddings: original } : {}),
  };
  if (layerType !== "sliding_attention") return settings;
  // Written as one set, the parameters scale full attention alone.
  const local = config.raw(["rope_local_base_freq", undefined]) ?? layers.slidingTheta;
  return { rope_theta: local ?? settings.rope_theta };
}

const THETA: Key = ["rope_theta", undefined];

function ggufSettings(config: ConfigReader, layers: RopeLayers): Settings {
  const settings: Record<string, unknown> = {};
  for (const [name, key] of Object.entries(GGUF_KEYS)) {
    settings[name] = config.raw([undefined, key]);
  }
  if (layers.layerType === "sliding_attention") {
    const local = config.raw([undefined, "rope.freq_base_swa"]) ?? layers.slidingTheta;
    return { rope_theta: local ?? settings.rope_theta };
  }
  // YaRN's factor has a key of its own; the other is LongRoPE's.
  settings.attention_factor = config.raw([undefined, "rope.scaling.yarn_attn_factor"]) ??
    settings.attention_factor;
  // Where attention's scale takes it up, sines and cosines keep their length.
  settings.mscale = settings.mscale_all_dim;
  // A factor without a type is of the days when there was but one type.
  if (settings.rope_type === undefined && settings.factor !== undefined) {
    settings.rope_type = "linear";
  }
  return settings;
}

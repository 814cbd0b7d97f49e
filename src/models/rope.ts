/**
 * Rotary position embedding: the frequencies of every kind of scaling in use, from both spellings of
 * config.json (`rope_theta` + `rope_scaling`, or `rope_parameters`) and from GGUF.
 */
import type { RopeLayout } from "../backend.ts";
import { isJsonObject, type JsonObject } from "../formats/json.ts";
import type { ConfigReader, Key } from "./config_reader.ts";

/** How a layer rotates its queries and keys. */
export interface Rope {
  /** Radians a position, one for each rotated pair. */
  readonly invFreq: Float32Array<ArrayBuffer>;
  /** Multiplies cosines and sines (YaRN and LongRoPE temper attention this way). */
  readonly scale: number;
  readonly layout: RopeLayout;
}

export interface RopeRequest {
  readonly headDim: number;
  /** The longest sequence the model was made for. */
  readonly contextLength: number;
  /** The longest sequence it is opened for. */
  readonly sessionLength: number;
  readonly layout: RopeLayout;
  /** The base frequency when the config names none. @default 10000 */
  readonly defaultTheta?: number;
  /** Which entry of `rope_parameters` to read when it has one for each type of layer. */
  readonly layerType?: "full_attention" | "sliding_attention";
  /** Divisors of the frequencies, from a GGUF file's `rope_freqs` or `rope_factors` tensor. */
  readonly factors?: Float32Array | undefined;
}

const GGUF_SCALING_KEYS = {
  rope_type: "rope.scaling.type",
  factor: "rope.scaling.factor",
  original_max_position_embeddings: "rope.scaling.original_context_length",
  attention_factor: "rope.scaling.attn_factor",
  beta_fast: "rope.scaling.yarn_beta_fast",
  beta_slow: "rope.scaling.yarn_beta_slow",
} as const;

/**
 * The rotation that a config asks for.
 *
 * @throws {ForgeError} `bad_model` for a parameter that is missing or out of range, or a scaling type
 * forge does not know.
 */
export function readRope(config: ConfigReader, request: RopeRequest): Rope {
  const settings = config.isGguf
    ? ggufSettings(config, request.layerType)
    : huggingFaceSettings(config, request.layerType);
  const p = new Parameters(config, settings);
  const theta = p.positive("rope_theta", request.defaultTheta ?? 10000);
  const rotaryDim = rotaryDimension(config, p, request.headDim);
  const plain = Float64Array.from(
    { length: rotaryDim / 2 },
    (_, i) => theta ** (-2 * i / rotaryDim),
  );
  const { invFreq, scale } = scaleFrequencies(plain, theta, p, request);
  const { factors } = request;
  if (factors !== undefined && factors.length !== invFreq.length) {
    throw config.invalid(
      ["rope_scaling", "rope.scaling"],
      factors.length,
      "as many RoPE factors as pairs",
    );
  }
  const divided = factors === undefined ? invFreq : invFreq.map((f, i) => f / factors[i]!);
  return { invFreq: Float32Array.from(divided), scale, layout: request.layout };
}

function rotaryDimension(config: ConfigReader, p: Parameters, headDim: number): number {
  const key: Key = ["partial_rotary_factor", "rope.dimension_count"];
  const rotary = config.isGguf
    ? config.int(key, { fallback: headDim })
    : Math.trunc(headDim * p.positive("partial_rotary_factor", config.positive(key, 1)));
  if (rotary < 2 || rotary % 2 !== 0 || rotary > headDim) {
    throw config.invalid(key, rotary, `an even rotary dimension of at most ${headDim}`);
  }
  return rotary;
}

function scaleFrequencies(
  plain: Float64Array,
  theta: number,
  p: Parameters,
  request: RopeRequest,
): { invFreq: Float64Array; scale: number } {
  const type = p.type();
  switch (type) {
    case "default":
    case "none":
    case "mrope":
      return { invFreq: plain, scale: 1 };
    case "linear": {
      const factor = p.positive("factor");
      return { invFreq: plain.map((f) => f / factor), scale: 1 };
    }
    case "llama3":
      return { invFreq: plain.map(llama3(p)), scale: 1 };
    case "yarn":
      return yarn(plain, theta, p, request.contextLength);
    case "longrope":
    case "su":
      return longRope(plain, p, request);
    default:
      throw p.invalid(
        "rope_type",
        type,
        "default, linear, llama3, yarn or longrope (dynamic NTK scaling is not supported)",
      );
  }
}

/**
 * Llama 3.1's scaling: long wavelengths are divided by `factor`, short ones kept, those between
 * interpolated. Source: the Llama 3.1 model release, `apply_scaling`.
 */
function llama3(p: Parameters): (frequency: number) => number {
  const factor = p.positive("factor");
  const low = p.positive("low_freq_factor", 1);
  const high = p.positive("high_freq_factor", 4);
  const original = p.positive("original_max_position_embeddings");
  return (frequency) => {
    const turns = original * frequency / (2 * Math.PI);
    if (turns < low) return frequency / factor;
    if (turns > high) return frequency;
    const smooth = (turns - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
  };
}

/**
 * YaRN: frequencies that turn often within the original context are kept, slow ones divided by
 * `factor`, with a linear ramp between. Source: B. Peng et al., "YaRN: Efficient Context Window
 * Extension of Large Language Models", arXiv:2309.00071.
 */
function yarn(plain: Float64Array, theta: number, p: Parameters, contextLength: number) {
  const dim = 2 * plain.length;
  const factor = p.positive("factor");
  const original = p.positive("original_max_position_embeddings", contextLength);
  const dimensionOf = (rotations: number) =>
    dim * Math.log(original / (rotations * 2 * Math.PI)) / (2 * Math.log(theta));
  const round = p.boolean("truncate", true);
  const begin = dimensionOf(p.positive("beta_fast", 32));
  const end = dimensionOf(p.positive("beta_slow", 1));
  const low = Math.max(round ? Math.floor(begin) : begin, 0);
  const high = Math.min(round ? Math.ceil(end) : end, dim - 1);
  const width = Math.max(high - low, 0.001);
  const invFreq = plain.map((f, i) => {
    const ramp = Math.min(Math.max((i - low) / width, 0), 1);
    return f / factor * ramp + f * (1 - ramp);
  });
  const temper = (mscale: number) => factor <= 1 ? 1 : 0.1 * mscale * Math.log(factor) + 1;
  const mscale = p.number("mscale", 0);
  const mscaleAll = p.number("mscale_all_dim", 0);
  const derived = mscale !== 0 && mscaleAll !== 0 ? temper(mscale) / temper(mscaleAll) : temper(1);
  return { invFreq, scale: p.positive("attention_factor", derived) };
}

/**
 * LongRoPE: a divisor for each frequency, one list for contexts within the original length and one
 * beyond. The choice is made once, for the context the model is opened with. Source: Y. Ding et al.,
 * "LongRoPE", arXiv:2402.13753, and the Phi-3 configuration.
 */
function longRope(plain: Float64Array, p: Parameters, request: RopeRequest) {
  const original = p.positive("original_max_position_embeddings", request.contextLength);
  const isLong = request.sessionLength > original;
  const ratio = p.positive("factor", request.contextLength / original);
  const derived = ratio <= 1 ? 1 : Math.sqrt(1 + Math.log(ratio) / Math.log(original));
  const scale = p.positive("attention_factor", derived);
  // In GGUF the divisors are tensors, which the caller passes as `factors`.
  if (request.factors !== undefined) return { invFreq: plain, scale };
  const factors = p.numbers(isLong ? "long_factor" : "short_factor", plain.length);
  return { invFreq: plain.map((f, i) => f / factors[i]!), scale };
}

function huggingFaceSettings(config: ConfigReader, layerType?: string): JsonObject {
  const parameters = config.object("rope_parameters");
  if (parameters !== undefined) {
    const nested = layerType === undefined ? undefined : parameters[layerType];
    return isJsonObject(nested) ? nested : parameters;
  }
  // The older spelling has one base for each type of layer, and scales only full attention.
  const isLocal = layerType === "sliding_attention" &&
    config.raw(["rope_local_base_freq", undefined]) !== undefined;
  const scaling = isLocal ? undefined : config.object("rope_scaling");
  const original = config.raw(["original_max_position_embeddings", undefined]);
  return {
    rope_theta: config.number(
      [isLocal ? "rope_local_base_freq" : "rope_theta", undefined],
      10000,
    ),
    ...(typeof original === "number" ? { original_max_position_embeddings: original } : {}),
    ...scaling,
  };
}

function ggufSettings(config: ConfigReader, layerType?: string): JsonObject {
  const local = config.raw([undefined, "rope.freq_base_swa"]);
  if (layerType === "sliding_attention") {
    // A file with windows but no base of their own: Gemma 3 has 10000, the others share one.
    const base = local ?? (config.modelType === "gemma3" ? 10000 : undefined);
    if (base !== undefined) return { rope_theta: Number(base) };
  }
  const settings: JsonObject = {};
  const theta = config.raw([undefined, "rope.freq_base"]);
  if (theta !== undefined) settings.rope_theta = Number(theta);
  for (const [name, key] of Object.entries(GGUF_SCALING_KEYS)) {
    const value = config.raw([undefined, key]);
    if (typeof value === "string" || typeof value === "number") settings[name] = value;
  }
  // Phi-3 files carry LongRoPE's tensors and factor without naming the type.
  if (settings.rope_type === undefined && settings.attention_factor !== undefined) {
    settings.rope_type = "longrope";
  }
  return settings;
}

/** Typed access to one set of RoPE parameters. */
class Parameters {
  constructor(readonly config: ConfigReader, readonly settings: JsonObject) {}

  type(): string {
    const type = this.settings.rope_type ?? this.settings.type ?? "default";
    if (typeof type !== "string") throw this.invalid("rope_type", type, "text");
    return type;
  }

  number(name: string, fallback?: number): number {
    const value = this.settings[name] ?? fallback;
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
    const value = this.settings[name] ?? fallback;
    if (typeof value !== "boolean") throw this.invalid(name, value, "true or false");
    return value;
  }

  numbers(name: string, length: number): number[] {
    const value = this.settings[name];
    const isList = Array.isArray(value) && value.length === length &&
      value.every((entry) => typeof entry === "number" && entry > 0);
    if (!isList) throw this.invalid(name, value, `a list of ${length} numbers above 0`);
    return value as number[];
  }

  invalid(name: string, value: unknown, expected: string) {
    return this.config.invalid([`rope: ${name}`, `rope: ${name}`], value, expected);
  }
}

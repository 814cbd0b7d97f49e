/** Rotary position embedding: frequencies for every kind of scaling in use. */
import type { RopeLayout } from "../../backend.ts";
import type { ConfigReader, Key } from "../config/config_reader.ts";
import type { GgufSink } from "../gguf_rules.ts";
import { type RopeLayers, RopeParameters } from "../config/rope_parameters.ts";

/** Rotation of queries and keys. */
export interface Rope {
  /** Radians per position, one value for each rotated pair. */
  readonly invFreq: Float32Array<ArrayBuffer>;
  /** Factor of cosines and sines, by which YaRN and LongRoPE scale attention. */
  readonly scale: number;
  readonly layout: RopeLayout;
}

/** Divisors of the frequencies, from tensors of a GGUF file. */
interface RopeDivisors {
  /** `rope_freqs`, for any length. */
  readonly always?: Float32Array | undefined;
  /** `rope_factors_short` and `rope_factors_long`; LongRoPE uses one of them. */
  readonly short?: Float32Array | undefined;
  readonly long?: Float32Array | undefined;
}

/** Parameters of {@linkcode readRope}. */
export interface RopeRequest extends RopeLayers {
  readonly headDim: number;
  /** The longest sequence the model was made for. */
  readonly contextLength: number;
  /** The longest sequence to prepare for. */
  readonly sessionLength: number;
  readonly layout: RopeLayout;
  readonly divisors?: RopeDivisors;
}

/** Kinds of scaling, by their names in config.json. */
const KINDS = ["default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional"];

/** Frequencies before rounding, and the factor of cosines and sines. */
interface Scaled {
  readonly invFreq: Float64Array;
  readonly scale: number;
}

/**
 * Reads the rotation of a config.
 *
 * @throws {ForgeError} `bad_model` for a parameter that is missing or out of range; `unsupported`
 * for an unknown kind of scaling
 */
export function readRope(config: ConfigReader, request: RopeRequest): Rope {
  const p = RopeParameters.read(config, request);
  const theta = p.positive("rope_theta");
  const rotaryDim = rotaryDimension(config, p, request);
  const plain = Float64Array.from(
    { length: rotaryDim / 2 },
    (_, i) => theta ** (-2 * i / rotaryDim),
  );
  const { invFreq, scale } = scaleFrequencies(plain, theta, p, request);
  if (config.sink !== undefined) {
    noteRope(config.sink, p, request, { plain, invFreq, scale, theta });
  }
  const { always } = request.divisors ?? {};
  const rounded = Float32Array.from(always === undefined ? invFreq : divide(invFreq, always, p));
  if (!rounded.every((frequency) => Number.isFinite(frequency) && frequency >= 0)) {
    throw p.invalid("rope_theta", theta, "a base whose frequencies, once scaled, are finite");
  }
  return { invFreq: rounded, scale, layout: request.layout };
}

/** Passes the settings of a folder's rotation on as GGUF files have them. */
function noteRope(
  sink: GgufSink,
  p: RopeParameters,
  request: RopeRequest,
  { plain, invFreq, scale, theta }: Scaled & {
    readonly plain: Float64Array;
    readonly theta: number;
  },
): void {
  if (request.layerType === "sliding_attention") {
    sink.setting("rope.freq_base_swa", ["f32", theta]);
    return;
  }
  // Without scaling, the base alone has the effect of dynamic scaling with an alpha.
  const base = p.type === "dynamic" && plain.length > 1
    ? (plain[0]! / invFreq[1]!) ** plain.length
    : theta;
  sink.setting("rope.freq_base", ["f32", base]);
  sink.setting("rope.dimension_count", ["u32", 2 * plain.length]);
  const original = () => p.positive("original_max_position_embeddings", request.contextLength);
  switch (p.type) {
    case "linear":
      sink.setting("rope.scaling.type", ["string", "linear"]);
      sink.setting("rope.scaling.factor", ["f32", p.positive("factor")]);
      break;
    case "yarn":
      sink.setting("rope.scaling.type", ["string", "yarn"]);
      sink.setting("rope.scaling.factor", [
        "f32",
        p.derived("factor", request.contextLength / original()),
      ]);
      sink.setting("rope.scaling.original_context_length", ["u32", original()]);
      sink.setting("rope.scaling.yarn_beta_fast", ["f32", p.derived("beta_fast", 32)]);
      if (p.has("mscale_all_dim")) {
        sink.setting("rope.scaling.yarn_log_multiplier", ["f32", p.number("mscale_all_dim")]);
      }
      sink.setting("rope.scaling.yarn_beta_slow", ["f32", p.derived("beta_slow", 1)]);
      break;
    case "llama3":
      sink.numbers("rope_freqs.weight", Float32Array.from(plain, (f, i) => f / invFreq[i]!));
      break;
    case "longrope":
    case "su":
      sink.setting("rope.scaling.attn_factor", ["f32", scale]);
      sink.setting("rope.scaling.original_context_length", ["u32", original()]);
      for (const length of ["long", "short"]) {
        const factors = p.positives(`${length}_factor`, plain.length);
        sink.numbers(`rope_factors_${length}.weight`, Float32Array.from(factors));
      }
  }
}

function rotaryDimension(
  config: ConfigReader,
  p: RopeParameters,
  { headDim, layerType }: RopeRequest,
): number {
  // The table has all pairs; pairs that are not rotated have a frequency of 0.
  if (p.type === "proportional") return headDim;
  const sliding = "rope.dimension_count_swa";
  const hasOwn = layerType === "sliding_attention" &&
    config.raw([undefined, sliding]) !== undefined;
  const key: Key = ["partial_rotary_factor", hasOwn ? sliding : "rope.dimension_count"];
  const rotary = config.isGguf
    ? config.int(key, { fallback: headDim })
    : Math.trunc(headDim * rotaryFactor(config, p));
  if (rotary < 2 || rotary % 2 !== 0 || rotary > headDim) {
    throw config.invalid(key, rotary, `an even rotary dimension of at most ${headDim}`);
  }
  return rotary;
}

/**
 * Returns the fraction of a head that is rotated. Families that always rotate whole heads have no
 * default for it: transformers then ignores the setting, or fails if frequencies are scaled.
 */
function rotaryFactor(config: ConfigReader, p: RopeParameters): number {
  const factor = p.positive("partial_rotary_factor", 1);
  if (config.default("partial_rotary_factor") !== undefined) return factor;
  if (factor === 1 || p.type === "default") return 1;
  throw p.invalid("partial_rotary_factor", factor, "1 in this architecture");
}

function scaleFrequencies(
  plain: Float64Array,
  theta: number,
  p: RopeParameters,
  request: RopeRequest,
): Scaled {
  // Phi-3's GGUF files hold LongRoPE's tensors without naming the type.
  const type = request.divisors?.long === undefined ? p.type : "longrope";
  switch (type) {
    case "default":
    case "none":
      return { invFreq: plain, scale: 1 };
    case "dynamic":
      return { invFreq: dynamic(plain, theta, p), scale: 1 };
    case "linear": {
      const factor = p.positive("factor");
      return { invFreq: plain.map((f) => f / factor), scale: 1 };
    }
    case "proportional":
      return { invFreq: proportional(plain, p), scale: 1 };
    case "llama3":
      return { invFreq: plain.map(llama3(p)), scale: 1 };
    case "yarn":
      return yarn(plain, theta, p, request);
    case "longrope":
    case "su":
      return longRope(plain, p, request);
    default:
      throw p.unsupported(KINDS);
  }
}

/**
 * Dynamic NTK scaling. It changes only positions beyond the model's context length, which no
 * session reaches, unless an `alpha` changes the base for all positions (Hunyuan).
 */
function dynamic(plain: Float64Array, theta: number, p: RopeParameters): Float64Array {
  if (!p.has("alpha")) {
    p.positive("factor");
    return plain;
  }
  const dim = 2 * plain.length;
  const base = theta * p.positive("alpha") ** (dim / (dim - 2));
  return plain.map((_, i) => base ** (-2 * i / dim));
}

/**
 * Rotates only the first pairs of a head, with the frequencies they have when all pairs rotate
 * (Gemma 4).
 */
function proportional(plain: Float64Array, p: RopeParameters): Float64Array {
  const factor = p.positive("factor", 1);
  const nRotated = Math.trunc(p.positive("partial_rotary_factor", 1) * plain.length);
  return plain.map((frequency, i) => i < nRotated ? frequency / factor : 0);
}

/**
 * Scales as Llama 3.1: long wavelengths are divided by `factor`, short ones kept, those between
 * interpolated. Source: the Llama 3.1 model release, `apply_scaling`.
 */
function llama3(p: RopeParameters): (frequency: number) => number {
  const factor = p.positive("factor");
  const low = p.positive("low_freq_factor");
  const high = p.positive("high_freq_factor");
  // Both factors are equal in Llama 4, which interpolates nothing.
  if (high < low) {
    throw p.invalid("high_freq_factor", high, `at least low_freq_factor, ${low}`);
  }
  const original = p.positive("original_max_position_embeddings");
  return (frequency) => {
    const turns = original * frequency / (2 * Math.PI);
    if (turns < low) return frequency / factor;
    if (turns > high || low === high) return frequency;
    const smooth = (turns - low) / (high - low);
    return (1 - smooth) * frequency / factor + smooth * frequency;
  };
}

/**
 * Scales by YaRN: frequencies with many turns within the original context are kept, those with few
 * divided by `factor`, with a linear ramp between. B. Peng et al., "YaRN: Efficient Context Window
 * Extension of Large Language Models", arXiv:2309.00071.
 */
function yarn(
  plain: Float64Array,
  theta: number,
  p: RopeParameters,
  request: RopeRequest,
): Scaled {
  const { contextLength } = request;
  const dim = 2 * plain.length;
  const original = p.positive("original_max_position_embeddings", contextLength);
  p.assertWritten("factor");
  const factor = p.derived("factor", contextLength / original);
  const dimensionOf = (rotations: number) =>
    dim * Math.log(original / (rotations * 2 * Math.PI)) / (2 * Math.log(theta));
  const round = p.boolean("truncate", true);
  const begin = dimensionOf(p.derived("beta_fast", 32));
  const end = dimensionOf(p.derived("beta_slow", 1));
  const low = Math.max(round ? Math.floor(begin) : begin, 0);
  const high = Math.min(round ? Math.ceil(end) : end, dim - 1);
  const width = Math.max(high - low, 0.001);
  const invFreq = plain.map((f, i) => {
    const ramp = Math.min(Math.max((i - low) / width, 0), 1);
    return f / factor * ramp + f * (1 - ramp);
  });
  const temper = (mscale: number) => factor <= 1 ? 1 : 0.1 * mscale * Math.log(factor) + 1;
  const mscale = p.has("mscale") ? p.number("mscale") : 0;
  const mscaleAll = p.has("mscale_all_dim") ? p.number("mscale_all_dim") : 0;
  const derived = mscale !== 0 && mscaleAll !== 0 ? temper(mscale) / temper(mscaleAll) : temper(1);
  return { invFreq, scale: p.derived("attention_factor", derived) };
}

/**
 * Scales by LongRoPE: a divisor for each frequency, from one list for contexts up to the original
 * length and another for longer ones. The list is chosen once, by the context that the model is
 * opened with. Y. Ding et al., "LongRoPE", arXiv:2402.13753, and the Phi-3 configuration.
 */
function longRope(plain: Float64Array, p: RopeParameters, request: RopeRequest): Scaled {
  const { contextLength, sessionLength, divisors } = request;
  const original = p.positive("original_max_position_embeddings", contextLength);
  const isLong = sessionLength > original;
  const ratio = p.derived("factor", contextLength / original);
  const derived = ratio <= 1 ? 1 : Math.sqrt(1 + Math.log(ratio) / Math.log(original));
  // Phi-MoE has a factor for each list.
  const scale = p.derived(
    isLong ? "long_mscale" : "short_mscale",
    p.derived("attention_factor", derived),
  );
  const list = (isLong ? divisors?.long : divisors?.short) ??
    p.positives(isLong ? "long_factor" : "short_factor", plain.length);
  return { invFreq: divide(plain, list, p), scale };
}

function divide(
  frequencies: Float64Array,
  divisors: ArrayLike<number>,
  p: RopeParameters,
): Float64Array {
  if (divisors.length !== frequencies.length) {
    throw p.invalid("divisors", divisors.length, `as many as pairs, ${frequencies.length}`);
  }
  return frequencies.map((frequency, i) => frequency / divisors[i]!);
}

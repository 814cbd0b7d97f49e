import type { SamplingParams } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { quote, show } from "../../formats/quote.ts";
import type { TokenList } from "../token_list.ts";

/** Options of sampling. Every member has a default: the model's own, if its files name one. */
export interface SamplingOptions {
  /** 0 always takes the most probable token. @default 0.8 */
  readonly temperature?: number | undefined;
  /** Keep the k most probable tokens; 0 keeps all. @default 40 */
  readonly topK?: number | undefined;
  /**
   * Keep the most probable tokens that together reach this probability; 1 keeps all. @default 0.95
   */
  readonly topP?: number | undefined;
  /**
   * Keep tokens at least this probable relative to the most probable one; 0 keeps all. @default
   * 0.05
   */
  readonly minP?: number | undefined;
  /** Divides positive logits of recent tokens, multiplies negative ones; 1 is off. @default 1 */
  readonly repeatPenalty?: number | undefined;
  /** Number of recent tokens that penalties cover; 0 for none, -1 for all. @default 64 */
  readonly repeatLastN?: number | undefined;
  /** Subtracted from the logits of recent tokens. @default 0 */
  readonly presencePenalty?: number | undefined;
  /** Subtracted from the logits of recent tokens, once for each occurrence. @default 0 */
  readonly frequencyPenalty?: number | undefined;
  /**
   * DRY: subtracts `dryMultiplier * dryBase ** (length - dryAllowedLength)` from the logit of a
   * token that would continue a repetition of `length` tokens; 0 is off. @default 0
   */
  readonly dryMultiplier?: number | undefined;
  /** Growth of DRY's penalty with each repeated token. @default 1.75 */
  readonly dryBase?: number | undefined;
  /** Length of the shortest repetition that DRY penalises. @default 2 */
  readonly dryAllowedLength?: number | undefined;
  /** Number of recent tokens in which DRY finds repetitions; 0 for none, -1 for all. @default -1 */
  readonly dryPenaltyLastN?: number | undefined;
  /** Keep tokens within n standard deviations below the largest logit; 0 keeps all. @default 0 */
  readonly topNSigma?: number | undefined;
  /**
   * Keep the tokens whose surprise is nearest to the expected one, until they together exceed this
   * probability; 1 keeps all. @default 1
   */
  readonly typicalP?: number | undefined;
  /**
   * XTC: probability with which all tokens that reach `xtcThreshold` are dropped, except the least
   * probable of them; 0 is off. @default 0
   */
  readonly xtcProbability?: number | undefined;
  /** Least probability of the tokens that XTC may drop; above 0.5 it drops none. @default 0.1 */
  readonly xtcThreshold?: number | undefined;
  /**
   * Dynamic temperature: varies the temperature by this much in both directions, from certain to
   * uncertain choices; 0 is off. @default 0
   */
  readonly dynatempRange?: number | undefined;
  /** Exponent of the entropy that sets the dynamic temperature. @default 1 */
  readonly dynatempExponent?: number | undefined;
  /** 2 keeps the surprise of the text near a target, in place of truncation. @default 0 */
  readonly mirostat?: number | undefined;
  /** Target surprise of Mirostat, in bits. @default 5 */
  readonly mirostatTau?: number | undefined;
  /** Share of the error by which Mirostat corrects itself after each token. @default 0.1 */
  readonly mirostatEta?: number | undefined;
  /** Key of the random numbers, 0 to 2^53 - 1. @default a random one */
  readonly seed?: number | undefined;
}

/** Sampling options with every default filled in. */
export type ResolvedSampling = {
  readonly [K in keyof Required<SamplingOptions>]: number;
};

/** Name of a sampling option other than the seed. */
export type Setting = Exclude<keyof SamplingOptions, "seed">;

/** Valid values of a sampling option. */
interface SamplingRange {
  readonly min: number;
  readonly max: number;
  /** Distance of neighbouring values; 0 for any number. */
  readonly step: 0 | 1 | 2;
}

/** Sampling option other than the seed. */
interface SamplingSetting extends SamplingRange {
  /** Default if the model's files set none. */
  readonly fallback: number;
  /** Keys in requests. A second one is llama.cpp's and Ollama's. */
  readonly fields: readonly string[];
  /** Key in generation_config.json. */
  readonly configKey?: string;
  /** Key in GGUF metadata, after `general.sampling.`. */
  readonly ggufKey?: string;
}

/** Every sampling option but the seed: its default, its range, and its names. */
const SETTINGS: Readonly<Record<Setting, SamplingSetting>> = {
  temperature: {
    fallback: 0.8,
    min: 0,
    max: 100,
    step: 0,
    fields: ["temperature"],
    configKey: "temperature",
    ggufKey: "temp",
  },
  topK: {
    fallback: 40,
    min: 0,
    max: 2 ** 30,
    step: 1,
    fields: ["top_k"],
    configKey: "top_k",
    ggufKey: "top_k",
  },
  topP: {
    fallback: 0.95,
    min: 0,
    max: 1,
    step: 0,
    fields: ["top_p"],
    configKey: "top_p",
    ggufKey: "top_p",
  },
  minP: {
    fallback: 0.05,
    min: 0,
    max: 1,
    step: 0,
    fields: ["min_p"],
    configKey: "min_p",
    ggufKey: "min_p",
  },
  repeatPenalty: {
    fallback: 1,
    min: 0.01,
    max: 100,
    step: 0,
    fields: ["repetition_penalty", "repeat_penalty"],
    configKey: "repetition_penalty",
    ggufKey: "penalty_repeat",
  },
  repeatLastN: {
    fallback: 64,
    min: -1,
    max: 2 ** 30,
    step: 1,
    fields: ["repeat_last_n"],
    ggufKey: "penalty_last_n",
  },
  presencePenalty: { fallback: 0, min: -100, max: 100, step: 0, fields: ["presence_penalty"] },
  frequencyPenalty: { fallback: 0, min: -100, max: 100, step: 0, fields: ["frequency_penalty"] },
  dryMultiplier: { fallback: 0, min: 0, max: 100, step: 0, fields: ["dry_multiplier"] },
  dryBase: { fallback: 1.75, min: 1, max: 100, step: 0, fields: ["dry_base"] },
  dryAllowedLength: {
    fallback: 2,
    min: 0,
    max: 2 ** 30,
    step: 1,
    fields: ["dry_allowed_length"],
  },
  dryPenaltyLastN: {
    fallback: -1,
    min: -1,
    max: 2 ** 30,
    step: 1,
    fields: ["dry_penalty_last_n"],
  },
  // llama.cpp's default is -1, which is off, too.
  topNSigma: { fallback: 0, min: -1, max: 100, step: 0, fields: ["top_n_sigma"] },
  typicalP: {
    fallback: 1,
    min: 0,
    max: 1,
    step: 0,
    fields: ["typical_p"],
    configKey: "typical_p",
  },
  xtcProbability: {
    fallback: 0,
    min: 0,
    max: 1,
    step: 0,
    fields: ["xtc_probability"],
    ggufKey: "xtc_probability",
  },
  xtcThreshold: {
    fallback: 0.1,
    min: 0,
    max: 1,
    step: 0,
    fields: ["xtc_threshold"],
    ggufKey: "xtc_threshold",
  },
  dynatempRange: { fallback: 0, min: 0, max: 100, step: 0, fields: ["dynatemp_range"] },
  dynatempExponent: { fallback: 1, min: 0, max: 100, step: 0, fields: ["dynatemp_exponent"] },
  mirostat: {
    fallback: 0,
    min: 0,
    max: 2,
    step: 2,
    fields: ["mirostat"],
    ggufKey: "mirostat",
  },
  mirostatTau: {
    fallback: 5,
    min: 0,
    max: 100,
    step: 0,
    fields: ["mirostat_tau"],
    ggufKey: "mirostat_tau",
  },
  mirostatEta: {
    fallback: 0.1,
    min: 0,
    max: 1,
    step: 0,
    fields: ["mirostat_eta"],
    ggufKey: "mirostat_eta",
  },
};

/** Valid values of each sampling option. */
export const SAMPLING_RANGES: Readonly<Record<keyof SamplingOptions, SamplingRange>> = {
  ...SETTINGS,
  seed: { min: 0, max: Number.MAX_SAFE_INTEGER, step: 1 },
};

/** Names of sampling options by their keys in requests. */
export const SAMPLING_FIELDS: Readonly<Record<string, keyof SamplingOptions>> = {
  ...Object.fromEntries(
    (Object.keys(SETTINGS) as Setting[]).flatMap((name) =>
      SETTINGS[name].fields.map((field) => [field, name] as const)
    ),
  ),
  seed: "seed",
};

/** Returns the key in requests that llama.cpp and Ollama use. */
export function commonField(name: Setting): string {
  return SETTINGS[name].fields.at(-1)!;
}

/** True for a valid value. */
export function isInRange({ min, max, step }: SamplingRange, value: unknown): value is number {
  return typeof value === "number" && value >= min && value <= max &&
    (step === 0 || value % step === 0);
}

/** Describes the valid values of a range: "a number from 0 to 1". */
export function describeRange({ min, max, step }: SamplingRange): string {
  if (step === 2) return `${min} or ${max}`;
  return `${step === 0 ? "a number" : "a whole number"} from ${min} to ${max}`;
}

/** Defaults of options that neither the caller nor the model's files set. */
export const SAMPLING_DEFAULTS = Object.fromEntries(
  Object.entries(SETTINGS).map(([name, { fallback }]) => [name, fallback]),
) as Readonly<Record<Setting, number>>;

/**
 * Returns the sampling defaults of a model: valid values of its generation_config.json or GGUF
 * metadata, else forge's own.
 */
export function modelDefaults(checkpoint: Checkpoint): Record<Setting, number> {
  const { generationConfig, metadata } = checkpoint;
  const defaults = { ...SAMPLING_DEFAULTS };
  for (const setting of Object.keys(SETTINGS) as Setting[]) {
    const { configKey, ggufKey } = SETTINGS[setting];
    const value = (ggufKey && metadata?.get(`general.sampling.${ggufKey}`)) ??
      (configKey && generationConfig?.[configKey]);
    if (isInRange(SETTINGS[setting], value)) defaults[setting] = value;
  }
  if (generationConfig?.do_sample === false) defaults.temperature = 0;
  return defaults;
}

/**
 * Checks sampling options and fills in defaults.
 *
 * @throws {ForgeError} `usage` for a value out of range, naming the option and its range.
 */
export function resolveSampling(
  options: SamplingOptions,
  defaults: Record<Setting, number>,
): ResolvedSampling {
  const resolved: Record<string, number> = { seed: randomSeed(), ...defaults };
  for (const name of Object.keys(SAMPLING_RANGES) as (keyof SamplingOptions)[]) {
    const value = options[name];
    if (value === undefined) continue;
    checkSetting(name, value);
    resolved[name] = value;
  }
  return resolved as ResolvedSampling;
}

/** @throws {ForgeError} `usage` for a value out of range, naming the option and its range */
export function checkSetting(name: keyof SamplingOptions, value: unknown): void {
  const range = SAMPLING_RANGES[name];
  if (isInRange(range, value)) return;
  throw new ForgeError("usage", `${name} is ${show(value)}; valid is ${describeRange(range)}`);
}

function randomSeed(): number {
  return crypto.getRandomValues(new Uint32Array(1))[0]!;
}

/**
 * Returns the parameters of the device's sampler. If the host samples, the device takes the best
 * token, whose log-probability gives those of the others.
 */
export function samplingParams(
  sampling: ResolvedSampling,
  bias: ReadonlyMap<number, number> | undefined,
): SamplingParams {
  const seed = BigInt(sampling.seed);
  return isSampledOnHost(sampling)
    ? { ...sampling, bias, seed, temperature: 0 }
    : { ...sampling, bias, seed };
}

/** True if an option is on that no device implements: then tokens are chosen on the host. */
export function isSampledOnHost(s: ResolvedSampling): boolean {
  if (hasDry(s)) return true;
  return !isGreedy(s) &&
    (s.mirostat !== 0 || s.topNSigma > 0 || s.typicalP < 1 || hasXtc(s) || s.dynatempRange > 0);
}

/** True if the best token is always taken. */
export function isGreedy(s: ResolvedSampling): boolean {
  return s.temperature === 0 && (s.dynatempRange === 0 || s.mirostat !== 0);
}

/** True if DRY may change logits. */
export function hasDry(s: ResolvedSampling): boolean {
  return s.dryMultiplier > 0 && s.dryPenaltyLastN !== 0;
}

/** True if XTC may drop tokens: of several candidates, only one can exceed a half. */
export function hasXtc(s: ResolvedSampling): boolean {
  return s.xtcProbability > 0 && s.xtcThreshold <= 0.5;
}

/**
 * Checks logit biases and returns them by token id.
 *
 * @throws {ForgeError} `usage` for an unknown token id, or a bias that is neither finite nor
 * -Infinity
 */
export function resolveLogitBias(
  bias: Readonly<Record<string, number>> | undefined,
  vocabSize: number,
): ReadonlyMap<number, number> | undefined {
  if (bias === undefined) return undefined;
  const entries = Object.entries(bias).map(([key, value]): [number, number] => {
    const id = Number(key);
    if (!/^\d+$/.test(key) || id >= vocabSize) {
      throw new ForgeError(
        "usage",
        `the logit biases name token ${quote(key)}; valid ids are 0 to ${vocabSize - 1}`,
      );
    }
    // The device computes with 32 bits, where larger numbers are infinite.
    if (
      typeof value !== "number" || !(value === -Infinity || Number.isFinite(Math.fround(value)))
    ) {
      throw new ForgeError(
        "usage",
        `the logit bias of token ${id} is ${
          show(value)
        }; valid is a number, or -Infinity to ban the token`,
      );
    }
    return [id, value];
  });
  return entries.length === 0 ? undefined : new Map(entries);
}

const NO_TOKENS = new Int32Array(0);

/**
 * Returns the tokens that penalties cover, the last `repeatLastN` of a sequence: one list after the
 * sequence's tokens, then one after each draft token.
 */
export function penaltyHistories(
  tokens: TokenList,
  draft: ArrayLike<number>,
  sampling: ResolvedSampling,
): readonly Int32Array[] {
  const count = draft.length + 1;
  const most = historySize(sampling);
  if (most === 0) return Array.from({ length: count }, () => NO_TOKENS);
  const recent = tokens.view(Math.max(0, tokens.length - most));
  if (draft.length === 0) return [recent];
  const all = new Int32Array(recent.length + draft.length);
  all.set(recent);
  all.set(draft, recent.length);
  return Array.from({ length: count }, (_, i) => {
    const end = recent.length + i;
    return all.subarray(Math.max(0, end - most), end);
  });
}

/** Returns the number of tokens that penalties cover. */
export function historySize(sampling: ResolvedSampling): number {
  if (!hasPenalties(sampling)) return 0;
  return sampling.repeatLastN < 0 ? 2 ** 31 - 1 : sampling.repeatLastN;
}

/** True if penalties may change logits. */
export function hasPenalties(s: ResolvedSampling): boolean {
  return s.repeatLastN !== 0 &&
    (s.repeatPenalty !== 1 || s.presencePenalty !== 0 || s.frequencyPenalty !== 0);
}

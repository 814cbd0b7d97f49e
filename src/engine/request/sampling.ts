import { constraintName, type ConstraintOptions } from "../../constrain/spec.ts";
import type { SamplingParams } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { quote } from "../../formats/quote.ts";
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
  /** Key of the random numbers, 0 to 2^53 - 1. @default a random one */
  readonly seed?: number | undefined;
}

/** Sampling options with every default filled in. */
export type ResolvedSampling = {
  readonly [K in keyof Required<SamplingOptions>]: number;
};

type Setting = Exclude<keyof SamplingOptions, "seed">;

/** Valid values of a sampling option. */
interface SamplingRange {
  readonly min: number;
  readonly max: number;
  /** True if only whole numbers are valid. */
  readonly integer: boolean;
}

/** Sampling option other than the seed. */
interface SamplingSetting extends SamplingRange {
  /** Default if the model's files set none. */
  readonly fallback: number;
  /** Keys in generation_config.json and in GGUF metadata. */
  readonly modelKeys?: readonly [huggingFace: string, gguf: string];
}

/** Every sampling option but the seed: its default, its range, and its names in a model's files. */
const SETTINGS: Readonly<Record<Setting, SamplingSetting>> = {
  temperature: {
    fallback: 0.8,
    min: 0,
    max: 100,
    integer: false,
    modelKeys: ["temperature", "general.sampling.temp"],
  },
  topK: {
    fallback: 40,
    min: 0,
    max: 2 ** 30,
    integer: true,
    modelKeys: ["top_k", "general.sampling.top_k"],
  },
  topP: {
    fallback: 0.95,
    min: 0,
    max: 1,
    integer: false,
    modelKeys: ["top_p", "general.sampling.top_p"],
  },
  minP: {
    fallback: 0.05,
    min: 0,
    max: 1,
    integer: false,
    modelKeys: ["min_p", "general.sampling.min_p"],
  },
  repeatPenalty: {
    fallback: 1,
    min: 0.01,
    max: 100,
    integer: false,
    modelKeys: ["repetition_penalty", "general.sampling.penalty_repeat"],
  },
  repeatLastN: { fallback: 64, min: -1, max: 2 ** 30, integer: true },
  presencePenalty: { fallback: 0, min: -100, max: 100, integer: false },
  frequencyPenalty: { fallback: 0, min: -100, max: 100, integer: false },
};

/** Valid values of each sampling option. */
export const SAMPLING_RANGES: Readonly<Record<keyof SamplingOptions, SamplingRange>> = {
  ...SETTINGS,
  seed: { min: 0, max: Number.MAX_SAFE_INTEGER, integer: true },
};

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
    const [huggingFace, gguf] = SETTINGS[setting].modelKeys ?? [];
    if (huggingFace === undefined || gguf === undefined) continue;
    const value = metadata?.get(gguf) ?? generationConfig?.[huggingFace];
    if (isValid(setting, value)) defaults[setting] = value;
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
    if (!isValid(name, value)) {
      const { min, max, integer } = SAMPLING_RANGES[name];
      throw new ForgeError(
        "usage",
        `${name} is ${value}; valid is ${integer ? "a whole number" : "a number"} ` +
          `from ${min} to ${max}`,
      );
    }
    resolved[name] = value;
  }
  return resolved as ResolvedSampling;
}

function isValid(name: keyof SamplingOptions, value: unknown): value is number {
  const { min, max, integer } = SAMPLING_RANGES[name];
  return typeof value === "number" && value >= min && value <= max &&
    (!integer || Number.isInteger(value));
}

function randomSeed(): number {
  return crypto.getRandomValues(new Uint32Array(1))[0]!;
}

/** Returns the parameters of the device's sampler. */
export function samplingParams(
  sampling: ResolvedSampling,
  bias: ReadonlyMap<number, number> | undefined,
): SamplingParams {
  return { ...sampling, bias, seed: BigInt(sampling.seed) };
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
        `logitBias names token ${quote(key)}; valid ids are 0 to ${vocabSize - 1}`,
      );
    }
    // The device computes with 32 bits, where larger numbers are infinite.
    if (
      typeof value !== "number" || !(value === -Infinity || Number.isFinite(Math.fround(value)))
    ) {
      throw new ForgeError(
        "usage",
        `logitBias of token ${id} is ${value}; valid is a number, or -Infinity to ban the token`,
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

function hasPenalties(s: ResolvedSampling): boolean {
  return s.repeatLastN !== 0 &&
    (s.repeatPenalty !== 1 || s.presencePenalty !== 0 || s.frequencyPenalty !== 0);
}

/** Parts of the sampling chain other than the numbers. */
export interface ChainOptions extends ConstraintOptions {
  /** Added to the logits of single tokens, by token id. */
  readonly logitBias?: Readonly<Record<string, number>> | undefined;
  /** Custom constraint; only its presence matters here. */
  readonly constraint?: unknown;
}

/** Describes the sampling chain in the order in which it is applied. */
export function describeSampling(s: ResolvedSampling, options: ChainOptions = {}): string {
  const nBiased = Object.keys(options.logitBias ?? {}).length;
  const penalties = [
    s.repeatPenalty !== 1 && `repeat_penalty ${s.repeatPenalty}`,
    s.presencePenalty !== 0 && `presence_penalty ${s.presencePenalty}`,
    s.frequencyPenalty !== 0 && `frequency_penalty ${s.frequencyPenalty}`,
  ];
  const window = s.repeatLastN < 0 ? "all" : s.repeatLastN;
  const draw = [
    `temperature ${s.temperature}`,
    s.topK !== 0 && `top_k ${s.topK}`,
    s.topP !== 1 && `top_p ${s.topP}`,
    s.minP !== 0 && `min_p ${s.minP}`,
    `draw with seed ${s.seed}`,
  ];
  return chain([
    hasPenalties(s) && `${chain(penalties)} over ${window} tokens`,
    nBiased > 0 && `logit_bias of ${nBiased} token${nBiased === 1 ? "" : "s"}`,
    constraintName(options) ?? (options.constraint !== undefined && "constraint"),
    s.temperature === 0 ? "greedy" : chain(draw),
  ]);
}

/** Joins the steps that are on. */
function chain(steps: readonly (string | false)[]): string {
  return steps.filter((step) => step !== false).join(" → ");
}

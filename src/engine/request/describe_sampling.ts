import { constraintName, type ConstraintOptions, constraintSpec } from "../../constrain/spec.ts";
import { checkOptions } from "../../formats/arguments.ts";
import type { Constraint } from "./constraint.ts";
import { GENERATE_OPTIONS, SAMPLING_OPTIONS } from "./options.ts";
import {
  checkSetting,
  hasDry,
  hasPenalties,
  hasXtc,
  isGreedy,
  isSampledOnHost,
  type ResolvedSampling,
  type SamplingOptions,
} from "./sampling.ts";

/** Parts of the sampling chain other than the numbers. */
export interface ChainOptions extends ConstraintOptions {
  /** Added to the logits of single tokens, by token id. */
  readonly logitBias?: Readonly<Record<string, number>> | undefined;
  /** Custom constraint; only its presence matters here. */
  readonly constraint?: Constraint | undefined;
}

/**
 * Describes the sampling chain in the order in which it is applied.
 *
 * @param options those of the generation; options outside the chain are ignored
 * @throws {ForgeError} `usage` for an unknown option, a missing value or one out of range
 */
export function describeSampling(s: ResolvedSampling, options: ChainOptions = {}): string {
  checkOptions("the sampling", s, SAMPLING_OPTIONS);
  for (const name of Object.keys(SAMPLING_OPTIONS) as (keyof SamplingOptions)[]) {
    checkSetting(name, s[name]);
  }
  checkOptions("describeSampling", options, GENERATE_OPTIONS);
  // Rejects several constraints and values of the wrong type.
  constraintSpec(options);
  const nBiased = Object.keys(options.logitBias ?? {}).length;
  const penalties = [
    s.repeatPenalty !== 1 && `repeat_penalty ${s.repeatPenalty}`,
    s.presencePenalty !== 0 && `presence_penalty ${s.presencePenalty}`,
    s.frequencyPenalty !== 0 && `frequency_penalty ${s.frequencyPenalty}`,
  ];
  return chain([
    hasPenalties(s) && `${chain(penalties)} over ${describeWindow(s.repeatLastN)}`,
    hasDry(s) &&
    `dry_multiplier ${s.dryMultiplier} with dry_base ${s.dryBase} over ` +
      describeWindow(s.dryPenaltyLastN),
    nBiased > 0 && `logit_bias of ${nBiased} token${nBiased === 1 ? "" : "s"}`,
    constraintName(options) ?? (options.constraint !== undefined && "constraint"),
    describeChoice(s),
  ]);
}

function describeWindow(lastN: number): string {
  return `${lastN < 0 ? "all" : lastN} tokens`;
}

/** Describes the part of the chain after penalties, biases and constraints. */
function describeChoice(s: ResolvedSampling): string {
  if (isGreedy(s)) return isSampledOnHost(s) ? "greedy on the host" : "greedy";
  const temperature = `temperature ${s.temperature}`;
  if (!isSampledOnHost(s)) {
    return chain([temperature, ...describeTruncation(s), `draw with seed ${s.seed}`]);
  }
  const draw = `draw with seed ${s.seed} on the host`;
  if (s.mirostat !== 0) {
    return chain([
      temperature,
      `mirostat ${s.mirostat} with mirostat_tau ${s.mirostatTau}, mirostat_eta ${s.mirostatEta}`,
      draw,
    ]);
  }
  return chain([
    ...describeTruncation(s),
    hasXtc(s) && `xtc_probability ${s.xtcProbability} with xtc_threshold ${s.xtcThreshold}`,
    s.dynatempRange > 0 ? `${temperature} ± ${s.dynatempRange}` : temperature,
    draw,
  ]);
}

function describeTruncation(s: ResolvedSampling): (string | false)[] {
  return [
    s.topNSigma > 0 && `top_n_sigma ${s.topNSigma}`,
    s.topK !== 0 && `top_k ${s.topK}`,
    s.typicalP < 1 && `typical_p ${s.typicalP}`,
    s.topP !== 1 && `top_p ${s.topP}`,
    s.minP !== 0 && `min_p ${s.minP}`,
  ];
}

/** Joins the steps that are on. */
function chain(steps: readonly (string | false)[]): string {
  return steps.filter((step) => step !== false).join(" → ");
}

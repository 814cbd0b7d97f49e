/** Options of generation: limits, sampling, constraints. */
import { MAX_COMPLETIONS, MAX_COUNT } from "../../../engine/limits.ts";
import {
  commonField,
  SAMPLING_DEFAULTS,
  SAMPLING_RANGES,
  type Setting,
} from "../../../engine/request/sampling.ts";
import type { NumberSpec, OptionSpec } from "../types.ts";

const SAMPLING = "Sampling, in the order it is applied";
const ON_HOST = "Sampling on the processor, which moves the temperature to the end";
const CONSTRAINT = "Constraints, one at most";

/** Returns the option of a sampling setting. Its flag is the key of requests, with hyphens. */
function sampled(name: Setting, help: string, group: NumberSpec["group"] = SAMPLING): NumberSpec {
  const { min, max, step } = SAMPLING_RANGES[name];
  return {
    flags: `--${commonField(name).replaceAll("_", "-")}`,
    kind: step === 0 ? "number" : "integer",
    metavar: step === 0 ? "X" : "N",
    min,
    max,
    step,
    group,
    help,
    defaultText: `${SAMPLING_DEFAULTS[name]}`,
  };
}

/** Every sampling setting, in the order it is applied. */
const SAMPLING_OPTIONS = {
  repeatPenalty: sampled(
    "repeatPenalty",
    "make recent tokens less likely by this factor; 1 is off",
  ),
  presencePenalty: sampled("presencePenalty", "subtract from the logits of recent tokens"),
  frequencyPenalty: sampled(
    "frequencyPenalty",
    "subtract from the logits of recent tokens, for each occurrence",
  ),
  repeatLastN: sampled("repeatLastN", "number of tokens that count as recent; -1 for all"),
  temperature: {
    ...sampled("temperature", "temperature; 0 always takes the likeliest token"),
    flags: "--temp",
  },
  topK: sampled("topK", "keep the N likeliest tokens; 0 is off"),
  topP: sampled(
    "topP",
    "keep the likeliest tokens that together have this probability; 1 is off",
  ),
  minP: sampled(
    "minP",
    "keep tokens with at least this share of the probability of the likeliest; 0 is off",
  ),
  dryMultiplier: sampled(
    "dryMultiplier",
    "DRY: penalty on tokens that continue a repetition; 0 is off",
    ON_HOST,
  ),
  dryBase: sampled("dryBase", "growth of the penalty with each repeated token", ON_HOST),
  dryAllowedLength: sampled(
    "dryAllowedLength",
    "number of tokens that may be repeated without penalty",
    ON_HOST,
  ),
  dryPenaltyLastN: sampled(
    "dryPenaltyLastN",
    "number of recent tokens searched for repetitions; -1 for all",
    ON_HOST,
  ),
  topNSigma: sampled(
    "topNSigma",
    "keep tokens within X standard deviations below the largest logit, before top-k; 0 is off",
    ON_HOST,
  ),
  typicalP: sampled(
    "typicalP",
    "keep the tokens of the most typical surprise with this probability, before top-p; 1 is off",
    ON_HOST,
  ),
  xtcProbability: sampled(
    "xtcProbability",
    "XTC: how often to drop the likeliest tokens, after min-p; 0 is off",
    ON_HOST,
  ),
  xtcThreshold: sampled(
    "xtcThreshold",
    "drop tokens of at least this probability, but the last of them",
    ON_HOST,
  ),
  dynatempRange: sampled(
    "dynatempRange",
    "vary the temperature by this much with the entropy; 0 is off",
    ON_HOST,
  ),
  dynatempExponent: sampled("dynatempExponent", "exponent of the entropy", ON_HOST),
  mirostat: sampled(
    "mirostat",
    "2: keep the surprise near a target, instead of all options from top-k to XTC; 0 is off",
    ON_HOST,
  ),
  mirostatTau: sampled("mirostatTau", "target surprise in bits", ON_HOST),
  mirostatEta: sampled("mirostatEta", "learning rate of Mirostat", ON_HOST),
} as const satisfies Record<Setting, OptionSpec>;

/** Names of all sampling settings. */
export const SAMPLING_NAMES = Object.keys(SAMPLING_OPTIONS) as Setting[];

export const GENERATION_OPTIONS = {
  thinking: {
    flags: "--thinking",
    kind: "choice_or_integer",
    metavar: "N",
    choices: ["on", "off"],
    min: 1,
    max: MAX_COUNT,
    group: "Generation",
    help: "thoughts before the answer: on, off, or on with at most N tokens",
    defaultText: "as the model does",
  },
  maxTokens: {
    flags: "-n, --max-tokens",
    kind: "integer",
    metavar: "N",
    min: 0,
    max: MAX_COUNT,
    group: "Generation",
    help: "limit of generated tokens",
    defaultText: "up to the end of the context",
  },
  stop: {
    flags: "--stop",
    kind: "list",
    metavar: "TEXT",
    group: "Generation",
    help: "stop before this text; may be given more than once",
  },
  seed: {
    flags: "-s, --seed",
    kind: "integer",
    metavar: "N",
    min: SAMPLING_RANGES.seed.min,
    max: SAMPLING_RANGES.seed.max,
    group: "Generation",
    help: "seed of the random choices, to repeat them",
    defaultText: "random",
  },
  completions: {
    flags: "--completions",
    kind: "integer",
    metavar: "N",
    min: 1,
    max: MAX_COMPLETIONS,
    group: "Generation",
    help: "with --json or --batch: number of answers to each prompt",
    defaultText: "1",
  },
  ...SAMPLING_OPTIONS,
  logitBias: {
    flags: "--logit-bias",
    kind: "biases",
    metavar: "TOKEN=X",
    group: SAMPLING,
    help:
      "add X to the logit of a token, named by id or text; -inf bans it; may be given more than once",
  },
  drySequenceBreakers: {
    flags: "--dry-sequence-breaker",
    kind: "list",
    metavar: "TEXT",
    group: ON_HOST,
    help:
      "text across which DRY finds no repetition; may be given more than once; none for no such text",
    defaultText: `newline : " *`,
  },
  jsonSchema: {
    flags: "--json-schema",
    kind: "text",
    metavar: "FILE|JSON",
    group: CONSTRAINT,
    help: "JSON that conforms to a schema; keywords that cannot be enforced are errors",
  },
  jsonObject: {
    flags: "--json-object",
    kind: "flag",
    group: CONSTRAINT,
    help: "any JSON object",
  },
  regex: {
    flags: "--regex",
    kind: "text",
    metavar: "RE",
    group: CONSTRAINT,
    help: "text that matches as a whole (JavaScript syntax with the u flag)",
  },
  grammar: {
    flags: "--grammar",
    kind: "text",
    metavar: "FILE|EBNF",
    group: CONSTRAINT,
    help: "text derived from the rule root of an EBNF grammar",
  },
} as const satisfies Record<string, OptionSpec>;

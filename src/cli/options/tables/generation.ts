/** How answers are generated: their ends, the sampling chain, constraints. A part of the table in `options.ts`. */
import { MAX_COMPLETIONS, MAX_COUNT } from "../../../engine/limits.ts";
import { SAMPLING_DEFAULTS, SAMPLING_RANGES } from "../../../engine/request/sampling.ts";
import type { OptionSpec } from "../types.ts";

const SAMPLING = "Sampling, in the order it is applied";
const CONSTRAINT = "Constraints, one at most";

/** The type of a sampling option and its valid values. */
function sampled(name: keyof typeof SAMPLING_RANGES) {
  const { min, max, integer } = SAMPLING_RANGES[name];
  return { kind: integer ? "integer" : "number", metavar: integer ? "N" : "X", min, max } as const;
}

export const GENERATION_OPTIONS = {
  maxTokens: {
    flags: "-n, --max-tokens",
    kind: "integer",
    metavar: "N",
    min: 0,
    max: MAX_COUNT,
    group: "Generation",
    help: "the most tokens to generate",
    otherwise: "until the answer or the context ends",
  },
  stop: {
    flags: "--stop",
    kind: "list",
    metavar: "TEXT",
    group: "Generation",
    help: "end before this text; may be given more than once",
  },
  seed: {
    ...sampled("seed"),
    flags: "-s, --seed",
    group: "Generation",
    help: "makes the random choices repeatable",
    otherwise: "a random one",
  },
  completions: {
    flags: "--completions",
    kind: "integer",
    metavar: "N",
    min: 1,
    max: MAX_COMPLETIONS,
    group: "Generation",
    help: "with --json or --batch: how many answers to each prompt",
    otherwise: "1",
  },
  repeatPenalty: {
    ...sampled("repeatPenalty"),
    flags: "--repeat-penalty",
    group: SAMPLING,
    help: "make recent tokens less likely, by a factor; 1 is off",
    otherwise: `${SAMPLING_DEFAULTS.repeatPenalty}`,
  },
  presencePenalty: {
    ...sampled("presencePenalty"),
    flags: "--presence-penalty",
    group: SAMPLING,
    help: "taken from the logits of recent tokens",
    otherwise: `${SAMPLING_DEFAULTS.presencePenalty}`,
  },
  frequencyPenalty: {
    ...sampled("frequencyPenalty"),
    flags: "--frequency-penalty",
    group: SAMPLING,
    help: "the same, once for each time a token occurred",
    otherwise: `${SAMPLING_DEFAULTS.frequencyPenalty}`,
  },
  repeatLastN: {
    ...sampled("repeatLastN"),
    flags: "--repeat-last-n",
    group: SAMPLING,
    help: "how many tokens count as recent; -1 for all",
    otherwise: `${SAMPLING_DEFAULTS.repeatLastN}`,
  },
  logitBias: {
    flags: "--logit-bias",
    kind: "biases",
    metavar: "TOKEN=X",
    group: SAMPLING,
    help:
      "add X to the logit of a token, named by id or text; -inf bans it; may be given more than once",
  },
  temp: {
    ...sampled("temperature"),
    flags: "--temp",
    group: SAMPLING,
    help: "temperature; 0 always takes the likeliest token",
    otherwise: `${SAMPLING_DEFAULTS.temperature}`,
  },
  topK: {
    ...sampled("topK"),
    flags: "--top-k",
    group: SAMPLING,
    help: "keep the N likeliest tokens; 0 is off",
    otherwise: `${SAMPLING_DEFAULTS.topK}`,
  },
  topP: {
    ...sampled("topP"),
    flags: "--top-p",
    group: SAMPLING,
    help: "keep the likeliest that together reach this probability; 1 is off",
    otherwise: `${SAMPLING_DEFAULTS.topP}`,
  },
  minP: {
    ...sampled("minP"),
    flags: "--min-p",
    group: SAMPLING,
    help: "keep those this probable relative to the likeliest; 0 is off",
    otherwise: `${SAMPLING_DEFAULTS.minP}`,
  },
  jsonSchema: {
    flags: "--json-schema",
    kind: "text",
    metavar: "FILE|JSON",
    group: CONSTRAINT,
    help: "JSON that is valid for this schema; what cannot be enforced is refused",
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
    help: "text that matches as a whole, in JavaScript's syntax with its u flag",
  },
  grammar: {
    flags: "--grammar",
    kind: "text",
    metavar: "FILE|EBNF",
    group: CONSTRAINT,
    help: "text that the rule root of a grammar in EBNF describes",
  },
} as const satisfies Record<string, OptionSpec>;

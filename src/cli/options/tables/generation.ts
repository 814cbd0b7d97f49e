/** Options of generation: limits, sampling, constraints. */
import { MAX_COMPLETIONS, MAX_COUNT } from "../../../engine/limits.ts";
import { SAMPLING_DEFAULTS, SAMPLING_RANGES } from "../../../engine/request/sampling.ts";
import type { OptionSpec } from "../types.ts";

const SAMPLING = "Sampling, in the order it is applied";
const CONSTRAINT = "Constraints, one at most";

/** Returns the kind and the range of a sampling option. */
function sampled(name: keyof typeof SAMPLING_RANGES) {
  const { min, max, integer } = SAMPLING_RANGES[name];
  return { kind: integer ? "integer" : "number", metavar: integer ? "N" : "X", min, max } as const;
}

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
    ...sampled("seed"),
    flags: "-s, --seed",
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
  repeatPenalty: {
    ...sampled("repeatPenalty"),
    flags: "--repeat-penalty",
    group: SAMPLING,
    help: "make recent tokens less likely by this factor; 1 is off",
    defaultText: `${SAMPLING_DEFAULTS.repeatPenalty}`,
  },
  presencePenalty: {
    ...sampled("presencePenalty"),
    flags: "--presence-penalty",
    group: SAMPLING,
    help: "subtract from the logits of recent tokens",
    defaultText: `${SAMPLING_DEFAULTS.presencePenalty}`,
  },
  frequencyPenalty: {
    ...sampled("frequencyPenalty"),
    flags: "--frequency-penalty",
    group: SAMPLING,
    help: "subtract from the logits of recent tokens, for each occurrence",
    defaultText: `${SAMPLING_DEFAULTS.frequencyPenalty}`,
  },
  repeatLastN: {
    ...sampled("repeatLastN"),
    flags: "--repeat-last-n",
    group: SAMPLING,
    help: "number of tokens that count as recent; -1 for all",
    defaultText: `${SAMPLING_DEFAULTS.repeatLastN}`,
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
    defaultText: `${SAMPLING_DEFAULTS.temperature}`,
  },
  topK: {
    ...sampled("topK"),
    flags: "--top-k",
    group: SAMPLING,
    help: "keep the N likeliest tokens; 0 is off",
    defaultText: `${SAMPLING_DEFAULTS.topK}`,
  },
  topP: {
    ...sampled("topP"),
    flags: "--top-p",
    group: SAMPLING,
    help: "keep the likeliest tokens that together have this probability; 1 is off",
    defaultText: `${SAMPLING_DEFAULTS.topP}`,
  },
  minP: {
    ...sampled("minP"),
    flags: "--min-p",
    group: SAMPLING,
    help: "keep tokens with at least this share of the probability of the likeliest; 0 is off",
    defaultText: `${SAMPLING_DEFAULTS.minP}`,
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

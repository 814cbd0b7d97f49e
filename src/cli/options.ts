/** Every option of the command line. Parsing, validation, help and completions come from here. */
import { SAMPLING_DEFAULTS, SAMPLING_RANGES } from "../engine/sampling.ts";
import { BENCH_OPTIONS } from "./bench_options.ts";
import { MAX_COUNT, type OptionSpec, type OptionValue } from "./option_types.ts";
import { SERVER_OPTIONS } from "./serve_options.ts";

const SAMPLING = "Sampling, in the order it is applied";
const CONSTRAINT = "Constraints, one at most";

/** The type of a sampling option and its valid values. */
function sampled(name: keyof typeof SAMPLING_RANGES) {
  const { min, max, integer } = SAMPLING_RANGES[name];
  return { kind: integer ? "integer" : "number", metavar: integer ? "N" : "X", min, max } as const;
}

export const OPTIONS = {
  prompt: {
    flags: "-p, --prompt",
    kind: "text",
    metavar: "TEXT",
    group: "Prompt",
    help: "the prompt itself",
  },
  file: {
    flags: "-f, --file",
    kind: "text",
    metavar: "FILE",
    group: "Prompt",
    help: "read it from a file (UTF-8; one newline at the end is dropped)",
  },
  system: {
    flags: "--system",
    kind: "text",
    metavar: "TEXT",
    group: "Prompt",
    help: "system message before the prompt, where the model has a chat template",
  },
  chatSystem: {
    flags: "--system",
    kind: "text",
    metavar: "TEXT",
    group: "Prompt",
    help: "system message of the conversation",
  },
  raw: {
    flags: "--raw",
    kind: "flag",
    group: "Prompt",
    help: "continue the prompt as it is, without the chat template",
  },
  batch: {
    flags: "--batch",
    kind: "text",
    metavar: "FILE",
    group: "Batch",
    help: "answer every line of a JSONL file; - reads stdin",
  },
  output: {
    flags: "-o, --output",
    kind: "text",
    metavar: "FILE",
    group: "Batch",
    help: "write the answers here",
    otherwise: "stdout",
  },
  batchParallel: {
    flags: "--parallel",
    kind: "integer",
    metavar: "N",
    min: 1,
    max: 256,
    group: "Batch",
    help: "sequences computed at a time",
    otherwise: "32",
  },
  ordered: {
    flags: "--ordered",
    kind: "flag",
    group: "Batch",
    help: "answers in the order of the lines, not as they finish",
  },
  resume: {
    flags: "--resume",
    kind: "flag",
    group: "Batch",
    help: "go on with the file of -o: skip what is answered there, try errors again",
  },
  overwrite: {
    flags: "--overwrite",
    kind: "flag",
    group: "Batch",
    help: "replace the file of -o",
  },
  shard: {
    flags: "--shard",
    kind: "text",
    metavar: "I/N",
    group: "Batch",
    help:
      "answer only every N-th line from the I-th (1 to N); auto, auto/N as a cluster's job says",
  },
  model: {
    flags: "-m, --model",
    kind: "text",
    metavar: "MODEL",
    group: "Model",
    help: "model folder, .gguf file or hub name (see forge pull --help)",
    otherwise: "the bundled demo model",
  },
  device: {
    flags: "--device",
    kind: "text",
    metavar: "NAME",
    group: "Model",
    help: "auto, cpu, cpu:VARIANT (such as cpu:avx2), cuda, cuda:N, metal or reference",
    otherwise: "auto",
  },
  threads: {
    flags: "-t, --threads",
    kind: "integer",
    metavar: "N",
    min: 1,
    max: 1024,
    group: "Model",
    help: "threads that compute",
    otherwise: "one a core",
  },
  promptCache: {
    flags: "--prompt-cache",
    kind: "text",
    metavar: "FILE",
    group: "Prompt",
    help: "keep what is computed of the prompt, or take it up if the file is there",
  },
  ctx: {
    flags: "-c, --ctx",
    kind: "integer",
    metavar: "N",
    min: 1,
    max: MAX_COUNT,
    group: "Model",
    help: "tokens of prompt and answer together",
    otherwise: "the model's, at most 32768",
  },
  windowSize: {
    flags: "-c, --ctx",
    kind: "integer",
    metavar: "N",
    min: 2,
    max: MAX_COUNT,
    group: "Model",
    help: "tokens of a window",
    otherwise: "the model's, at most 512",
  },
  kvType: {
    flags: "--kv-type",
    kind: "choice",
    metavar: "TYPE",
    choices: ["F16", "F32", "Q8_0"],
    group: "Model",
    help: "type of the KV cache",
    otherwise: "F16; with reference F32",
  },
  attention: {
    flags: "--attention",
    kind: "choice",
    metavar: "KERNELS",
    choices: ["auto", "flash", "tiled", "naive"],
    group: "Model",
    help: "kernels that compute attention on a CUDA device",
    otherwise: "auto: the fastest that fit",
  },
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
  ...BENCH_OPTIONS,
  ...SERVER_OPTIONS,
  text: {
    flags: "-f, --file",
    kind: "text",
    metavar: "FILE",
    group: "Input",
    help: "read the text from a file (UTF-8, every byte of it)",
  },
  special: {
    flags: "--no-special",
    kind: "flag",
    group: "Input",
    help: "add no BOS or EOS token, and take tokens such as </s> in the text as plain text",
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
    metavar: "FILE",
    group: CONSTRAINT,
    help: "text that the rule root of a grammar in EBNF describes",
  },
  json: {
    flags: "--json",
    kind: "flag",
    group: "Output",
    help: "print one JSON object, on one line",
  },
  completions: {
    flags: "--completions",
    kind: "integer",
    metavar: "N",
    min: 1,
    max: 128,
    group: "Generation",
    help: "with --json or --batch: how many answers to each prompt",
    otherwise: "1",
  },
  logprobs: {
    flags: "--logprobs",
    kind: "integer",
    metavar: "N",
    min: 0,
    max: 20,
    group: "Output",
    help: "with --json: log-probabilities, and the N likeliest tokens at each place",
  },
  ids: {
    flags: "--ids",
    kind: "flag",
    group: "Output",
    help: "print the ids alone, on one line",
  },
  tensors: {
    flags: "--tensors",
    kind: "flag",
    group: "Output",
    help: "list every tensor instead of a summary of them",
  },
  template: {
    flags: "--template",
    kind: "flag",
    group: "Output",
    help: "print the chat template and nothing else",
  },
  verbose: {
    flags: "--verbose",
    kind: "flag",
    group: "Other",
    help: "details on stderr, the causes of errors among them",
  },
} as const satisfies Record<string, OptionSpec>;

/** The name of an option in code. */
export type OptionName = keyof typeof OPTIONS;

/** The values of some options. */
export type Options<K extends OptionName> = {
  readonly [N in K]: OptionValue<(typeof OPTIONS)[N]>;
};

/** Options of the output. */
import { MAX_LOGPROBS } from "../../../engine/limits.ts";
import type { OptionSpec } from "../types.ts";

export const OUTPUT_OPTIONS = {
  json: {
    flags: "--json",
    kind: "flag",
    group: "Output",
    help: "print one JSON object, on one line",
  },
  logprobs: {
    flags: "--logprobs",
    kind: "integer",
    metavar: "N",
    min: 0,
    max: MAX_LOGPROBS,
    group: "Output",
    help: "with --json: log-probabilities of each token and of the N likeliest",
  },
  colour: {
    flags: "--colour",
    kind: "flag",
    group: "Output",
    help: "colour each token by its probability: green is likely, red is not",
  },
  profile: {
    flags: "--profile",
    kind: "optional",
    metavar: "FILE",
    group: "Output",
    help:
      "print to stderr where the time of each step went; with =FILE, also write every operation " +
      "as a trace that Perfetto and Chrome open",
  },
  ids: {
    flags: "--ids",
    kind: "flag",
    group: "Output",
    help: "print only the ids, on one line",
  },
  tensors: {
    flags: "--tensors",
    kind: "flag",
    group: "Output",
    help: "list every tensor instead of a summary",
  },
  template: {
    flags: "--template",
    kind: "flag",
    group: "Output",
    help: "print only the chat template",
  },
  verbose: {
    flags: "--verbose",
    kind: "flag",
    group: "Other",
    help: "print details to stderr, including the causes of errors",
  },
} as const satisfies Record<string, OptionSpec>;

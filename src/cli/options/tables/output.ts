/** What is printed, and how. A part of the table in `options.ts`. */
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

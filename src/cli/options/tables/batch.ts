/** The options of `forge run` for files of prompts. A part of the table in `options.ts`. */
import { DEFAULT_PARALLEL, MAX_PARALLEL } from "../../../engine/limits.ts";
import type { OptionSpec } from "../types.ts";

export const BATCH_OPTIONS = {
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
    max: MAX_PARALLEL,
    group: "Batch",
    help: "sequences computed at a time",
    otherwise: `${DEFAULT_PARALLEL}`,
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
} as const satisfies Record<string, OptionSpec>;

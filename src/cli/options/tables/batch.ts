/** Options of `forge run --batch`. */
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
    help: "write the answers to this file",
    defaultText: "stdout",
  },
  batchParallel: {
    flags: "--parallel",
    kind: "integer",
    metavar: "N",
    min: 1,
    max: MAX_PARALLEL,
    group: "Batch",
    help: "sequences computed at a time",
    defaultText: `${DEFAULT_PARALLEL}`,
  },
  ordered: {
    flags: "--ordered",
    kind: "flag",
    group: "Batch",
    help: "write answers in the order of the lines, not as they finish",
  },
  resume: {
    flags: "--resume",
    kind: "flag",
    group: "Batch",
    help: "continue the file of -o: skip answered lines, retry failed ones",
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
      "answer only part I of N (every N-th line); auto in a Slurm array job, auto/N in Kubernetes",
  },
} as const satisfies Record<string, OptionSpec>;

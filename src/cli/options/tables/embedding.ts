/** How texts become vectors. A part of the table in `options.ts`. */
import { POOLINGS } from "../../../engine/embedding/pooling.ts";
import { MAX_COUNT } from "../../../engine/limits.ts";
import type { OptionSpec } from "../types.ts";

export const EMBEDDING_OPTIONS = {
  lines: {
    flags: "--lines",
    kind: "text",
    metavar: "FILE",
    group: "Input",
    help: "embed every line of a file that is not blank; - reads stdin",
  },
  wholeText: {
    flags: "-f, --file",
    kind: "text",
    metavar: "FILE",
    group: "Input",
    help: "read the text from a file (UTF-8; one newline at the end is dropped)",
  },
  pooling: {
    flags: "--pooling",
    kind: "choice",
    metavar: "WAY",
    choices: POOLINGS,
    group: "Embedding",
    help: "the vector is the last token's state, the mean of all, or the first one's (cls)",
    otherwise: "what the model's files say, else last",
  },
  dimensions: {
    flags: "--dimensions",
    kind: "integer",
    metavar: "N",
    min: 1,
    max: MAX_COUNT,
    group: "Embedding",
    help: "keep the first N numbers, of models that were trained for it",
    otherwise: "all",
  },
  normalize: {
    flags: "--normalize",
    kind: "choice",
    metavar: "YES",
    choices: ["yes", "no"],
    group: "Embedding",
    help: "whether vectors are made one long",
    otherwise: "what the model's files say, else yes",
  },
  embeddingOutput: {
    flags: "-o, --output",
    kind: "choice",
    metavar: "FORMAT",
    choices: ["jsonl", "json"],
    group: "Output",
    help: "an object a line, or an array of them",
    otherwise: "jsonl",
  },
} as const satisfies Record<string, OptionSpec>;

/** Options of embeddings and of reranking. */
import { POOLINGS } from "../../../engine/embedding/pooling.ts";
import { MAX_COUNT } from "../../../engine/limits.ts";
import type { OptionSpec } from "../types.ts";

export const EMBEDDING_OPTIONS = {
  lines: {
    flags: "--lines",
    kind: "text",
    metavar: "FILE",
    group: "Input",
    help: "embed every non-blank line of a file; - reads stdin",
  },
  documents: {
    flags: "--lines",
    kind: "text",
    metavar: "FILE",
    group: "Input",
    help: "the documents: every non-blank line of a file; - reads stdin",
  },
  instruction: {
    flags: "--instruction",
    kind: "text",
    metavar: "TEXT",
    group: "Embedding",
    help: "the task in words, for Qwen3-Reranker",
    defaultText: "that of its makers, for web search",
  },
  top: {
    flags: "--top",
    kind: "integer",
    metavar: "N",
    min: 1,
    max: MAX_COUNT,
    group: "Output",
    help: "print the best N documents only",
    defaultText: "all",
  },
  wholeText: {
    flags: "-f, --file",
    kind: "text",
    metavar: "FILE",
    group: "Input",
    help: "read the text from a file (UTF-8; a newline at the end is dropped)",
  },
  pooling: {
    flags: "--pooling",
    kind: "choice",
    metavar: "WAY",
    choices: POOLINGS,
    group: "Embedding",
    help: "use the state of the last token, the mean of all, or the state of the first (cls)",
    defaultText: "as the model's files define, or last",
  },
  dimensions: {
    flags: "--dimensions",
    kind: "integer",
    metavar: "N",
    min: 1,
    max: MAX_COUNT,
    group: "Embedding",
    help: "keep the first N numbers, for models trained for it",
    defaultText: "all",
  },
  normalize: {
    flags: "--normalize",
    kind: "choice",
    metavar: "YES",
    choices: ["yes", "no"],
    group: "Embedding",
    help: "scale vectors to length 1",
    defaultText: "as the model's files define, or yes",
  },
  embeddingOutput: {
    flags: "-o, --output",
    kind: "choice",
    metavar: "FORMAT",
    choices: ["jsonl", "json"],
    group: "Output",
    help: "print an object per line, or one array",
    defaultText: "jsonl",
  },
} as const satisfies Record<string, OptionSpec>;

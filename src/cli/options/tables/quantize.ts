/** Options of `forge quantize`. */
import { MIXES, type MixName } from "../../../formats/gguf/mixes.ts";
import type { OptionSpec } from "../types.ts";

export const QUANTIZE_OPTIONS = {
  quantizedType: {
    flags: "--type",
    kind: "choice",
    metavar: "TYPE",
    choices: Object.keys(MIXES) as MixName[],
    group: "Quantising",
    help: "types of the weights, by llama.cpp's names",
    defaultText: "Q4_K_M",
  },
  importance: {
    flags: "--imatrix",
    kind: "text",
    metavar: "FILE",
    group: "Quantising",
    help: "importances of the weights, by forge perplexity --imatrix or llama-imatrix",
  },
  importanceOutput: {
    flags: "--imatrix",
    kind: "text",
    metavar: "FILE",
    group: "Output",
    help: "write importances of the weights to this file, for forge quantize --imatrix",
  },
  replace: {
    flags: "--overwrite",
    kind: "flag",
    group: "Quantising",
    help: "replace an existing file",
  },
} as const satisfies Record<string, OptionSpec>;

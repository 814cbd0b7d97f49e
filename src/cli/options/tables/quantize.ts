/** Options of `forge quantize`. */
import { MIXES } from "../../../formats/gguf/mixes.ts";
import type { OptionSpec } from "../types.ts";

export const QUANTIZE_OPTIONS = {
  quantizedType: {
    flags: "--type",
    kind: "choice",
    metavar: "TYPE",
    choices: Object.keys(MIXES) as (keyof typeof MIXES)[],
    group: "Quantising",
    help: "types of the weights; the names are llama.cpp's",
    defaultText: "Q4_K_M",
  },
  replace: {
    flags: "--overwrite",
    kind: "flag",
    group: "Quantising",
    help: "replace an existing file",
  },
} as const satisfies Record<string, OptionSpec>;

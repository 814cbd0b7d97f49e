/** Table of all options. Parsing, validation, help and completions come from it. */
import { BATCH_OPTIONS } from "./tables/batch.ts";
import { BENCH_OPTIONS } from "./tables/bench.ts";
import { EMBEDDING_OPTIONS } from "./tables/embedding.ts";
import { GENERATION_OPTIONS } from "./tables/generation.ts";
import { MODEL_OPTIONS } from "./tables/model.ts";
import { OUTPUT_OPTIONS } from "./tables/output.ts";
import { PROMPT_OPTIONS } from "./tables/prompt.ts";
import { QUANTIZE_OPTIONS } from "./tables/quantize.ts";
import { SERVER_OPTIONS } from "./tables/server.ts";
import type { OptionValue } from "./types.ts";

export const OPTIONS = {
  ...PROMPT_OPTIONS,
  ...BATCH_OPTIONS,
  ...MODEL_OPTIONS,
  ...GENERATION_OPTIONS,
  ...EMBEDDING_OPTIONS,
  ...BENCH_OPTIONS,
  ...QUANTIZE_OPTIONS,
  ...SERVER_OPTIONS,
  ...OUTPUT_OPTIONS,
};

/** Name of an option in code. */
export type OptionName = keyof typeof OPTIONS;

/** Values of some options. */
export type Options<K extends OptionName> = {
  readonly [N in K]: OptionValue<(typeof OPTIONS)[N]>;
};

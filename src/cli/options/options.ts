/** Every option of the command line. Parsing, validation, help and completions come from here. */
import { BATCH_OPTIONS } from "./batch.ts";
import { BENCH_OPTIONS } from "./bench.ts";
import { EMBEDDING_OPTIONS } from "./embedding.ts";
import { GENERATION_OPTIONS } from "./generation.ts";
import { MODEL_OPTIONS } from "./model.ts";
import { OUTPUT_OPTIONS } from "./output.ts";
import { PROMPT_OPTIONS } from "./prompt.ts";
import { SERVER_OPTIONS } from "./server.ts";
import type { OptionValue } from "./types.ts";

export const OPTIONS = {
  ...PROMPT_OPTIONS,
  ...BATCH_OPTIONS,
  ...MODEL_OPTIONS,
  ...GENERATION_OPTIONS,
  ...EMBEDDING_OPTIONS,
  ...BENCH_OPTIONS,
  ...SERVER_OPTIONS,
  ...OUTPUT_OPTIONS,
};

/** The name of an option in code. */
export type OptionName = keyof typeof OPTIONS;

/** The values of some options. */
export type Options<K extends OptionName> = {
  readonly [N in K]: OptionValue<(typeof OPTIONS)[N]>;
};

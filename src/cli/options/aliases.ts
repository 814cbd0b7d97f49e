/** Commands of other programs, for the advice on an unknown command. */
export const COMMAND_ALIASES: Readonly<Record<string, string>> = {
  show: "inspect",
  info: "inspect",
  ls: "list",
  ps: "list",
  remove: "rm",
  delete: "rm",
  download: "pull",
  get: "pull",
  generate: "run",
  complete: "run",
  batch: "run --batch",
  version: "--version",
  server: "serve",
};

/**
 * Flags of llama.cpp that would parse as a short flag of forge with a value, such as `-n gl`, and
 * their names in forge. They are always mistakes, because the short flag takes a number.
 */
export const SHORT_FLAG_ALIASES: Readonly<Record<string, string>> = {
  "-ngl": "--device",
  "-np": "--parallel",
  "-tb": "--threads",
  "-ctk": "--kv-type",
  "-ctv": "--kv-type",
};

/** Flags of other programs, for the advice on an unknown flag. */
export const FLAG_ALIASES: Readonly<Record<string, string>> = {
  "--temperature": "--temp",
  "--repetition-penalty": "--repeat-penalty",
  "--typical": "--typical-p",
  "--top-nsigma": "--top-n-sigma",
  "--dynatemp-exp": "--dynatemp-exponent",
  "--mirostat-ent": "--mirostat-tau",
  "--mirostat-lr": "--mirostat-eta",
  "--n-predict": "--max-tokens",
  "--max-new-tokens": "--max-tokens",
  "--max-completion-tokens": "--max-tokens",
  "--predict": "--max-tokens",
  "--num-predict": "--max-tokens",
  "--num-ctx": "--ctx",
  "--ctx-size": "--ctx",
  "--context-length": "--ctx",
  "--max-model-len": "--ctx",
  "--reverse-prompt": "--stop",
  "--system-prompt": "--system",
  "--cache-type-k": "--kv-type",
  "--kv-cache-dtype": "--kv-type",
  "--np": "--parallel",
  "--max-num-seqs": "--parallel",
  "--input-file": "--batch",
  "--output-file": "--output",
  "--grammar-file": "--grammar",
  "--json-schema-file": "--json-schema",
  "--no-chat-template": "--raw",
  "--num-completions": "--completions",
  "--served-model-name": "--alias",
  "--allowed-origins": "--cors",
  "--speculative-config": "--speculate",
  "--draft-max": "--speculate",
  "--model-draft": "--draft-model",
  "--lora-scaled": "--lora",
  "--lora-modules": "--lora",
  "--speculative-model": "--draft-model",
  "--num-speculative-tokens": "--speculate",
  "--speculative-eagle-topk": "--draft-tree",
};

/**
 * Budgets of untrusted files, each several times the needs of the largest models in use. They bound
 * the memory that a file of a few megabytes can make forge allocate. A file above a budget is
 * rejected by an error that names the budget. src/models/README.md repeats the table for users.
 */
export const LIMITS = {
  /** Bytes of config.json, generation_config.json and chat templates. Large ones have 1 MB. */
  configBytes: 8 * 2 ** 20,
  /**
   * Bytes of any other JSON file. A tokenizer.json with a vocabulary of 256,000 has about 35 MB.
   */
  jsonBytes: 256 * 2 ** 20,
  /** Nesting of arrays and objects in a JSON text. */
  jsonDepth: 512,
  /** Arrays and objects of a JSON text. A tokenizer has one for each of its 500,000 merges. */
  jsonContainers: 2 ** 21,
  /** Values of a JSON text, without keys. */
  jsonValues: 2 ** 23,
  /** Bytes of the header of a safetensors file: the limit of the reference implementation. */
  safetensorsHeaderBytes: 100_000_000,
  /** Bytes of the header of a GGUF file. The largest hold a tokenizer.json: less than 100 MB. */
  ggufHeaderBytes: 2 ** 28,
  /** Keys of a GGUF file; fewer than 100 are in use. */
  ggufKeys: 2 ** 16,
  /** Tensors of a GGUF file; fewer than 3,000 are in use. */
  ggufTensors: 2 ** 18,
  /** Strings, booleans and nested arrays in the arrays of all keys of a GGUF file. */
  ggufArrayItems: 2 ** 22,
  /** Characters that the steps of a tokenizer may produce per character, beyond the first 1,024. */
  tokenizerGrowth: 32,
} as const;

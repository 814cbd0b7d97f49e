/** Which options go together, for the commands that have them. */
import type { OptionName, Options } from "./options.ts";

/** Which model, and how it is run. */
export const MODEL_FLAGS = [
  "model",
  "device",
  "threads",
  "ctx",
  "quantize",
  "kvType",
  "kvMemory",
  "attention",
  "speculate",
  "draftModel",
] as const satisfies readonly OptionName[];

/** How answers are generated. */
export const GENERATION_FLAGS = [
  "maxTokens",
  "stop",
  "seed",
  "repeatPenalty",
  "presencePenalty",
  "frequencyPenalty",
  "repeatLastN",
  "logitBias",
  "temp",
  "topK",
  "topP",
  "minP",
] as const satisfies readonly OptionName[];

/** What the answer must conform to. */
export const CONSTRAINT_FLAGS = [
  "jsonSchema",
  "jsonObject",
  "regex",
  "grammar",
] as const satisfies readonly OptionName[];

/** What means something with a batch only. */
export const BATCH_FLAGS = [
  "batch",
  "output",
  "batchParallel",
  "ordered",
  "resume",
  "overwrite",
  "shard",
] as const satisfies readonly OptionName[];

/** How a server is reached, and whom it serves. */
export const SERVE_FLAGS = [
  "host",
  "port",
  "serveParallel",
  "maxQueue",
  "alias",
  "apiKey",
  "cors",
] as const satisfies readonly OptionName[];

/** What was given of them. */
export type ModelFlags = Options<(typeof MODEL_FLAGS)[number]>;
export type GenerationFlags = Options<(typeof GENERATION_FLAGS)[number]>;
export type ConstraintFlags = Options<(typeof CONSTRAINT_FLAGS)[number]>;

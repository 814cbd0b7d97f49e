/** Groups of options that commands share. */
import type { OptionName, Options } from "./options.ts";
import { SAMPLING_NAMES } from "./tables/generation.ts";

/** Device and memory of a model. */
export const LOADING_FLAGS = [
  "device",
  "threads",
  "ctx",
  "quantize",
  "kvType",
  "kvMemory",
  "memory",
  "kvDir",
  "kvDirSize",
  "attention",
  "products",
  "numa",
  "speculate",
  "lora",
  "draftModel",
  "draftTree",
  "chatTemplate",
] as const satisfies readonly OptionName[];

/** Devices that divide a model. */
const DIVISION_FLAGS = [
  "devices",
  "tensorParallel",
  "pipelineParallel",
] as const satisfies readonly OptionName[];

/** Processes that divide a model. */
const PROCESS_FLAGS = [
  "distributed",
  "master",
  "joinTimeout",
] as const satisfies readonly OptionName[];

/** Model and devices. */
export const MODEL_FLAGS = [
  "model",
  ...LOADING_FLAGS,
  ...DIVISION_FLAGS,
  ...PROCESS_FLAGS,
] as const satisfies readonly OptionName[];

/** Devices of replicas. */
export const REPLICA_FLAGS = [
  "dataParallel",
  ...DIVISION_FLAGS,
] as const satisfies readonly OptionName[];

/** Model and device of commands that generate nothing. */
export const ENCODER_FLAGS = [
  "model",
  "device",
  "threads",
  "ctx",
  "quantize",
  "kvType",
  "kvMemory",
  "memory",
  "attention",
  "products",
  "numa",
  ...REPLICA_FLAGS,
  "lora",
] as const satisfies readonly OptionName[];

/** Limits and sampling. */
export const GENERATION_FLAGS = [
  "maxTokens",
  "stop",
  "seed",
  ...SAMPLING_NAMES,
  "logitBias",
  "drySequenceBreakers",
] as const satisfies readonly OptionName[];

/** Constraints. */
export const CONSTRAINT_FLAGS = [
  "jsonSchema",
  "jsonObject",
  "regex",
  "grammar",
] as const satisfies readonly OptionName[];

/** Options that need `--batch`. */
export const BATCH_FLAGS = [
  "batch",
  "output",
  "batchParallel",
  "ordered",
  "resume",
  "overwrite",
  "shard",
  "dataParallel",
] as const satisfies readonly OptionName[];

/** Address, limits and access of a server. */
export const SERVE_FLAGS = [
  "host",
  "port",
  "serveParallel",
  "maxQueue",
  "alias",
  "apiKey",
  "cors",
  "modelsDir",
  "maxModels",
  "keepAlive",
  ...REPLICA_FLAGS,
  ...PROCESS_FLAGS,
] as const satisfies readonly OptionName[];

export type ProcessFlags = Options<(typeof PROCESS_FLAGS)[number]>;
export type ReplicaFlags = Options<(typeof REPLICA_FLAGS)[number]>;
export type ModelFlags = Options<(typeof MODEL_FLAGS)[number]>;
export type EncoderFlags = Options<(typeof ENCODER_FLAGS)[number]>;
export type GenerationFlags = Options<(typeof GENERATION_FLAGS)[number]>;
export type ConstraintFlags = Options<(typeof CONSTRAINT_FLAGS)[number]>;

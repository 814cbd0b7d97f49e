/** The options of commands that generate, as the library takes them. */
import type { GenerateOptions, LoadOptions, Tokenizer } from "../../mod.ts";
import { logitBias } from "./logit_bias.ts";
import type { OptionName, Options } from "./options.ts";

/** Which model, and how it is run. */
export const MODEL_OPTIONS = [
  "model",
  "device",
  "threads",
  "ctx",
  "kvType",
  "attention",
  "speculate",
  "draftModel",
] as const satisfies readonly OptionName[];

/** How answers are generated. */
export const GENERATION_OPTIONS = [
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
export const CONSTRAINT_OPTIONS = [
  "jsonSchema",
  "jsonObject",
  "regex",
  "grammar",
] as const satisfies readonly OptionName[];

/** What means something with a batch only. */
export const BATCH_OPTIONS = [
  "batch",
  "output",
  "batchParallel",
  "ordered",
  "resume",
  "overwrite",
  "shard",
] as const satisfies readonly OptionName[];

/** How a server is reached, and whom it serves. */
export const SERVE_OPTIONS = [
  "host",
  "port",
  "serveParallel",
  "maxQueue",
  "alias",
  "apiKey",
  "cors",
] as const satisfies readonly OptionName[];

export type ModelFlags = Options<(typeof MODEL_OPTIONS)[number]>;
export type GenerationFlags = Options<(typeof GENERATION_OPTIONS)[number]>;
export type ConstraintFlags = Options<(typeof CONSTRAINT_OPTIONS)[number]>;

/** The options of `load` but those of {@linkcode speculationOptions}. */
export function loadOptions(
  flags: Omit<ModelFlags, "speculate" | "draftModel">,
): LoadOptions {
  return {
    device: flags.device,
    threads: flags.threads,
    contextLength: flags.ctx,
    kvType: flags.kvType,
    attention: flags.attention,
  };
}

/** What the flags say; what they do not say is left to the model and the library. */
export function generationOptions(flags: GenerationFlags, tokenizer: Tokenizer): GenerateOptions {
  return {
    temperature: flags.temp,
    topK: flags.topK,
    topP: flags.topP,
    minP: flags.minP,
    repeatPenalty: flags.repeatPenalty,
    repeatLastN: flags.repeatLastN,
    presencePenalty: flags.presencePenalty,
    frequencyPenalty: flags.frequencyPenalty,
    logitBias: logitBias(flags.logitBias, tokenizer),
    seed: flags.seed,
    maxTokens: flags.maxTokens,
    stop: flags.stop,
  };
}

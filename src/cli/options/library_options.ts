/** Translation of flags into options of the library. */
import type { GenerateOptions, LoadOptions, Tokenizer } from "../../mod.ts";
import { resolveModel } from "../model/model_path.ts";
import type { GenerationFlags, ModelFlags } from "./flags.ts";
import { logitBias } from "./logit_bias.ts";

/** Returns the options of `load` except those of {@linkcode speculationOptions}. */
export function loadOptions(
  flags: Omit<ModelFlags, "speculate" | "draftModel">,
): LoadOptions {
  return {
    device: flags.device,
    threads: flags.threads,
    contextLength: flags.ctx,
    quantize: flags.quantize,
    kvType: flags.kvType,
    kvMemory: flags.kvMemory,
    attention: flags.attention,
  };
}

/**
 * Returns the options of speculative decoding.
 *
 * @throws {ForgeError} as {@linkcode resolveModel}, for the draft model
 */
export async function speculationOptions(
  { speculate, draftModel }: Pick<ModelFlags, "speculate" | "draftModel">,
  signal: AbortSignal,
): Promise<Pick<LoadOptions, "speculate" | "draftModel">> {
  if (draftModel === undefined) return { speculate };
  return { speculate, draftModel: await resolveModel(draftModel, signal) };
}

/** Returns the options that flags set; the model and the library choose the others. */
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

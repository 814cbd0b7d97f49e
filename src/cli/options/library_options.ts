/** Translation of flags into options of the library. */
import type { GenerateOptions, LoadOptions, Tokenizer } from "../../mod.ts";
import type { GenerationFlags, ModelFlags } from "./flags.ts";
import { logitBias } from "./logit_bias.ts";

/** The options of `load` but those of {@linkcode speculationOptions}. */
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

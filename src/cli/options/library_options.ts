/** Translation of flags into options of the library. */
import type { AdapterOption, GenerateOptions, LoadOptions, Tokenizer } from "../../mod.ts";
import { readTextFile } from "../input/text_source.ts";
import { resolveModel } from "../model/model_path.ts";
import { processOptions } from "../model/processes.ts";
import type {
  ConstraintFlags,
  GenerationFlags,
  ModelFlags,
  ProcessFlags,
  ReplicaFlags,
} from "./flags.ts";
import { logitBias } from "./logit_bias.ts";
import { SAMPLING_NAMES } from "./tables/generation.ts";

/** Flags that name other files than the model's. */
type FileFlags = Pick<
  ModelFlags,
  "speculate" | "draftModel" | "draftTree" | "chatTemplate" | "kvDir" | "kvDirSize"
>;

/** Flags of {@linkcode loadOptions}. */
type LoadFlags =
  & Omit<ModelFlags, "model" | keyof FileFlags | keyof ReplicaFlags | keyof ProcessFlags>
  & Partial<ReplicaFlags & ProcessFlags>;

/** Returns the options of `load` except those of {@linkcode fileOptions}. */
export function loadOptions(flags: LoadFlags): LoadOptions {
  return {
    ...replicaOptions(flags),
    processes: processOptions(flags),
    device: flags.device,
    threads: flags.threads,
    contextLength: flags.ctx,
    quantize: flags.quantize,
    kvType: flags.kvType,
    kvMemory: flags.kvMemory,
    memory: flags.memory,
    attention: flags.attention,
    products: flags.products,
    numa: flags.numa,
    lora: flags.lora?.map(adapterOption),
  };
}

/** Returns the options of `load` that distribute a model over devices. */
export function replicaOptions(
  { devices, dataParallel, tensorParallel, pipelineParallel }: Partial<ReplicaFlags>,
): Pick<LoadOptions, keyof ReplicaFlags> {
  return { devices: devices?.split(","), dataParallel, tensorParallel, pipelineParallel };
}

const SCALED = /^(.+):([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)$/is;

/** Parses `[NAME=]PATH[:SCALE]`. */
function adapterOption(text: string): AdapterOption {
  const [, name, given = text] = /^([\w.-]+)=(.+)$/s.exec(text) ?? [];
  const [, path = given, scale] = SCALED.exec(given) ?? [];
  return { name, path, scale: scale === undefined ? undefined : Number(scale) };
}

/**
 * Returns the options of `load` that name other files: speculative decoding, the chat template and
 * the folder of prompts.
 *
 * @throws {ForgeError} as {@linkcode resolveModel}, for the draft model; `not_found` for a template
 * that cannot be read
 */
export async function fileOptions(
  { speculate, draftModel, draftTree, chatTemplate, kvDir, kvDirSize }: FileFlags,
  signal: AbortSignal,
): Promise<Pick<LoadOptions, keyof FileFlags>> {
  return {
    speculate,
    draftTree,
    kvDir,
    kvDirSize,
    ...(draftModel === undefined ? {} : { draftModel: await resolveModel(draftModel, signal) }),
    ...(chatTemplate === undefined
      ? {}
      : { chatTemplate: await readTextFile(chatTemplate, signal) }),
  };
}

/** Returns all files and folders that the flags name besides the model, which no output may be. */
export function namedSources(
  { lora = [], draftModel, chatTemplate, jsonSchema, grammar }: ModelFlags & ConstraintFlags,
): string[] {
  return [
    ...lora.map((text) => adapterOption(text).path),
    draftModel,
    chatTemplate,
    jsonSchema,
    grammar,
  ]
    .filter((path) => path !== undefined);
}

/** Returns the options that flags set; the model and the library choose the others. */
export function generationOptions(flags: GenerationFlags, tokenizer: Tokenizer): GenerateOptions {
  return {
    ...Object.fromEntries(SAMPLING_NAMES.map((name) => [name, flags[name]])),
    logitBias: logitBias(flags.logitBias, tokenizer),
    drySequenceBreakers: breakers(flags.drySequenceBreakers),
    seed: flags.seed,
    maxTokens: flags.maxTokens,
    stop: flags.stop,
  };
}

/** Returns DRY's sequence breakers; `none` alone stands for an empty list, as in llama.cpp. */
function breakers(given: readonly string[] | undefined): readonly string[] | undefined {
  return given?.length === 1 && given[0] === "none" ? [] : given;
}

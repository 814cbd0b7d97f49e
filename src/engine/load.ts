import { openCheckpoint } from "../formats/checkpoint.ts";
import { LOAD_OPTIONS, type LoadOptions } from "./load_options.ts";
import { Model } from "./model.ts";
import { openBackend } from "./open_backend.ts";
import { checkOptions } from "./options.ts";

/**
 * Loads a model from a folder with config.json and safetensors files, or from a GGUF file.
 *
 * @example
 * ```ts
 * await using model = await load("path/to/model.gguf", { contextLength: 8192 });
 * const { text } = await model.complete("Once upon a time", { maxTokens: 64 });
 * ```
 *
 * @throws {ForgeError} `not_found`, `bad_model` or `unsupported` for files that cannot be used;
 * `usage` for options out of range; `device` when the device refuses.
 */
export async function load(path: string, options: LoadOptions = {}): Promise<Model> {
  checkOptions("load", options, LOAD_OPTIONS);
  const checkpoint = openCheckpoint(path);
  const backend = openBackend(options.device ?? "auto", options.threads, options.attention);
  try {
    return await Model.open(checkpoint, backend, options);
  } catch (error) {
    backend.close();
    throw error;
  }
}

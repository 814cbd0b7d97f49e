import { ForgeError } from "../../errors.ts";
import { openCheckpoint } from "../../formats/checkpoint.ts";
import { fileIdentity } from "../../formats/file.ts";
import { quote } from "../../formats/quote.ts";
import { LOAD_OPTIONS, type LoadOptions } from "./options.ts";
import { Model } from "../model.ts";
import { fetchLibraries, openBackend } from "./open_backend.ts";
import { checkOptions } from "../request/options.ts";

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
 * `usage` for options out of range; `device` for a failure of the device.
 */
export async function load(path: string, options: LoadOptions = {}): Promise<Model> {
  checkOptions("load", options, LOAD_OPTIONS);
  const checkpoint = openCheckpoint(path);
  const identities = checkpoint.files.map(fileIdentity);
  await fetchLibraries();
  const backend = openBackend(options.device ?? "auto", options.threads, options);
  try {
    const model = await Model.open(checkpoint, backend, options);
    // Headers and weights are read at different times: those of two files must not be mixed.
    const changed = checkpoint.files.find((file, i) => fileIdentity(file) !== identities[i]);
    if (changed === undefined) return model;
    await model[Symbol.asyncDispose]();
    throw new ForgeError(
      "bad_model",
      `${quote(changed)} was replaced or written to while it was being loaded; load it again`,
    );
  } catch (error) {
    backend.close();
    throw error;
  }
}

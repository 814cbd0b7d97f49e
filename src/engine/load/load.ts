import { ForgeError } from "../../errors.ts";
import { openCheckpoint } from "../../formats/checkpoint.ts";
import { fileIdentity } from "../../formats/file.ts";
import { quote } from "../../formats/quote.ts";
import {
  asLoaded,
  countReplicas,
  LOAD_OPTIONS,
  type LoadOptions,
  resolveContext,
  resolveDivision,
} from "./options.ts";
import { Model } from "../model.ts";
import { openGroup } from "../processes/group.ts";
import { fetchLibraries, openBackends } from "./open_backend.ts";
import { kvBytesPerToken, planModel } from "./plan_model.ts";
import { KV_ELEMENT_BYTES } from "../cache/memory.ts";
import { checkArgument, checkOptions, STRING } from "../../formats/arguments.ts";

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
  checkArgument("the path of the model", path, STRING);
  checkOptions("load", options, LOAD_OPTIONS);
  const checkpoint = openCheckpoint(path);
  const identities = checkpoint.files.map(fileIdentity);
  await fetchLibraries();
  const { processes } = options;
  const backends = processes === undefined
    ? openBackends(options)
    : [await openGroup(checkpoint, { ...options, processes })];
  try {
    const model = await Model.open(checkpoint, backends, options);
    // Headers and weights are read at different times: those of two files must not be mixed.
    const changed = checkpoint.files.find((file, i) => fileIdentity(file) !== identities[i]);
    if (changed === undefined) return model;
    await model[Symbol.asyncDispose]();
    throw new ForgeError(
      "bad_model",
      `${quote(changed)} was replaced or written to while it was being loaded; load it again`,
    );
  } catch (error) {
    for (const backend of backends) await backend.close(error);
    throw error;
  }
}

/**
 * Estimates the fewest bytes of its devices that loading a model takes: for each replica, the
 * weights, and the keys and values of one context.
 *
 * @throws {ForgeError} as {@linkcode load}, for files that cannot be used
 */
export function leastMemory(path: string, options: LoadOptions = {}): number {
  const checkpoint = asLoaded(openCheckpoint(path), options);
  const division = resolveDivision(options);
  const { weightBytes, contextLength, kvLayers } = planModel(checkpoint, false, division);
  const tokens = resolveContext(options.contextLength, contextLength);
  const kvBytes = tokens * kvBytesPerToken(kvLayers, KV_ELEMENT_BYTES[options.kvType ?? "F16"]);
  return (weightBytes + division.ranks * kvBytes) * countReplicas(options);
}

import { load, type LoadOptions, type Model } from "../../mod.ts";
import { ensureLibrary } from "./native_library.ts";
import type { Progress } from "../output/progress.ts";

/**
 * Loads a model for a command. Builds the library first if it is missing.
 *
 * @throws {ForgeError} as `load` and {@linkcode ensureLibrary}
 */
export async function openModel(
  path: string,
  options: LoadOptions,
  progress: Progress,
): Promise<Model> {
  await ensureLibrary(options.device ?? "auto", progress);
  progress.update(`loading ${path}`);
  const model = await load(path, options);
  progress.clear();
  return model;
}

import type { LoadOptions } from "../../mod.ts";
import { resolveModel } from "../model/model_path.ts";
import type { ModelFlags } from "./flags.ts";

/**
 * How tokens are guessed ahead, as `load` takes it.
 *
 * @throws {ForgeError} as {@linkcode resolveModel} for a draft model that is not there
 */
export async function speculationOptions(
  { speculate, draftModel }: Pick<ModelFlags, "speculate" | "draftModel">,
  signal: AbortSignal,
): Promise<Pick<LoadOptions, "speculate" | "draftModel">> {
  if (draftModel === undefined) return { speculate };
  return { speculate, draftModel: await resolveModel(draftModel, signal) };
}

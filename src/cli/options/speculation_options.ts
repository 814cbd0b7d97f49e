import type { LoadOptions } from "../../mod.ts";
import { resolveModel } from "../model/model_path.ts";
import type { ModelFlags } from "./flags.ts";

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

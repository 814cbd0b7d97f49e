import type { Checkpoint } from "../formats/checkpoint.ts";
import { dependsOnContext, modelIdentity } from "./model_identity.ts";
import type { PromptCacheKey } from "./prompt_cache_file.ts";
import type { Runner } from "./runner.ts";

/**
 * All that the pages of a prompt depend on.
 *
 * @param device its kind and kernels
 */
export function promptCacheKey(
  checkpoint: Checkpoint,
  runner: Pick<Runner, "pageBytes" | "slotBytes" | "pages" | "kvType" | "contextLength">,
  device: string,
): PromptCacheKey {
  const { pageBytes, slotBytes, pages, kvType, contextLength } = runner;
  return {
    model: modelIdentity(checkpoint),
    device,
    kv_type: kvType,
    page_tokens: pages.pageTokens,
    page_bytes: pageBytes,
    state_bytes: slotBytes,
    context_length: dependsOnContext(checkpoint) ? contextLength : null,
  };
}

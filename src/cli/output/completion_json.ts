import type { Completion } from "../../engine/generation/completion.ts";
import type { JsonObject } from "../../formats/json.ts";

/**
 * Returns a completion in the form of `--json` and batches, with OpenAI's keys where they exist.
 */
export function completionJson(completion: Completion): JsonObject {
  const { text, tokenIds, timings, logprobs } = completion;
  return {
    text,
    token_ids: [...tokenIds],
    prompt_tokens: completion.promptTokens,
    cached_prompt_tokens: completion.cachedPromptTokens,
    completion_tokens: completion.completionTokens,
    finish_reason: completion.finishReason,
    seed: completion.seed,
    timings: {
      queue_ms: timings.queueMs,
      prefill_ms: timings.prefillMs,
      decode_ms: timings.decodeMs,
      prefill_tokens_per_second: timings.prefillTokensPerSecond,
      decode_tokens_per_second: timings.decodeTokensPerSecond,
      drafted: timings.drafted,
      accepted: timings.accepted,
    },
    ...(logprobs === undefined ? {} : {
      logprobs: logprobs.map(({ top, ...token }) => ({
        ...token,
        top: top.map((other) => ({ ...other })),
      })),
    }),
  };
}

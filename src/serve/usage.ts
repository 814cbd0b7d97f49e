import type { GenerationEnd } from "../engine/generation/request.ts";

/** How many tokens a request took, as OpenAI's API counts them. */
export interface Usage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details: {
    /** Those whose keys and values were known already. */
    readonly cached_tokens: number;
  };
}

/** @param prompts how the generations of each prompt ended; a prompt counts once */
export function usageOf(prompts: readonly (readonly GenerationEnd[])[]): Usage {
  const sum = (numbers: readonly number[]) => numbers.reduce((total, number) => total + number, 0);
  const promptTokens = sum(prompts.map(([first]) => first?.promptTokens ?? 0));
  const completionTokens = sum(prompts.flat().map((end) => end.completionTokens));
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: {
      // The generation that computed a prompt knows what was there before.
      cached_tokens: sum(
        prompts.map((ends) => Math.min(...ends.map((end) => end.cachedPromptTokens))),
      ),
    },
  };
}

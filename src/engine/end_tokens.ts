import type { Checkpoint } from "../formats/checkpoint.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";

/**
 * The tokens that end an answer: those the tokenizer names, and those of generation_config.json or
 * config.json.
 */
export function endTokens(checkpoint: Checkpoint, tokenizer: Tokenizer): ReadonlySet<number> {
  const { generationConfig, config } = checkpoint;
  const declared = generationConfig?.eos_token_id ?? config?.eos_token_id;
  const ids = [declared].flat().filter((id) => typeof id === "number");
  return new Set([...tokenizer.eosIds, ...ids]);
}

import { ForgeError } from "../../errors.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { checkArgument, type OptionCheck } from "../../formats/arguments.ts";
import { quote } from "../../formats/quote.ts";
import { tokenizerFromGguf } from "../../tokenizer/from_gguf.ts";
import { tokenizerFromJson } from "../../tokenizer/from_json.ts";
import type { Tokenizer } from "../../tokenizer/tokenizer.ts";

const CHECKPOINT: OptionCheck = {
  accepts: (value) => {
    const { metadata, tokenizerJson, path } = Object(value) as Partial<Checkpoint>;
    return typeof path === "string" &&
      (metadata instanceof Map || typeof tokenizerJson === "function");
  },
  valid: "the result of openCheckpoint",
};

/**
 * Opens the tokenizer of a checkpoint.
 *
 * @throws {ForgeError} `usage` for another argument; `not_found` for a missing tokenizer;
 * `bad_model` or `unsupported` for one that cannot be used.
 */
export function openTokenizer(checkpoint: Checkpoint): Tokenizer {
  checkArgument("the checkpoint", checkpoint, CHECKPOINT);
  const { metadata, path } = checkpoint;
  if (metadata !== undefined) return tokenizerFromGguf(metadata, path);
  const json = checkpoint.tokenizerJson();
  if (json === undefined) {
    throw new ForgeError("not_found", `${quote(path)} has no tokenizer.json`);
  }
  return tokenizerFromJson(json, checkpoint.tokenizerConfig(), path);
}

/**
 * Returns the tokens that end an answer: those of the tokenizer, and of generation_config.json or
 * config.json.
 */
export function endTokens(checkpoint: Checkpoint, tokenizer: Tokenizer): ReadonlySet<number> {
  const { generationConfig, config } = checkpoint;
  const declared = generationConfig?.eos_token_id ?? config?.eos_token_id;
  const ids = [declared].flat().filter((id) => typeof id === "number");
  return new Set([...tokenizer.eosIds, ...ids]);
}

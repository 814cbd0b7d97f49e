import { join } from "node:path";
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
  const source = quote(join(path, "tokenizer.json"));
  return tokenizerFromJson(json, checkpoint.tokenizerConfig(), source);
}

/**
 * Returns the tokens that end an answer: those of the tokenizer, and of generation_config.json or
 * config.json.
 *
 * @throws {ForgeError} `bad_model` if these name something else than tokens
 */
export function endTokens(checkpoint: Checkpoint, tokenizer: Tokenizer): ReadonlySet<number> {
  const { generationConfig, config, path } = checkpoint;
  const declared = generationConfig?.eos_token_id ?? config?.eos_token_id;
  const ids = [declared ?? []].flat();
  if (!ids.every((id) => typeof id === "number")) {
    const shown = quote(JSON.stringify(declared));
    throw new ForgeError(
      "bad_model",
      `${quote(path)}: eos_token_id is ${shown}; expected a token id or a list of them`,
    );
  }
  return new Set([...tokenizer.eosIds, ...ids]);
}

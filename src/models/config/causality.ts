import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import type { ConfigReader } from "./config_reader.ts";

/** Architectures whose tokens see those behind them, by the names of either format. */
export const ENCODERS = /bert|mpnet|electra|embedding|encoder$|^new$/;

/**
 * Refuses a model whose tokens are to see those behind them, as some that embed do: attention here is
 * causal, and nothing would show that the results are wrong.
 *
 * @throws {ForgeError} `unsupported`
 */
export function assertCausal(config: ConfigReader): void {
  const isCausal = config.raw(["is_causal", "attention.causal"]) ?? true;
  if (isCausal !== true) {
    const key = config.isGguf ? "attention.causal" : "is_causal";
    throw notCausal(config.path, `${key} ${isCausal}`);
  }
  const bidirectional = config.raw(["use_bidirectional_attention", undefined]);
  if (bidirectional === true || bidirectional === "all") {
    throw notCausal(config.path, `use_bidirectional_attention ${bidirectional}`);
  }
}

/** The error for a model that is not causal. @param reason what says so */
export function notCausal(path: string, reason: string): ForgeError {
  return new ForgeError(
    "unsupported",
    `${
      quote(path)
    } has ${reason}: its tokens see those behind them, which forge does not compute; ` +
      "models that generate can embed, such as Qwen3-Embedding and e5-mistral",
  );
}

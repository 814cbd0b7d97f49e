import { ForgeError } from "../../errors.ts";
import { quote } from "../../formats/quote.ts";
import type { ConfigReader } from "./config_reader.ts";

/** Matches architectures with bidirectional attention, by their names in either format. */
export const ENCODERS = /bert|mpnet|electra|embedding|encoder$|^new$/;

/**
 * Rejects models with bidirectional attention, which some embedding models have. Forge would
 * compute causal attention and return wrong results without any sign of it.
 *
 * @throws {ForgeError} `unsupported`
 */
export function assertCausal(config: ConfigReader): void {
  const isCausal = config.raw(["is_causal", "attention.causal"]) ?? true;
  if (isCausal !== true) {
    const key = config.isGguf ? "attention.causal" : "is_causal";
    throw notCausal(config.path, `${key} ${isCausal}`);
  }
  const bidirectional = config.raw(["use_bidirectional_attention", undefined]) ?? false;
  // "vision" concerns image tokens alone, and forge takes no images.
  if (bidirectional !== false && bidirectional !== "vision") {
    throw notCausal(config.path, `use_bidirectional_attention ${bidirectional}`);
  }
}

/** Returns the error for a model that is not causal. @param reason the setting that says so */
export function notCausal(path: string, reason: string): ForgeError {
  return new ForgeError(
    "unsupported",
    `${quote(path)} has ${reason}: forge computes causal attention only; ` +
      "causal models can embed too, such as Qwen3-Embedding and e5-mistral",
  );
}

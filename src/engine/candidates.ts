import { ForgeError } from "../errors.ts";
import { logSumExp } from "./maskless_step.ts";

/** A token that may come next. */
export interface Candidate {
  /** Its id. */
  readonly token: number;
  /** Under the model's own distribution. */
  readonly probability: number;
}

/** The `k` most probable tokens, best first, ties to the lowest id. */
export function topCandidates(logits: Float32Array, k: number): Candidate[] {
  if (!Number.isInteger(k) || k < 1 || k > logits.length) {
    throw new ForgeError("usage", `k is ${k}; valid is a whole number from 1 to ${logits.length}`);
  }
  const normalizer = logSumExp(logits);
  const ids = Int32Array.from(logits, (_, id) => id);
  ids.sort((a, b) => logits[b]! - logits[a]! || a - b);
  return Array.from(
    ids.subarray(0, k),
    (token) => ({ token, probability: Math.exp(logits[token]! - normalizer) }),
  );
}

/** Goals on an H100, as shares of the nominal bandwidth or of the tensor cores under load. */
import type { Prediction } from "./predictions.ts";

/** Goals of decoding by model, type and batch. */
const DECODE: Readonly<Record<string, number>> = {
  "8B BF16 1": 0.87,
  "1B BF16 1": 0.80,
  "8B Q8_0 1": 0.82,
  "8B Q4_0 1": 0.78,
  "8B Q4_K 1": 0.78,
  "1B Q4_0 1": 0.60,
  "8B BF16 8": 0.80,
  "8B Q8_0 8": 0.75,
  "8B Q4_0 8": 0.65,
  "8B BF16 32": 0.80,
  "8B Q4_0 32": 0.60,
  "8B Q4_K 32": 0.55,
  "8B BF16 128": 0.60,
  "30B-A3B BF16 1": 0.75,
};

/** Smallest depth at which decode attention must reach its goal. */
const LONG = 8000;

/** Returns the goal of a prediction; undefined if there is none. */
export function goalOf(prediction: Prediction): number | undefined {
  const { device, model, type, workload, batch, depth } = prediction;
  if (device !== "H100") return undefined;
  switch (workload) {
    case "decode":
      return depth < LONG ? DECODE[`${model} ${type} ${batch}`] : undefined;
    case "decode_attention":
      return batch === 1 && depth >= LONG ? 0.85 : undefined;
    case "prefill":
      return model === "8B" ? type === "BF16" ? 0.70 : 0.60 : undefined;
    default:
      return undefined;
  }
}

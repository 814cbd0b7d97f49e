/** Parts of layers with recurrent state: convolutions over tokens and decay rates. */
import type { Weight } from "../../backend.ts";
import type { TensorName, WeightLoader } from "../weights/weight_loader.ts";

/** Far above any real model, so that a damaged file fails at once. */
export const MAX_CONV_WIDTH = 64;

/**
 * Returns a function that counts the layers of the same kind before a layer: the index of its KV
 * cache, or of its first state divided by the states of a layer.
 */
export function indexAmongKind(isRecurrent: readonly boolean[]): (layer: number) => number {
  return (layer) => isRecurrent.slice(0, layer).filter((is) => is === isRecurrent[layer]).length;
}

/** Loads the weight `[cols, width]` of a depthwise convolution. */
export function loadConv(
  weights: WeightLoader,
  name: TensorName,
  cols: number,
  width: number,
): Weight {
  const shape = weights.isGguf ? [cols, width] : [cols, 1, width];
  return weights.mapWhole(weights.tensor(name, "weight", shape), width);
}

/** Loads the decay rate of each head, -exp(A_log). GGUF files store this value. */
export function loadRate(weights: WeightLoader, name: TensorName, nHeads: number): Weight {
  const stored = loadHeadNumbers(weights, name, nHeads);
  if (weights.isGguf) return stored;
  const log = weights.backend.readWeight(stored, 0, 1);
  return weights.uploadVector(Float32Array.from(log, (value) => -Math.exp(value)));
}

/** Loads a number for each head, from a tensor without a suffix. GGUF files may have a column. */
export function loadHeadNumbers(weights: WeightLoader, name: TensorName, nHeads: number): Weight {
  const isColumn = weights.hasShape(name, "", [nHeads, 1]);
  return weights.mapWhole(weights.tensor(name, "", isColumn ? [nHeads, 1] : [nHeads]), nHeads);
}

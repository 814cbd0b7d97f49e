import { type Device, devicesOf, type KvType } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { CausalLm } from "../../models/causal_lm.ts";
import { type CacheSize, cachesOn, chooseCaches } from "../cache/memory.ts";
import { Runner } from "../runner.ts";

/** Shape of the sequences that a model is opened for. */
export interface SessionShape {
  /** Positions a sequence can have. */
  readonly contextLength: number;
  readonly kvType: KvType;
  /** Sequences that one run can take. */
  readonly maxSequences: number;
  /** True if the caches have room to save recurrent states before draft tokens. */
  readonly savesStates?: boolean;
  /** Most branches of draft trees in one run. @default 0 */
  readonly maxBranches?: number;
  /** Low-rank adapters that the model was loaded with. @default 0 */
  readonly nAdapters?: number;
}

/**
 * Opens a runner whose caches are as large as {@linkcode chooseCaches} says.
 *
 * The size of the activations is known once a step is recorded. If they leave a GPU less than the
 * caches would take, the runner is opened with caches for one context. So a context that the
 * device's error says would fit does fit, for any number of sequences.
 *
 * @param weightBytes bytes of weights of each device of a group that it does not count as taken yet
 * @param kvMemory the most bytes of the caches of a device
 * @param sharers number of models that share the device
 */
export async function openRunner(
  backend: Device,
  lm: CausalLm,
  shape: SessionShape,
  weightBytes: readonly number[],
  kvMemory?: number,
  sharers?: number,
): Promise<Runner> {
  const choices = devicesOf(backend).map((device, i) => {
    const needs = { ...shape, ...cachesOn(backend, i, lm) };
    return chooseCaches(device, weightBytes[i]!, needs, kvMemory, sharers);
  });
  const size = leastOf(choices.map(({ size }) => size));
  const smallest = leastOf(choices.map(({ smallest }) => smallest));
  try {
    return await Runner.open(backend, lm, { ...shape, ...size });
  } catch (error) {
    const isLarger = size.cacheTokens > smallest.cacheTokens || size.nSlots > smallest.nSlots;
    if (!isLarger || !(error instanceof ForgeError) || !isShortOfMemory(error)) throw error;
    return await Runner.open(backend, lm, { ...shape, ...smallest });
  }
}

/** Returns the caches that every device of a group holds. */
function leastOf(sizes: readonly CacheSize[]): CacheSize {
  return {
    cacheTokens: Math.min(...sizes.map(({ cacheTokens }) => cacheTokens)),
    nSlots: Math.min(...sizes.map(({ nSlots }) => nSlots)),
  };
}

/** True if the device says that smaller caches would fit: see `require_memory` in `csrc/gpu`. */
function isShortOfMemory({ code, message }: ForgeError): boolean {
  return code === "device" && message.includes("tokens would fit");
}

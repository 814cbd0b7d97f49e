import { type BackendKind, type Device, DeviceGroup, type KvType } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { LayerKvShape, StateMatrix } from "../../models/causal_lm.ts";
import { kvBytesPerToken, stateBytes } from "../load/plan_model.ts";
import { checkWholeNumber } from "../../formats/arguments.ts";
import { PAGE_TOKENS } from "../runner.ts";

/** Memory that a loaded model and its draft model take, in bytes. */
export interface MemoryUse {
  /** Weights, mapped or packed. */
  readonly weights: number;
  /** The whole KV cache. On a processor its pages take memory as they are first written. */
  readonly kvCache: number;
  /** Recurrent states, 0 in a model without any. */
  readonly states: number;
  /** Activations of the steps. */
  readonly activations: number;
}

/**
 * Share of the memory that weights leave free which the caches of a model take by default.
 * Activations and kernels need the rest of a GPU; other programs need the rest of a host.
 */
const CACHE_SHARES: Readonly<Record<BackendKind, number>> = {
  cuda: 3 / 4,
  metal: 1 / 2,
  cpu: 1 / 4,
  reference: 1 / 4,
};

/** Memory of a device that reports none. */
const UNKNOWN_MEMORY = 8 * 2 ** 30;

/** Bytes of an element of a cache. */
export const KV_ELEMENT_BYTES: Readonly<Record<KvType, number>> = {
  F32: 4,
  F16: 2,
  BF16: 2,
  Q8_0: 34 / 32,
  Q4_0: 18 / 32,
};

/** Sequences that the caches serve, and the layers that are cached. */
export interface CacheNeeds {
  /** Positions a sequence can have. */
  readonly contextLength: number;
  /** Sequences computed at a time. */
  readonly maxSequences: number;
  readonly kvType: KvType;
  readonly kvLayers: readonly LayerKvShape[];
  readonly stateLayers: readonly StateMatrix[];
  /** True if recurrent states are saved before draft tokens, each in a slot of its own. */
  readonly savesStates?: boolean;
}

/** Returns the caches of a model that a device of a group holds, or the only device. */
export function cachesOn(
  backend: Device,
  device: number,
  { kvLayers, stateLayers }: Pick<CacheNeeds, "kvLayers" | "stateLayers">,
): Pick<CacheNeeds, "kvLayers" | "stateLayers"> {
  if (!(backend instanceof DeviceGroup)) return { kvLayers, stateLayers };
  const isHere = ({ stage = 0 }) => stage === backend.placeOf(device).stage;
  return { kvLayers: kvLayers.filter(isHere), stateLayers: stateLayers.filter(isHere) };
}

/** Capacity of the caches, for all sequences together. */
export interface CacheSize {
  /** Positions of the KV cache, in whole pages. */
  readonly cacheTokens: number;
  /** Slots of recurrent state; of no use to a model without any. */
  readonly nSlots: number;
}

/** Size of the caches that a model is opened with. */
interface CacheChoice {
  readonly size: CacheSize;
  /**
   * Serves one sequence; for a device that turns out not to hold `size` next to the activations.
   */
  readonly smallest: CacheSize;
}

/**
 * Chooses how much the caches of a model hold. They take the bytes asked for, or a share of what
 * the weights leave of the device's free memory: at most what all sequences can fill, and at least
 * one context.
 *
 * @param weightBytes bytes of weights that the device does not count as taken yet
 * @param asked the most bytes of the caches
 * @param sharers number of models that share the device, this one included
 * @throws {ForgeError} `usage` if the bytes asked for, or the device's bound, do not hold one
 * context
 */
export function chooseCaches(
  backend: Pick<Device, "kind" | "memory" | "memoryBound">,
  weightBytes: number,
  needs: CacheNeeds,
  asked?: number,
  sharers = 1,
): CacheChoice {
  const smallest = sizeCaches(needs, 0);
  const { memoryBound: bound = Infinity } = backend;
  checkHoldsContext(needs, smallest, bound, "memory");
  if (asked !== undefined) {
    checkWholeNumber("kvMemory", asked, 1, Number.MAX_SAFE_INTEGER);
    checkHoldsContext(needs, smallest, asked, "KV memory");
    return { size: sizeCaches(needs, Math.min(asked, bound)), smallest };
  }
  const { free, total } = backend.memory();
  const left = Math.max(0, Math.min(total > 0 ? free : UNKNOWN_MEMORY, bound) - weightBytes);
  return { size: sizeCaches(needs, left * CACHE_SHARES[backend.kind] / sharers), smallest };
}

/**
 * Returns the capacity of caches of at most `budget` bytes, and of one context if that takes more.
 *
 * Recurrent states take half of the budget at most: two slots a sequence, one for its state and one
 * for a snapshot, and one more if states are saved; never fewer than one sequence takes. Keys and
 * values take what is left.
 */
export function sizeCaches(needs: CacheNeeds, budget: number): CacheSize {
  const { contextLength, maxSequences, kvType, kvLayers, stateLayers, savesStates } = needs;
  const slotBytes = stateBytes(stateLayers);
  const affordableSlots = slotBytes === 0 ? Infinity : Math.floor(budget / 2 / slotBytes);
  const slotsEach = savesStates ? 3 : 2;
  const nSlots = Math.max(slotsEach, Math.min(slotsEach * maxSequences, affordableSlots));
  const perSequence = Math.ceil(contextLength / PAGE_TOKENS) * PAGE_TOKENS;
  const pageBytes = PAGE_TOKENS * kvBytesPerToken(kvLayers, KV_ELEMENT_BYTES[kvType]);
  const left = Math.max(0, budget - nSlots * slotBytes);
  const affordable = pageBytes === 0 ? Infinity : Math.floor(left / pageBytes) * PAGE_TOKENS;
  const cacheTokens = Math.max(perSequence, Math.min(perSequence * maxSequences, affordable));
  return { cacheTokens, nSlots };
}

/** @param name name of the `given` bytes in the error */
function checkHoldsContext(
  needs: CacheNeeds,
  smallest: CacheSize,
  given: number,
  name: string,
): void {
  const tokenBytes = kvBytesPerToken(needs.kvLayers, KV_ELEMENT_BYTES[needs.kvType]);
  const states = smallest.nSlots * stateBytes(needs.stateLayers);
  const least = smallest.cacheTokens * tokenBytes + states;
  if (least <= given) return;
  const pages = Math.max(0, Math.floor((given - states) / (PAGE_TOKENS * tokenBytes)));
  const advice = pages === 0 ? "" : `; a context of ${pages * PAGE_TOKENS} tokens would fit`;
  throw new ForgeError(
    "usage",
    `the ${name} is ${sizeText(given)}, but a context of ${needs.contextLength} tokens takes ` +
      `${sizeText(least)}${advice}`,
  );
}

/** Returns bytes as in "1.5 GiB" or "312.0 KiB". */
function sizeText(bytes: number): string {
  const [unit, scale] = bytes >= 2 ** 30
    ? ["GiB", 2 ** 30]
    : bytes >= 2 ** 20
    ? ["MiB", 2 ** 20]
    : ["KiB", 2 ** 10];
  return `${(bytes / scale).toFixed(1)} ${unit}`;
}

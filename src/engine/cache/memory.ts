import type { KvType } from "../../backend.ts";
import type { LayerKvShape, StateMatrix } from "../../models/causal_lm.ts";
import { kvBytesPerToken, stateBytes } from "../load/plan_model.ts";
import { PAGE_TOKENS } from "../runner.ts";

/** What a loaded model takes in memory, in bytes; with its draft model, if it has one. */
export interface MemoryUse {
  /** Weights, mapped or packed. */
  readonly weights: number;
  /** The whole KV cache; taken from the system as it fills. */
  readonly kvCache: number;
  /** Recurrent states, 0 in a model without any; taken from the system as they are first written. */
  readonly states: number;
  /** What the steps need in between. */
  readonly activations: number;
}

/** The part of the machine's memory that the cache may fill beyond what one sequence can. */
const MEMORY_SHARE = 1 / 8;

/** Taken for the machine's memory where a program may not ask for it. */
const UNKNOWN_MEMORY = 8 * 2 ** 30;

/** Bytes of an element of a cache. */
export const KV_ELEMENT_BYTES: Readonly<Record<KvType, number>> = {
  F32: 4,
  F16: 2,
  BF16: 2,
  Q8_0: 34 / 32,
};

/** What the caches are to hold. */
export interface CacheNeeds {
  readonly contextLength: number;
  readonly maxSequences: number;
  readonly kvType: KvType;
  readonly layers: readonly LayerKvShape[];
}

/**
 * How many positions the KV cache holds for all sequences together: as many as they could all fill, but
 * no more than an eighth of the machine's memory takes, and never fewer than one sequence can fill.
 * Memory is taken from the system only as pages are first written.
 *
 * @param memory bytes of the machine's memory
 */
export function cacheTokens(needs: CacheNeeds, memory: number = machineMemory()): number {
  const { contextLength, maxSequences, kvType, layers } = needs;
  // Pages are not shared out in parts.
  const perSequence = Math.ceil(contextLength / PAGE_TOKENS) * PAGE_TOKENS;
  const affordable = memory * MEMORY_SHARE / kvBytesPerToken(layers, KV_ELEMENT_BYTES[kvType]);
  return Math.max(perSequence, Math.min(perSequence * maxSequences, Math.floor(affordable)));
}

/**
 * How many sequences' recurrent states are held: those of all sequences of a step, and as many snapshots to go
 * on from, but no more than an eighth of the machine's memory takes, and never fewer than one and a snapshot.
 */
export function stateSlots(
  maxSequences: number,
  layers: readonly StateMatrix[],
  memory: number = machineMemory(),
): number {
  const affordable = Math.floor(memory * MEMORY_SHARE / Math.max(1, stateBytes(layers)));
  return Math.max(2, Math.min(2 * maxSequences, affordable));
}

function machineMemory(): number {
  const { state } = Deno.permissions.querySync({ name: "sys", kind: "systemMemoryInfo" });
  return state === "granted" ? Deno.systemMemoryInfo().total : UNKNOWN_MEMORY;
}

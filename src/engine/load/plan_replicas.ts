import type { Checkpoint } from "../../formats/checkpoint.ts";
import { chooseCaches, KV_ELEMENT_BYTES } from "../cache/memory.ts";
import { draftsTokens } from "../speculation/open_speculator.ts";
import { openBackends } from "./open_backend.ts";
import { type LoadOptions, resolveContext, resolveKvType, resolveParallel } from "./options.ts";
import { kvBytesPerToken, planModel, stateBytes } from "./plan_model.ts";

/** Memory of one replica's device, and what the replica would take of it, in bytes. */
export interface ReplicaPlan {
  /** Name of the processor or GPU. */
  readonly name: string;
  readonly total: number;
  readonly free: number;
  readonly weights: number;
  /** Bytes of the keys and values of one context, and of one recurrent state. */
  readonly context: number;
  /** True if weights and one context fit the free memory. */
  readonly fits: boolean;
  /** Positions of the KV cache that the replica would get. */
  readonly kvTokens: number;
}

/**
 * Returns what the replicas of a model would take of their devices, without loading it. Activations are
 * not counted.
 *
 * @throws {ForgeError} as opening the devices, and for a model that cannot be loaded
 */
export function planReplicas(checkpoint: Checkpoint, options: LoadOptions): ReplicaPlan[] {
  const maxSequences = resolveParallel(options.parallel);
  const backends = openBackends(options);
  try {
    const drafts = options.draftModel === undefined && draftsTokens(options, backends[0]!);
    const plan = planModel(checkpoint, drafts);
    const { weightBytes, kvLayers, stateLayers } = plan;
    const contextLength = resolveContext(options.contextLength, plan.contextLength);
    return backends.map((backend): ReplicaPlan => {
      const kvType = resolveKvType(options.kvType, backend.kind);
      const context = stateBytes(stateLayers) +
        contextLength * kvBytesPerToken(kvLayers, KV_ELEMENT_BYTES[kvType]);
      const { total, free: all } = backend.memory();
      const free = Math.min(all, backend.memoryBound ?? all);
      const needs = { contextLength, maxSequences, kvType, kvLayers, stateLayers };
      const fits = weightBytes + context <= free;
      const { size } = chooseCaches(backend, weightBytes, needs, options.kvMemory);
      const kvTokens = fits ? size.cacheTokens : 0;
      return {
        name: backend.info.name,
        total,
        free,
        weights: weightBytes,
        context,
        fits,
        kvTokens,
      };
    });
  } finally {
    for (const backend of backends) backend.close();
  }
}

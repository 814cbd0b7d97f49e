import { type Device, devicesOf } from "../../backend.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { chooseCaches, KV_ELEMENT_BYTES } from "../cache/memory.ts";
import { draftsTokens } from "../speculation/open_speculator.ts";
import { openBackends } from "./open_backend.ts";
import {
  type LoadOptions,
  resolveContext,
  resolveKvType,
  resolveParallel,
  resolveTensorParallel,
} from "./options.ts";
import { kvBytesPerToken, planModel, stateBytes } from "./plan_model.ts";

/** Memory of a device, and what a replica, or its part of one, would take of it, in bytes. */
export interface DevicePlan {
  /** Index of the replica, and of the device among those that divide it. */
  readonly replica: number;
  readonly rank: number;
  /** Name of the processor or GPU. */
  readonly name: string;
  readonly total: number;
  readonly free: number;
  readonly weights: number;
  /** Bytes of the keys and values of one context, and of one recurrent state. */
  readonly context: number;
  /** True if weights and one context fit the free memory. */
  readonly fits: boolean;
  /** Positions of the KV cache that the device would have room for. */
  readonly kvTokens: number;
}

/**
 * Returns what the replicas of a model would take of their devices, without loading it. Activations
 * are not counted.
 *
 * @throws {ForgeError} as opening the devices, and for a model that cannot be loaded or divided
 */
export function planReplicas(checkpoint: Checkpoint, options: LoadOptions): DevicePlan[] {
  const maxSequences = resolveParallel(options.parallel);
  const backends = openBackends(options);
  try {
    const drafts = options.draftModel === undefined && draftsTokens(options, backends[0]!);
    const plan = planModel(checkpoint, drafts, resolveTensorParallel(options));
    const { rankBytes, kvLayers, stateLayers } = plan;
    const contextLength = resolveContext(options.contextLength, plan.contextLength);
    const planDevice = (backend: Device, replica: number, rank: number): DevicePlan => {
      const weights = rankBytes[rank]!;
      const kvType = resolveKvType(options.kvType, backend.kind);
      const context = stateBytes(stateLayers) +
        contextLength * kvBytesPerToken(kvLayers, KV_ELEMENT_BYTES[kvType]);
      const { total, free: all } = backend.memory();
      const free = Math.min(all, backend.memoryBound ?? all);
      const needs = { contextLength, maxSequences, kvType, kvLayers, stateLayers };
      const fits = weights + context <= free;
      const { size } = chooseCaches(backend, weights, needs, options.kvMemory);
      const kvTokens = fits ? size.cacheTokens : 0;
      const { name } = backend.info;
      return { replica, rank, name, total, free, weights, context, fits, kvTokens };
    };
    return backends.flatMap((backend, replica) =>
      devicesOf(backend).map((device, rank) => planDevice(device, replica, rank))
    );
  } finally {
    for (const backend of backends) backend.close();
  }
}

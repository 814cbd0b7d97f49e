import { type Device, DeviceGroup, type DeviceMemory, devicesOf } from "../../backend.ts";
import type { Checkpoint } from "../../formats/checkpoint.ts";
import { cachesOn, chooseCaches, KV_ELEMENT_BYTES } from "../cache/memory.ts";
import { draftsTokens } from "../speculation/open_speculator.ts";
import { openBackends } from "./open_backend.ts";
import {
  type LoadOptions,
  resolveContext,
  resolveDivision,
  resolveKvType,
  resolveParallel,
} from "./options.ts";
import { kvBytesPerToken, planModel, stateBytes } from "./plan_model.ts";

/** Memory of a device, and what a replica, or its part of one, would take of it, in bytes. */
export interface DevicePlan {
  /** Index of the replica, of the stage, and of the device among those of the stage. */
  readonly replica: number;
  readonly stage: number;
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
    const division = resolveDivision(options);
    return backends.flatMap((backend, replica) => {
      const memory = devicesOf(backend).map(memoryOf);
      const plan = planModel(checkpoint, drafts, division, memory);
      const contextLength = resolveContext(options.contextLength, plan.contextLength);
      const kvType = resolveKvType(options.kvType, backend.kind);
      return devicesOf(backend).map((device, i): DevicePlan => {
        const weights = plan.deviceBytes[i]!;
        const { kvLayers, stateLayers } = cachesOn(backend, i, plan);
        const context = stateBytes(stateLayers) +
          contextLength * kvBytesPerToken(kvLayers, KV_ELEMENT_BYTES[kvType]);
        const { total, free } = memory[i]!;
        const needs = { contextLength, maxSequences, kvType, kvLayers, stateLayers };
        const fits = weights + context <= free;
        const { size } = chooseCaches(device, weights, needs, options.kvMemory);
        const kvTokens = fits ? size.cacheTokens : 0;
        const { name } = device.info;
        const { rank, stage } = backend instanceof DeviceGroup
          ? backend.placeOf(i)
          : { rank: 0, stage: 0 };
        return { replica, stage, rank, name, total, free, weights, context, fits, kvTokens };
      });
    });
  } finally {
    for (const backend of backends) backend.close();
  }
}

/** Returns a device's memory, of which its bound limits what is free. */
function memoryOf(device: Device): DeviceMemory {
  const { total, free } = device.memory();
  return { total, free: Math.min(free, device.memoryBound ?? free) };
}

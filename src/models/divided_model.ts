import type { Backend, DeviceGroup, KvCache, Recorder, StateCache } from "../backend.ts";
import { common, type RankedKv, RankedRecorder, type Value } from "../backend.ts";
import { ForgeError } from "../errors.ts";
import type { CausalLm, ModelOptions } from "./causal_lm.ts";
import type { ModelAdapters } from "./weights/adapters.ts";
import type { WeightLoader } from "./weights/weight_loader.ts";

/** A model, or a part of one, and the loader of each of its devices. */
export interface LoadedParts {
  readonly lm: CausalLm;
  readonly loaders: readonly WeightLoader[];
  /** Low-rank adapters on each device, if any. */
  readonly adapters: readonly ModelAdapters[];
}

/**
 * Loads a part of a model onto each device of a group, without its layer for multi-token
 * prediction.
 *
 * @param load loads the part of one device
 * @throws {ForgeError} `unsupported` for a model or an option that devices cannot divide
 */
export function loadDivided(
  group: DeviceGroup,
  options: ModelOptions,
  load: (backend: Backend, options: ModelOptions) => LoadedParts,
): LoadedParts {
  if (options.draftHead !== undefined) {
    throw new ForgeError("unsupported", "heads that draft tokens are not divided among devices");
  }
  const memory = group.stageMemory();
  const parts = group.devices.map((backend, device) => {
    const { rank: index, stage } = group.placeOf(device);
    const part = { rank: { index, count: group.nRanks }, stage: { index: stage, memory } };
    return load(backend, { ...options, drafts: false, part });
  });
  const loaders = parts.flatMap(({ loaders }) => loaders);
  const adapters = parts.flatMap(({ adapters }) => adapters);
  return { lm: joinParts(group, parts.map(({ lm }) => lm), loaders), loaders, adapters };
}

/** Returns a model that records the steps of all devices. */
function joinParts(
  group: DeviceGroup,
  parts: readonly CausalLm[],
  loaders: readonly WeightLoader[],
): CausalLm {
  const last = parts.at(-1)!;
  const stageOf = (kind: "kv" | "states", index: number) => {
    const device = loaders.findIndex(({ caches }) => caches[kind].has(index));
    return group.placeOf(Math.max(0, device)).stage;
  };
  type Record = (
    recorder: Recorder,
    kv: readonly KvCache[],
    states: readonly StateCache[],
  ) => Value;
  const each = (record: (lm: CausalLm) => Record): Record => (recorder, kv, states) => {
    if (!(recorder instanceof RankedRecorder)) throw new TypeError("a recorder of one device");
    const caches = kv as readonly RankedKv[];
    const values = recorder.devices.map((recorder, device) => {
      const { rank, stage } = group.placeOf(device);
      // The layers of a stage use none of the caches of others.
      const own = caches.map((cache) => cache.ranks[cache.stage === stage ? rank : 0]!);
      return record(parts[device]!)(recorder, own, states);
    });
    return common(values.slice(-group.nRanks));
  };
  const { forward } = last;
  return {
    ...last,
    kvLayers: last.kvLayers.map((layer, i) => ({ ...layer, stage: stageOf("kv", i) })),
    stateLayers: last.stateLayers.map((layer, i) => ({ ...layer, stage: stageOf("states", i) })),
    ...(forward === undefined ? {} : { forward: each((lm) => lm.forward!) }),
    hidden: each((lm) => lm.hidden),
  };
}

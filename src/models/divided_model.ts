import type { Backend, DeviceGroup, KvCache, Recorder, StateCache, Value } from "../backend.ts";
import { common, type RankedKv, RankedRecorder } from "../backend.ts";
import { ForgeError } from "../errors.ts";
import type { CausalLm, ModelOptions } from "./causal_lm.ts";
import type { LoadedModel } from "./registry.ts";

/**
 * Loads a part of a model onto each device of a group, without its layer for multi-token
 * prediction.
 *
 * @param load loads the part of one rank
 * @throws {ForgeError} `unsupported` for a model or an option that devices cannot divide
 */
export function loadDivided(
  { ranks }: DeviceGroup,
  options: ModelOptions,
  load: (backend: Backend, options: ModelOptions) => LoadedModel,
): LoadedModel {
  if (options.adapters !== undefined && options.adapters.length > 0) {
    throw new ForgeError("unsupported", "low-rank adapters are not divided among devices");
  }
  if (options.draftHead !== undefined) {
    throw new ForgeError("unsupported", "heads that draft tokens are not divided among devices");
  }
  const { length: count } = ranks;
  const loaded = ranks.map((backend, index) =>
    load(backend, { ...options, drafts: false, rank: { index, count } })
  );
  return {
    lm: joinRanks(loaded.map(({ lm }) => lm)),
    weights: loaded[0]!.weights,
    ranks: loaded.map(({ weights }) => weights),
  };
}

/** Returns a model that records the steps of all ranks. */
function joinRanks(ranks: readonly CausalLm[]): CausalLm {
  const [first] = ranks;
  if (first === undefined) throw new RangeError("a model without ranks");
  type Record = (
    recorder: Recorder,
    kv: readonly KvCache[],
    states: readonly StateCache[],
  ) => Value;
  const each = (record: (lm: CausalLm) => Record): Record => (recorder, kv, states) => {
    if (!(recorder instanceof RankedRecorder)) throw new TypeError("a recorder of one device");
    const caches = kv as readonly RankedKv[];
    return common(
      recorder.ranks.map((recorder, i) =>
        record(ranks[i]!)(recorder, caches.map(({ ranks }) => ranks[i]!), states)
      ),
    );
  };
  const { forward } = first;
  return {
    ...first,
    ...(forward === undefined ? {} : { forward: each((lm) => lm.forward!) }),
    hidden: each((lm) => lm.hidden),
  };
}

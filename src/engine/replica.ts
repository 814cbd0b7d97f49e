import type { Backend, DeviceGroup, Meter } from "../backend.ts";
import { ForgeError } from "../errors.ts";
import { type Checkpoint, openCheckpoint } from "../formats/checkpoint.ts";
import type { CausalLm } from "../models/causal_lm.ts";
import { isEagleHead } from "../models/parts/eagle_head.ts";
import { loadModel } from "../models/registry.ts";
import type { WeightLoader } from "../models/weights/weight_loader.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import type { MemoryUse } from "./cache/memory.ts";
import { PrefixStore } from "./cache/prefix_store.ts";
import type { PromptCacheKey } from "./cache/prompt_cache_file.ts";
import { promptCacheKey } from "./cache/prompt_cache_key.ts";
import { DEFAULT_CONTEXT, MAX_COUNT } from "./limits.ts";
import { openRunner } from "./load/open_runner.ts";
import {
  type LoadOptions,
  resolveContext,
  resolveKvType,
  resolveParallel,
} from "./load/options.ts";
import type { Adapters } from "./request/adapters.ts";
import { checkWholeNumber } from "../formats/arguments.ts";
import type { Runner } from "./runner.ts";
import { Scheduler } from "./schedule/scheduler.ts";
import type { SequenceAdapters } from "./token_list.ts";
import {
  draftsTokens,
  maxBranches,
  type OpenSpeculator,
  openSpeculator,
} from "./speculation/open_speculator.ts";

/** Most choices of adapters whose prompts are kept on disk at a time. */
const MAX_STORES = 64;

/** A device, which may measure its bandwidth, or several that divide a model. */
export type ModelDevice = (Backend | DeviceGroup) & Partial<Meter>;

/**
 * One copy of a model, on one device or divided among several: its weights, caches, steps and
 * scheduler.
 */
export class Replica {
  readonly backend: ModelDevice;
  readonly lm: CausalLm;
  /** Loader of each device. */
  readonly weights: readonly WeightLoader[];
  readonly runner: Runner;
  readonly scheduler: Scheduler;
  readonly #checkpoint: Checkpoint;
  readonly #draftMemory: MemoryUse;
  readonly #adapters: Adapters;
  #cacheKey: PromptCacheKey | undefined;
  #openStore: ((adapters: SequenceAdapters | undefined) => PrefixStore) | undefined;
  /** Stores of prompts, by the key of their adapters. */
  readonly #stores = new Map<string, PrefixStore>();

  private constructor(
    checkpoint: Checkpoint,
    backend: ModelDevice,
    lm: CausalLm,
    weights: readonly WeightLoader[],
    runner: Runner,
    speculation: OpenSpeculator,
    adapters: Adapters,
  ) {
    this.backend = backend;
    this.lm = lm;
    this.weights = weights;
    this.runner = runner;
    this.scheduler = new Scheduler(runner, speculation.speculator);
    this.#checkpoint = checkpoint;
    this.#draftMemory = speculation.memory;
    this.#adapters = adapters;
  }

  /**
   * Loads a checkpoint onto a device.
   *
   * @param readTokenizer reads the model's tokenizer, while the device prepares the step
   * @param adapters low-rank adapters to load with the weights
   */
  static async open(
    checkpoint: Checkpoint,
    backend: ModelDevice,
    options: LoadOptions,
    readTokenizer: () => Promise<Tokenizer>,
    adapters: Adapters,
  ): Promise<Replica> {
    const asked = options.contextLength;
    const { draftModel } = options;
    const { files } = adapters;
    const savesStates = draftsTokens(options, backend);
    const drafter = draftModel === undefined ? undefined : openCheckpoint(draftModel);
    const { lm, loaders: weights } = loadModel(backend, checkpoint, {
      sessionLength: asked ?? DEFAULT_CONTEXT,
      drafts: savesStates && drafter === undefined,
      draftHead: drafter !== undefined && isEagleHead(drafter) ? drafter : undefined,
      adapters: files,
    });
    const contextLength = resolveContext(asked, lm.contextLength);
    const maxSequences = resolveParallel(options.parallel);
    const kvType = resolveKvType(options.kvType, backend.kind);
    const nAdapters = files.length;
    const shape = {
      contextLength,
      maxSequences,
      kvType,
      savesStates,
      nAdapters,
      maxBranches: maxBranches(options, lm),
    };
    const weightBytes = weights.map(({ mappedBytes }) => mappedBytes);
    const sharers = checkWholeNumber("modelsInMemory", options.modelsInMemory ?? 1, 1, MAX_COUNT);
    const opening = openRunner(backend, lm, shape, weightBytes, options.kvMemory, sharers);
    const [tokenizer, runner] = await Promise.all([readTokenizer(), opening]);
    const target = { ...shape, backend, runner, weightBytes, tokenizer };
    const speculation = await openSpeculator(options, target);
    const replica = new Replica(checkpoint, backend, lm, weights, runner, speculation, adapters);
    if (options.kvDir !== undefined) replica.#keepPrompts(options.kvDir, options);
    return replica;
  }

  #keepPrompts(folder: string, { kvDirSize, onWarning = console.error }: LoadOptions): void {
    if (kvDirSize !== undefined) {
      checkWholeNumber("kvDirSize", kvDirSize, 1, Number.MAX_SAFE_INTEGER);
    }
    const options = { maxBytes: kvDirSize, onWarning };
    this.#openStore = (adapters) => {
      const { runner, scheduler } = this;
      const model = { key: this.cacheKey(adapters), runner, scheduler, adapters };
      return new PrefixStore(folder, model, options);
    };
    this.store(undefined);
  }

  /** Returns the files of prefixes cached with some adapters; `undefined` without `kvDir`. */
  store(adapters: SequenceAdapters | undefined): PrefixStore | undefined {
    const key = adapters?.key ?? "";
    const known = this.#stores.get(key);
    if (known !== undefined || this.#openStore === undefined) return known;
    const [oldest] = this.#stores;
    if (this.#stores.size >= MAX_STORES && oldest !== undefined) {
      this.#stores.delete(oldest[0]);
      void oldest[1].flush();
    }
    const store = this.#openStore(adapters);
    this.#stores.set(key, store);
    return store;
  }

  /** Writes the cached prefixes that are pending. */
  async flushStores(): Promise<void> {
    for (const store of this.#stores.values()) await store.flush();
  }

  /** Returns everything that keys and values cached with some adapters depend on. */
  cacheKey(adapters: SequenceAdapters | undefined): PromptCacheKey {
    const { kind, info } = this.backend;
    this.#cacheKey ??= promptCacheKey(this.#checkpoint, this.runner, `${kind}:${info.kernels}`);
    if (adapters === undefined) return this.#cacheKey;
    return { ...this.#cacheKey, adapters: this.#adapters.identity(adapters) };
  }

  /** Memory that the replica and its draft model take. */
  get memory(): MemoryUse {
    const { weights, kvCache, activations } = this.#draftMemory;
    return {
      weights: this.weights.reduce((sum, { mappedBytes }) => sum + mappedBytes, weights),
      kvCache: kvCache + this.runner.kvBytes,
      states: this.runner.stateBytes,
      activations: activations + this.runner.scratchBytes,
    };
  }

  /** True if the device answers. */
  get isWorking(): boolean {
    try {
      this.backend.memory();
      return true;
    } catch {
      return false;
    }
  }

  /** Fails all tasks. */
  stop(): void {
    this.scheduler.close(new ForgeError("device", "the model is closed"));
  }

  /** Releases the device with everything on it. */
  async close(): Promise<void> {
    await this.backend.close();
  }
}

/**
 * Loads a checkpoint onto several devices, one after another.
 *
 * @throws {ForgeError} as {@linkcode Replica.open}, naming the replica if there are several;
 * `usage` if the devices have different kernels, with which answers would depend on the replica
 */
export async function openReplicas(
  checkpoint: Checkpoint,
  backends: readonly ModelDevice[],
  options: LoadOptions,
  readTokenizer: () => Promise<Tokenizer>,
  adapters: Adapters,
): Promise<Replica[]> {
  const kernels = backends.map(({ info }) => [info.kernels, ...info.features].join(" "));
  const other = kernels.findIndex((name) => name !== kernels[0]);
  if (other > 0) {
    throw new ForgeError(
      "usage",
      `${nameReplica(0, backends[0]!)} computes with ${kernels[0]}, but ` +
        `${nameReplica(other, backends[other]!)} with ${
          kernels[other]
        }; replicas need devices of one ` +
        "kind, so that answers do not depend on the replica",
    );
  }
  const replicas: Replica[] = [];
  for (const [i, backend] of backends.entries()) {
    try {
      replicas.push(await Replica.open(checkpoint, backend, options, readTokenizer, adapters));
    } catch (error) {
      if (i === 0 || !(error instanceof ForgeError)) throw error;
      throw new ForgeError(error.code, `${nameReplica(i, backend)}: ${error.message}`, {
        cause: error,
      });
    }
  }
  return replicas;
}

/** Returns "replica 2 (NVIDIA H100)" for the index 1. */
export function nameReplica(index: number, { info }: ModelDevice): string {
  return `replica ${index + 1} (${info.name})`;
}

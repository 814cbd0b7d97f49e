/** Tests the size of caches for devices with different amounts of memory. */
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import {
  type Backend,
  type BackendKind,
  DeviceGroup,
  type KvCache,
  type KvShape,
  type KvType,
  type Recorder,
  type Step,
  type Value,
} from "../../../../src/backend.ts";
import {
  type CacheNeeds,
  cachesOn,
  chooseCaches,
  sizeCaches,
} from "../../../../src/engine/cache/memory.ts";
import { leastMemory, load } from "../../../../src/engine/load/load.ts";
import { kvBytesPerToken } from "../../../../src/engine/load/plan_model.ts";
import { openRunner } from "../../../../src/engine/load/open_runner.ts";
import type { LoadOptions } from "../../../../src/engine/load/options.ts";
import { ForgeError } from "../../../../src/errors.ts";
import type { CausalLm } from "../../../../src/models/causal_lm.ts";
import { deviceTest } from "../../../support/devices.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { writeEndlessLlama } from "../../../support/tiny_llama.ts";
import { FakeBackend } from "../../models/fakes.ts";

const GIB = 2 ** 30;

/** An 8B model: 32 layers of 8 heads of 128, 128 KiB a token in F16, and 5 GiB of weights. */
const LAYER = { nKvHeads: 8, kHeadDim: 128, vHeadDim: 128 };
const NEEDS: CacheNeeds = {
  contextLength: 32768,
  maxSequences: 32,
  kvType: "F16",
  kvLayers: Array(32).fill(LAYER),
  stateLayers: [],
};
const TOKEN_BYTES = 128 * 1024;
const WEIGHTS = 5 * GIB;

function device(kind: BackendKind, total: number, free = total) {
  return { kind, memory: () => ({ total, free }) };
}

/** GiB of the KV cache on a device. */
function kvGib(kind: BackendKind, gib: number, needs = NEEDS): number {
  const { size } = chooseCaches(device(kind, gib * GIB), WEIGHTS, needs);
  return size.cacheTokens * TOKEN_BYTES / GIB;
}

Deno.test("KV memory is a share of the memory left by the weights", () => {
  assertEquals(kvGib("cuda", 24), 0.75 * 19);
  assertEquals(kvGib("cuda", 80), 0.75 * 75);
  assertEquals(kvGib("metal", 37), 16);
  assertEquals(kvGib("cpu", 37), 8);
  assertEquals(kvGib("reference", 37), 8);
});

Deno.test("KV memory holds at least one context and at most all sequences", () => {
  assertEquals(kvGib("cuda", 640), 32 * 4);
  assertEquals(kvGib("cuda", 640, { ...NEEDS, maxSequences: 2 }), 2 * 4);
  assertEquals(kvGib("cuda", 8), 4);
  assertEquals(kvGib("cpu", 4), 4);
});

Deno.test("KV memory is a share of free memory, not of total memory", () => {
  const shared = device("cuda", 80 * GIB, 25 * GIB);
  const { size } = chooseCaches(shared, WEIGHTS, NEEDS);
  assertEquals(size.cacheTokens * TOKEN_BYTES, 15 * GIB);
});

Deno.test("a device of unknown memory is assumed to have 8 GiB", () => {
  const needs = { ...NEEDS, contextLength: 64, maxSequences: 256 };
  const { size } = chooseCaches(device("cpu", 0), 7 * GIB, needs);
  assertEquals(size.cacheTokens * TOKEN_BYTES, GIB / 4);
});

Deno.test("a given KV memory replaces the share and must hold a context", () => {
  const gpu = device("cuda", 80 * GIB);
  const { size } = chooseCaches(gpu, WEIGHTS, NEEDS, 6 * GIB);
  assertEquals(size.cacheTokens * TOKEN_BYTES, 6 * GIB);
  const error = assertThrows(() => chooseCaches(gpu, WEIGHTS, NEEDS, GIB), ForgeError);
  assertEquals(error.code, "usage");
  assertEquals(
    error.message,
    "the KV memory is 1.0 GiB, but a context of 32768 tokens takes 4.0 GiB; " +
      "a context of 8192 tokens would fit",
  );
  const MIB = 2 ** 20;
  const texts = [
    ...[[1536, "1.5 KiB"], [MIB - 1, "1024.0 KiB"], [MIB, "1.0 MiB"]] as const,
    ...[[512 * MIB, "512.0 MiB"], [GIB - 1, "1024.0 MiB"], [1.5 * GIB, "1.5 GiB"]] as const,
  ];
  for (const [bytes, text] of texts) {
    const refused = () => chooseCaches(gpu, WEIGHTS, NEEDS, bytes);
    assertThrows(refused, ForgeError, `the KV memory is ${text}, but`);
  }
  chooseCaches(gpu, WEIGHTS, { ...NEEDS, contextLength: 8192 }, GIB);
  assertThrows(() => chooseCaches(gpu, WEIGHTS, NEEDS, 1.5), ForgeError, "kvMemory is 1.5");
  const bounded = chooseCaches({ ...gpu, memoryBound: 5 * GIB }, WEIGHTS, NEEDS, 6 * GIB);
  assertEquals(bounded.size.cacheTokens * TOKEN_BYTES, 5 * GIB);
});

Deno.test("models that share a device divide its share among them", () => {
  const { size } = chooseCaches(device("cuda", 85 * GIB), WEIGHTS, NEEDS, undefined, 3);
  assertEquals(size.cacheTokens * TOKEN_BYTES, 0.75 * 80 / 3 * GIB);
});

Deno.test("caches have whole pages, and values stored in keys take no memory", () => {
  const latent = { nKvHeads: 1, kHeadDim: 64, vHeadDim: 48, valuesInKeys: true };
  const shape = { contextLength: 1000, maxSequences: 4, stateLayers: [] };
  const tokens = (needs: Pick<CacheNeeds, "kvType" | "kvLayers">, budget: number) =>
    sizeCaches({ ...shape, ...needs }, budget).cacheTokens;
  assertEquals(tokens({ kvType: "F32", kvLayers: [latent, latent] }, 512 * 2000), 1984);
  assertEquals(tokens({ kvType: "F16", kvLayers: [latent, latent] }, 512 * 2000), 3968);
  assertEquals(tokens({ kvType: "F32", kvLayers: [latent] }, 2 ** 40), 4 * 1024);
  // Bytes of the 64 elements of a token.
  const tokenBytes = { F32: 256, F16: 128, BF16: 128, Q8_0: 68, Q4_0: 36 } as const;
  for (const [kvType, bytes] of Object.entries(tokenBytes) as [KvType, number][]) {
    const needs = { kvType, kvLayers: [latent] };
    assertEquals(tokens(needs, bytes * 1920), 1920, kvType);
    assertEquals(tokens(needs, bytes * 1920 - 1), 1856, kvType);
  }
});

Deno.test("recurrent states take their memory before keys and values", () => {
  const KIB = 1024;
  // A state takes 16 KiB, and a page of 64 tokens 8 KiB.
  const needs: CacheNeeds = {
    contextLength: 128,
    maxSequences: 8,
    kvType: "F16",
    kvLayers: [{ nKvHeads: 1, kHeadDim: 32, vHeadDim: 32 }],
    stateLayers: [{ rows: 64, cols: 64 }],
  };
  assertEquals(sizeCaches(needs, 160 * KIB), { nSlots: 5, cacheTokens: 10 * 64 });
  assertEquals(sizeCaches(needs, 50 * KIB), { nSlots: 2, cacheTokens: 2 * 64 });
  const gpu = device("cuda", GIB);
  const refuse = (message: string, kvMemory?: number, memoryBound?: number) => {
    const error = assertThrows(
      () => chooseCaches({ ...gpu, memoryBound }, 0, needs, kvMemory),
      ForgeError,
    );
    assertEquals([error.code, error.message], ["usage", message]);
  };
  const takes = "but a context of 128 tokens takes 48.0 KiB";
  const advice = "a context of 64 tokens would fit";
  refuse(`the KV memory is 40.0 KiB, ${takes}; ${advice}`, 40 * KIB);
  refuse(`the KV memory is 39.0 KiB, ${takes}`, 39 * KIB);
  refuse(`the memory is 47.5 KiB, ${takes}; ${advice}`, undefined, 47.5 * KIB);
  const { size } = chooseCaches({ ...gpu, memoryBound: 48 * KIB }, 0, needs, 48 * KIB);
  assertEquals(size, { nSlots: 2, cacheTokens: 128 });
});

Deno.test("a device holds the caches of the layers of its stage", () => {
  const group = new DeviceGroup(Array.from({ length: 4 }, () => new FakeBackend()), 2);
  const layer = { nKvHeads: 1, kHeadDim: 4, vHeadDim: 4 };
  const kvLayers = [layer, { ...layer, stage: 1 }, { ...layer, stage: 0 }];
  const stateLayers = [{ rows: 2, cols: 2, stage: 1 }, { rows: 3, cols: 3 }];
  const first = { kvLayers: [kvLayers[0]!, kvLayers[2]!], stateLayers: [stateLayers[1]!] };
  const second = { kvLayers: [kvLayers[1]!], stateLayers: [stateLayers[0]!] };
  const held = [0, 1, 2, 3].map((i) => cachesOn(group, i, { kvLayers, stateLayers }));
  assertEquals(held, [first, first, second, second]);
});

Deno.test("kept hidden states are never quantised", () => {
  const layer = { nKvHeads: 1, kHeadDim: 64, vHeadDim: 64, valuesInKeys: true };
  const bytes = (keepsHidden: boolean) =>
    [4, 2, 34 / 32].map((element) => kvBytesPerToken([{ ...layer, keepsHidden }], element));
  assertEquals(bytes(false), [256, 128, 68]);
  assertEquals(bytes(true), [256, 128, 128]);
});

/**
 * A fake GPU that rejects a step if caches and activations exceed its free memory. The error names
 * the context that would fit.
 */
class TightGpu extends FakeBackend {
  override readonly kind = "cuda" as unknown as "reference";
  readonly #free: number;
  readonly #activations: number;
  #caches = 0;
  #pageBytes = 0;

  constructor(free: number, activations: number) {
    super();
    this.#free = free;
    this.#activations = activations;
  }

  override memory() {
    return { total: this.#free, free: this.#free };
  }

  override createKv(shape?: KvShape): KvCache {
    const pageBytes = shape!.pageTokens * 2 * shape!.nKvHeads * (shape!.kHeadDim + shape!.vHeadDim);
    this.#pageBytes += pageBytes;
    this.#caches += shape!.nPages * pageBytes;
    return { pageBytes } as KvCache;
  }

  override record(): Recorder {
    const [caches, pageBytes] = [this.#caches, this.#pageBytes];
    this.#caches = 0;
    this.#pageBytes = 0;
    const finish = () => {
      const room = this.#free - this.#activations;
      if (caches <= room) return Promise.resolve({} as Step);
      const fitting = Math.floor(room / pageBytes) * 64;
      const message = `a context of ${fitting} tokens would fit`;
      return Promise.reject(new ForgeError("device", message));
    };
    return { keep() {}, sample() {}, finish } as unknown as Recorder;
  }
}

Deno.test("the suggested context fits, for any number of sequences", async () => {
  const lm: CausalLm = {
    vocabSize: 100,
    hiddenSize: 8,
    hasHead: true,
    contextLength: 32768,
    kvLayers: NEEDS.kvLayers,
    stateLayers: [],
    forward: () => 1 as Value,
    hidden: () => 1 as Value,
  };
  for (const gib of [1, 3, 4]) {
    for (const activations of [0.1, 0.9]) {
      const open = (contextLength: number, maxSequences: number, kvMemory?: number) => {
        const backend: Backend = new TightGpu(gib * GIB, activations * GIB);
        const shape = { contextLength, maxSequences, kvType: "F16" } as const;
        return openRunner(backend, lm, shape, [0], kvMemory);
      };
      for (const maxSequences of [1, 4, 32]) {
        const error = await assertRejects(() => open(32768, maxSequences), ForgeError);
        const fitting = Number(/context of (\d+) tokens would fit/.exec(error.message)?.[1]);
        assert(fitting > 0);
        const runner = await open(fitting, maxSequences);
        assertEquals(runner.contextLength, fitting);
        await open(fitting, maxSequences, 5 * GIB);
      }
    }
  }
});

Deno.test("the least memory of a model is what loading it for one sequence takes", async () => {
  using folder = new TempFolder();
  writeEndlessLlama(folder.path);
  const divisions = [[{}, 1], [{ dataParallel: 2 }, 2], [{ tensorParallel: 2 }, 2]] as const;
  for (const kvType of ["F32", "F16", "BF16", "Q8_0", "Q4_0"] as const) {
    for (const [division, nDevices] of divisions) {
      const devices = Array<string>(nDevices).fill("cpu");
      const options = { devices, contextLength: 256, kvType, ...division };
      await using model = await load(folder.path, { ...options, parallel: 1 });
      const { weights, kvCache, states } = model.memory;
      assertEquals([states, kvCache % 2], [0, 0], "of no recurrent layer, and of whole elements");
      if ("tensorParallel" in division) assertEquals(model.readBandwidth(), 0, "unknown");
      const kvBytes = leastMemory(folder.path, options) - weights;
      // Short heads do not fill the blocks of quantised caches.
      const fill = kvType.startsWith("Q") ? 0.6 : 1;
      assert(
        kvBytes <= kvCache && kvBytes >= fill * kvCache,
        `${kvBytes} of ${kvCache}, ${kvType}`,
      );
    }
  }
  const least = (options: LoadOptions) =>
    leastMemory(folder.path, { contextLength: 256, ...options });
  assertEquals(least({}), least({ kvType: "F16" }), "the default");
});

deviceTest("a device reports its memory", (device) => {
  const { total, free } = device.memory();
  assert(free > 0 && free <= total, `${free} of ${total}`);
  // Control groups may limit a process to less than the machine has.
  const isHost = device.kind === "cpu" || device.kind === "reference";
  if (isHost) assert(total <= Deno.systemMemoryInfo().total);
});

/** The models of a server under random uses, unloads and failures: which are loaded when. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError, type Model } from "../../../src/mod.ts";
import { createHandler, type ModelSource, offerModels } from "../../../src/serve/mod.ts";
import {
  bytesOf,
  modelName,
  ModelPool,
  parseDuration,
  UnknownModel,
} from "../../../src/serve/model_pool.ts";
import { Random } from "../../support/random.ts";

const NO_MEMORY = { weights: 0, kvCache: 0, states: 0, activations: 0 };

/** Lets a random number of other microtasks and timers run first. */
async function pause(random: Random): Promise<void> {
  for (let i = random.int(0, 3); i > 0; i--) await undefined;
  if (random.chance(0.3)) await new Promise((resolve) => setTimeout(resolve));
}

class Offer {
  /** Number of copies of each model that are loaded or being closed. */
  readonly copies = [0, 0, 0];
  /** Most models in memory at a time. */
  most = 0;
  readonly lines: string[] = [];
  readonly pool: ModelPool;

  constructor(random: Random, maxLoaded: number, failures: number) {
    const sources = this.copies.map((_, i): ModelSource => ({
      names: [`m${i}`],
      checkpoint: () => {
        throw new Error("not read");
      },
      leastMemory: () => 0,
      load: async () => {
        await pause(random);
        if (random.chance(failures)) throw new ForgeError("bad_model", "broken");
        assertEquals(++this.copies[i]!, 1, "a model is loaded twice");
        this.most = Math.max(this.most, this.copies.reduce((sum, copies) => sum + copies));
        let isClosed = false;
        const close = async () => {
          assert(!isClosed, "a model is closed twice");
          isClosed = true;
          await pause(random);
          this.copies[i]!--;
          if (random.chance(failures)) throw new ForgeError("device", "lost");
        };
        const facts = { contextLength: 8, memory: NO_MEMORY, deviceMemory: { total: 0, free: 0 } };
        return {
          ...facts,
          get isClosed() {
            return isClosed;
          },
          [Symbol.asyncDispose]: close,
        } as unknown as Model;
      },
    }));
    this.pool = new ModelPool(sources, { maxLoaded, onChange: (line) => this.lines.push(line) });
  }
}

Deno.test("model pool: a model in use is loaded once and stays, and all end closed", async () => {
  const random = new Random("model pool");
  for (let round = 0; round < 30; round++) {
    const maxLoaded = random.int(1, 3);
    const failures = random.pick([0, 0, 0.3]);
    const offer = new Offer(random, maxLoaded, failures);
    const { pool } = offer;
    const client = async () => {
      for (let i = random.int(1, 4); i > 0; i--) {
        await pause(random);
        const offered = random.pick(pool.offered);
        if (random.chance(0.2)) {
          await pool.unload(offered);
          continue;
        }
        const keepAlive = random.pick([undefined, 0, 1, Infinity]);
        try {
          using use = await pool.use(offered, keepAlive);
          const check = () => {
            const { isClosed } = use.model as unknown as { isClosed: boolean };
            assert(!isClosed, "a model in use is closed");
          };
          check();
          await pause(random);
          check();
          if (random.chance(0.5)) continue;
          const shared = use.share();
          use[Symbol.dispose]();
          await pause(random);
          check();
          shared[Symbol.dispose]();
        } catch (error) {
          assert(error instanceof ForgeError && error.message === "broken", String(error));
        }
      }
    };
    await Promise.all(Array.from({ length: random.int(1, 5) }, client));
    if (random.chance(0.5)) await pause(random);
    // An unload in progress, by its time or by a request, is waited for.
    if (random.chance(0.5)) void pool.unload(random.pick(pool.offered));
    if (failures === 0) await pool[Symbol.asyncDispose]();
    else await pool[Symbol.asyncDispose]().catch(() => {});
    if (failures === 0) assertEquals(offer.copies, [0, 0, 0], `round ${round}`);
    assert(offer.most <= maxLoaded, `${offer.most} models in memory, not ${maxLoaded}`);
    assertEquals(pool.offered.map(({ users }) => users), [0, 0, 0]);
  }
});

Deno.test("model pool: a model that fails to close is reported, and the next one is loaded", async () => {
  const offer = new Offer(new Random("closing"), 1, 0);
  const { pool } = offer;
  const [first, second] = pool.offered;
  (await pool.use(first!))[Symbol.dispose]();
  const { model } = first!;
  Object.assign(model!, {
    [Symbol.asyncDispose]: () => Promise.reject(new ForgeError("device", "lost")),
  });
  (await pool.use(second!))[Symbol.dispose]();
  assertEquals(offer.lines.map((line) => line.replace(/ \(.*/, "")), [
    'loaded "m0"',
    'unloaded "m0": lost',
    'loaded "m1"',
  ]);
  await pool[Symbol.asyncDispose]();
});

Deno.test("model pool: closing waits for a model that is being loaded, and closes it", async () => {
  const offer = new Offer(new Random("closing while loading"), 1, 0);
  const use = offer.pool.use(offer.pool.offered[0]!);
  await offer.pool[Symbol.asyncDispose]();
  assertEquals([offer.most, offer.copies], [1, [0, 0, 0]]);
  (await use)[Symbol.dispose]();
});

Deno.test("model pool: a model is unloaded if the next one does not fit next to it", async () => {
  const load = async (deviceMemory: { total: number; free: number }, needed: number) => {
    const lines: string[] = [];
    const model = {
      contextLength: 8,
      memory: { ...NO_MEMORY, weights: 30, kvCache: 10 },
      deviceMemory,
      [Symbol.asyncDispose]: () => Promise.resolve(),
    } as unknown as Model;
    const sources = ["a", "b"].map((name): ModelSource => ({
      names: [name],
      checkpoint: () => {
        throw new Error("not read");
      },
      leastMemory: () => needed,
      load: () => Promise.resolve(model),
    }));
    const pool = new ModelPool(sources, { onChange: (line) => lines.push(line.split(" ")[0]!) });
    for (const offered of pool.offered) (await pool.use(offered))[Symbol.dispose]();
    return lines.join(" ");
  };
  const [both, one] = ["loaded loaded", "loaded unloaded loaded"];
  for (
    const [total, free, needed, expected] of [
      [100, 60, 60, both],
      [100, 60, 61, one],
      // Memory that other programs take, and files that are mapped and count as free.
      [100, 20, 30, one],
      [100, 90, 61, one],
      // Unknown.
      [0, 0, 1000, both],
    ] as const
  ) assertEquals(await load({ total, free }, needed), expected, `${total} ${free} ${needed}`);
});

Deno.test("model pool: a request whose options fail gives the model back", async () => {
  const model = { adapters: [], contextLength: 8 } as unknown as Model;
  const source: ModelSource = {
    names: ["a"],
    checkpoint: () => {
      throw new Error("not read");
    },
    leastMemory: () => 0,
    load: () => Promise.resolve(model),
    defaults: () => {
      throw new ForgeError("usage", "no such option");
    },
  };
  const models = offerModels([source]);
  const handler = createHandler(models, { onError: () => {} });
  const response = await handler(
    new Request("http://localhost/tokenize", { method: "POST", body: '{"content":"a"}' }),
  );
  assertEquals(response.status, 500);
  await response.text();
  assertEquals((models as ModelPool).offered[0]!.users, 0);
});

Deno.test("model pool: a model is found by each name, with an adapter and a tag", () => {
  const source = (names: readonly [string, ...string[]], adapters?: string[]): ModelSource => ({
    names,
    ...(adapters === undefined ? {} : { adapters }),
    checkpoint: () => {
      throw new Error("not read");
    },
    load: () => Promise.reject(new Error("not loaded")),
    leastMemory: () => 0,
  });
  const pool = new ModelPool([source(["a", "b"], ["x", "y"]), source(["c:latest"])]);
  assertEquals(pool.names, ["a", "b", "a:x", "a:y", "b:x", "b:y", "c:latest"]);
  const [first, second] = pool.offered;
  for (
    const [name, offered, adapter] of [
      [undefined, first, undefined],
      ["a", first, undefined],
      ["b:latest", first, undefined],
      ["b:y", first, "y"],
      ["b:y:latest", first, undefined],
      ["c:latest", second, undefined],
    ] as const
  ) {
    assertEquals([pool.find(name), offered!.adapterOf(name)], [offered!, adapter], name);
  }
  for (const name of ["c", "c:x", "a:z", "x", "", ":latest", "latest"]) {
    assertThrows(() => pool.find(name), UnknownModel, "is not served here");
  }
  assertEquals(second!.adapterOf("a:x"), undefined);
  const twice = [[source(["a"], ["x"]), source(["a:x"])], [source(["a", "a"])]];
  for (const sources of twice) {
    assertThrows(() => new ModelPool(sources), ForgeError, "two models have the name");
  }
  const nameless = { ...source(["a"]), names: [] } as unknown as ModelSource;
  assertThrows(() => offerModels([nameless]), ForgeError, "an array of at least one name");
  for (
    const [path, name] of [
      ["/m/Qwen.gguf", "Qwen"],
      ["/m/Qwen.GGUF", "Qwen"],
      ["/m/v1.5/", "v1.5"],
      [".", "model"],
      ["..", "model"],
    ] as const
  ) assertEquals(modelName(path), name);
  const memory = { weights: 1, kvCache: 2, states: 4, activations: 8 };
  assertEquals(bytesOf({ memory } as unknown as Model), 15);
});

Deno.test("model pool: the last use says how long a model stays", async () => {
  const offer = new Offer(new Random("stay"), 3, 0);
  const { pool } = offer;
  const [offered] = pool.offered;
  const MONTH = 31 * 86_400_000;
  for (const keepAlive of [60_000, MONTH, undefined, 90_000]) {
    const use = await pool.use(offered!, keepAlive);
    const shared = use.share();
    use[Symbol.dispose]();
    // A use ends once.
    use[Symbol.dispose]();
    assertEquals([offered!.users, offered!.expiresAt], [1, Infinity]);
    const before = Date.now();
    shared[Symbol.dispose]();
    const { expiresAt } = offered!;
    if (keepAlive === undefined) assertEquals(expiresAt, Infinity);
    else assert(expiresAt >= before + keepAlive && expiresAt <= Date.now() + keepAlive);
    // A timer cannot wait for a month, and must not end at once.
    await new Promise((resolve) => setTimeout(resolve, 5));
    assertEquals(pool.loaded, [offered]);
  }
  assertEquals(offer.lines.length, 1, "it is loaded once");
  await pool[Symbol.asyncDispose]();
  const brief = new ModelPool([offered!.source], { keepAliveMs: 60_000 });
  const before = Date.now();
  (await brief.use(brief.offered[0]!))[Symbol.dispose]();
  assert(brief.offered[0]!.expiresAt >= before + 60_000);
  assert(brief.offered[0]!.expiresAt <= Date.now() + 60_000);
  await brief[Symbol.asyncDispose]();
});

Deno.test("model pool: a model of the caller is neither unloaded nor closed", async () => {
  const model = {
    adapters: [{ name: "x" }],
    checkpoint: { path: "/m/a.gguf" },
    [Symbol.asyncDispose]: () => Promise.reject(new Error("it was closed")),
  } as unknown as Model;
  const pool = ModelPool.of(model, undefined, {});
  assertEquals(pool.names, ["a", "a:x"]);
  const [offered] = pool.offered;
  await pool.unload(offered!);
  assertEquals(pool.loaded, [offered]);
  await pool[Symbol.asyncDispose]();
});

Deno.test("model pool: durations are seconds, or numbers with units", () => {
  for (
    const [text, ms] of [
      ["90", 90_000],
      ["0", 0],
      [" 1.5 ", 1500],
      ["+2", 2000],
      [".5s", 500],
      ["20ms", 20],
      ["2m", 120_000],
      ["1.5h", 5_400_000],
      ["1h2m3s4ms", 3_723_004],
      ["-1", Infinity],
      ["-5m", Infinity],
      ["-1ms", Infinity],
      ["-0s", 0],
    ] as const
  ) assertEquals(parseDuration(text), ms, text);
  for (const text of ["", "s", "1h30", "1 h", "1d", "--1", "1e3", "1.2.3", "h1"]) {
    assertEquals(parseDuration(text), undefined, text);
  }
});

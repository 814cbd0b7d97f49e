/** Tests that models leave no memory allocated: loaded, run and closed again and again. */
import { assert, assertEquals } from "@std/assert";
import { ForgeError, load, type LoadOptions } from "../../src/mod.ts";
import { ROOT } from "../support/checkout.ts";
import { heldFiles, TempFolder } from "../support/temp_folder.ts";
import { writeLlamaAdapter, writeRandomLlama } from "../support/tiny_llama.ts";

/** Loads until caches and compiled code have their final size, and loads that are measured. */
const WARM_UP = 120, LOADS = 80;

/** Limit of the growth for each load. Measured are less than 500 bytes of native memory. */
const LIMIT_BYTES = 2000;

/** Members of glibc's struct mallinfo2, in order. */
const MALLINFO = [
  ...["arena", "ordblks", "smblks", "hblks", "hblkhd"],
  ...["usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"],
];

/** Opens glibc's `mallinfo2`; undefined where it is missing. */
function openMallinfo() {
  const result = { struct: MALLINFO.map(() => "usize" as const) };
  try {
    return Deno.dlopen("libc.so.6", { mallinfo2: { parameters: [], result } });
  } catch {
    return undefined;
  }
}

/**
 * Loads, runs and closes a model `LOADS` times, and prints by how many bytes memory grew for each.
 */
async function measure(folder: string): Promise<void> {
  const libc = openMallinfo()!;
  const { gc } = globalThis as unknown as { gc: () => void };
  const inUse = async () => {
    // A turn of the event loop lets finalizers run between the two collections.
    gc();
    await new Promise((resolve) => setTimeout(resolve, 20));
    gc();
    const info = new BigUint64Array(libc.symbols.mallinfo2().buffer);
    const native = info[MALLINFO.indexOf("uordblks")]! + info[MALLINFO.indexOf("hblkhd")]!;
    const { heapUsed, external } = Deno.memoryUsage();
    return { native: Number(native), heap: heapUsed + external };
  };
  const run = async (count: number) => {
    for (let i = 0; i < count; i++) {
      await using model = await load(folder, { device: "cpu", threads: 2 });
      await model.complete("Once upon a time", { maxTokens: 3, regex: "[a-z ]+" });
      await model.complete(new Int32Array([1, 2, 3]), { maxTokens: 2, logprobs: 2 });
    }
  };
  await run(WARM_UP);
  const before = await inUse();
  await run(LOADS);
  const after = await inUse();
  console.log(JSON.stringify({
    native: (after.native - before.native) / LOADS,
    heap: (after.heap - before.heap) / LOADS,
  }));
}

Deno.test({
  name: "models leave no file open or mapped when they are closed, or cannot be loaded",
  ignore: Deno.build.os !== "linux",
  fn: async () => {
    using folder = new TempFolder();
    const path = folder.at("model"), draftModel = folder.at("draft"), adapter = folder.at("lora");
    const options = { config: { max_position_embeddings: 128 } };
    writeRandomLlama(path, options);
    writeRandomLlama(draftModel, options, 2);
    writeLlamaAdapter(adapter);
    const short = folder.at("short");
    writeRandomLlama(short, {
      change: (tensors) => tensors.filter(({ name }) => !name.includes("1.mlp.down_proj")),
    });
    const small: LoadOptions = { device: "cpu", threads: 2, contextLength: 64 };
    const used: LoadOptions[] = [
      {},
      { device: "reference" },
      { dataParallel: 2 },
      { tensorParallel: 2 },
      { pipelineParallel: 2 },
      { draftModel },
      { lora: [{ path: adapter }] },
      { memory: 2e6 },
      { kvDir: folder.at("kv") },
    ];
    for (const each of used) {
      {
        await using model = await load(path, { ...small, ...each });
        assert(heldFiles(path).length > 0);
        await model.complete("Once", { maxTokens: 4 });
        for await (const _ of model.generate("Once upon", { maxTokens: 8 })) break;
        if (each.kvDir === undefined) {
          await model.savePrompt(folder.at("prompt.kv"), "Once upon a time");
          await model.loadPrompt(folder.at("prompt.kv"));
        }
      }
      assertEquals(heldFiles(folder.path), [], JSON.stringify(each));
    }
    const refused: [string, LoadOptions][] = [
      [short, {}],
      [short, { tensorParallel: 2 }],
      [path, { draftModel: short }],
      [path, { draftModel: folder.at("missing") }],
      [path, { lora: [{ path: short }] }],
      [path, { tensorParallel: 3 }],
      [path, { memory: 1000 }],
      [path, { kvMemory: 1 }],
      [path, { contextLength: 1e9 }],
      [path, { devices: ["cpu", "no such device"] }],
    ];
    for (const [model, each] of refused) {
      const error: unknown = await load(model, { ...small, ...each }).then(
        (model) => model.close(),
        (error) => error,
      );
      assert(error instanceof ForgeError, `${JSON.stringify(each)}: ${error}`);
      assertEquals(heldFiles(folder.path), [], error.message);
    }
  },
});

Deno.test({
  name: "models leave no memory allocated when they are closed",
  ignore: Deno.build.os !== "linux",
  fn: async () => {
    const libc = openMallinfo();
    if (libc === undefined) return console.error("skipping: this libc has no mallinfo2");
    libc.close();
    using folder = new TempFolder();
    const { success, stdout, stderr } = await new Deno.Command(Deno.execPath(), {
      args: [
        ...["run", "--allow-all", "--no-check", "--v8-flags=--expose-gc"],
        ...[`--config=${ROOT}/deno.json`, `${ROOT}/test/models/memory_test.ts`],
        writeRandomLlama(folder.at("model")).folder,
      ],
    }).output();
    assert(success, new TextDecoder().decode(stderr));
    const { native, heap } = JSON.parse(new TextDecoder().decode(stdout));
    assert(native < LIMIT_BYTES, `${native} bytes of native memory for each load`);
    assert(heap < LIMIT_BYTES, `${heap} bytes of JavaScript's memory for each load`);
  },
});

const [folder] = Deno.args;
if (import.meta.main && folder !== undefined) await measure(folder);

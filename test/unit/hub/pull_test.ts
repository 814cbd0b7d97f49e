import {
  assert,
  assertEquals,
  assertRejects,
  assertStringIncludes,
  assertThrows,
} from "@std/assert";
import { join } from "@std/path";
import { ForgeError } from "../../../src/errors.ts";
import { download } from "../../../src/hub/download.ts";
import {
  CACHE_VARIABLE,
  listModels,
  lockRepository,
  removeModel,
} from "../../../src/hub/model_store.ts";
import { ENDPOINT_VARIABLE, pull } from "../../../src/hub/pull.ts";
import { FakeHub } from "./fake_hub.ts";

const bytes = (length: number) => crypto.getRandomValues(new Uint8Array(length));

/** Runs a test against a hub, with an empty store. */
async function withHub(hub: FakeHub, test: (store: string) => Promise<void>): Promise<void> {
  const store = await Deno.makeTempDir();
  const before = [CACHE_VARIABLE, ENDPOINT_VARIABLE].map((name) => [name, Deno.env.get(name)]);
  Deno.env.set(CACHE_VARIABLE, store);
  Deno.env.set(ENDPOINT_VARIABLE, hub.endpoint);
  try {
    await using _ = hub;
    await test(store);
  } finally {
    for (const [name, value] of before) {
      if (value === undefined) Deno.env.delete(name!);
      else Deno.env.set(name!, value);
    }
    await Deno.remove(store, { recursive: true });
  }
}

Deno.test("pull downloads a GGUF file once and finds it again without asking", async () => {
  const data = bytes(60_000);
  const hub = new FakeHub({ "model-Q4_K_M.gguf": data, "model-Q8_0.gguf": bytes(10) });
  await withHub(hub, async () => {
    const progress: number[] = [];
    const model = await pull("org/model", { onProgress: (_, done) => progress.push(done) });
    assertEquals(await Deno.readFile(model.path), data);
    assertEquals(progress.at(-1), data.length);
    const asked = hub.requests.length;
    assertEquals((await pull("org/model")).path, model.path);
    assertEquals(hub.requests.length, asked);
    assertEquals(listModels(), [model]);
  });
});

Deno.test("a removed model is gone, with its folder; what others of its repository need stays", async () => {
  const files = { "model-Q4_K_M.gguf": bytes(60), "model-Q8_0.gguf": bytes(10) };
  const hub = new FakeHub(files);
  await withHub(hub, async (store) => {
    const small = await pull("org/model:Q4_K_M");
    const same = await pull("org/model:model-Q4_K_M.gguf");
    const large = await pull("org/model:Q8_0");
    assertEquals(same.path, small.path);
    assertEquals(removeModel("org/other"), undefined);

    const names = () => listModels().map(({ name }) => name);
    const before = names();
    assertEquals(removeModel(large.name)?.bytes, 10);
    assertEquals(names(), before.filter((name) => name !== large.name));
    await assertRejects(() => Deno.stat(large.path), Deno.errors.NotFound);
    while (names().length > 0) {
      assertEquals(await Deno.readFile(small.path), files["model-Q4_K_M.gguf"]);
      assert(removeModel(names()[0]!) !== undefined);
    }
    assertEquals([...Deno.readDirSync(join(store, "models"))], []);
  });
});

Deno.test("what cannot be written is said at once, and named", async () => {
  const hub = new FakeHub({ "a.gguf": bytes(10) });
  await withHub(hub, async (store) => {
    const part = join(store, "models", "org", "model", "main", "a.gguf.part");
    await Deno.mkdir(join(part, "in the way"), { recursive: true });
    const error = await assertRejects(() => pull("org/model"), ForgeError, "cannot write");
    assertEquals(error.code, "device");
    assertStringIncludes(error.message, CACHE_VARIABLE);
    assert(hub.requests.filter(({ path }) => path.includes("resolve")).length <= 1);
  });
});

Deno.test("pull downloads what a safetensors folder needs and nothing else", async () => {
  const files = {
    "config.json": bytes(5),
    "tokenizer.json": bytes(6),
    "model-00001-of-00002.safetensors": bytes(7),
    "model-00002-of-00002.safetensors": bytes(8),
    "model.safetensors.index.json": bytes(9),
    "pytorch_model.bin": bytes(10),
    "README.md": bytes(11),
  };
  const hub = new FakeHub(files);
  await withHub(hub, async () => {
    const { path } = await pull("org/folder");
    const names = [...Deno.readDirSync(path)].map(({ name }) => name).sort();
    assertEquals(names, [
      ".forge",
      "config.json",
      "model-00001-of-00002.safetensors",
      "model-00002-of-00002.safetensors",
      "model.safetensors.index.json",
      "tokenizer.json",
    ]);
  });
});

Deno.test("a download whose connection ends early goes on where it stopped", async () => {
  const data = bytes(50_000);
  const hub = new FakeHub({ "a.gguf": data });
  hub.cutAfter = 20_000;
  await withHub(hub, async () => {
    const { path } = await pull("org/model:a.gguf");
    assertEquals(await Deno.readFile(path), data);
    assertEquals(hub.requests.map(({ range }) => range), [null, null, "bytes=20000-"]);
  });
});

Deno.test("a server that ignores ranges sends the file again from its beginning", async () => {
  const data = bytes(50_000);
  const hub = new FakeHub({ "a.gguf": data });
  hub.cutAfter = 20_000;
  hub.honoursRange = false;
  await withHub(hub, async () => {
    assertEquals(await Deno.readFile((await pull("org/model")).path), data);
  });
});

Deno.test("a download goes on as long as it gets further", async () => {
  const data = bytes(50_000);
  const hub = new FakeHub({ "a.gguf": data });
  hub.cutAfter = 6_000;
  hub.cuts = 8;
  await withHub(hub, async () => {
    assertEquals(await Deno.readFile((await pull("org/model")).path), data);
  });
});

Deno.test("a connection from which nothing comes is given up for another", async () => {
  const data = bytes(500);
  const hub = new FakeHub({ "a.gguf": data });
  hub.cutAfter = 200;
  hub.stalls = true;
  await withHub(hub, async (store) => {
    const path = join(store, "a.gguf");
    const url = `${hub.endpoint}/org/model/resolve/main/a.gguf`;
    await download({ url, path, headers: {}, bytes: 500, sha256: undefined, stallMs: 100 });
    assertEquals(await Deno.readFile(path), data);
    assertEquals(hub.requests.map(({ range }) => range), [null, "bytes=200-"]);
  });
});

Deno.test("a file that does not end where it should is refused and leaves nothing behind", async () => {
  const hub = new FakeHub({ "a.gguf": bytes(50_000) }, { "a.gguf": { size: 100 } });
  await withHub(hub, async () => {
    await assertRejects(() => pull("org/model"), ForgeError, "longer than its 100 bytes");
    assertEquals(listModels(), []);
  });
});

Deno.test("what has begun to arrive is listed, goes on, and can be removed", async () => {
  const data = bytes(50_000);
  const hub = new FakeHub({ "a.gguf": data });
  hub.cutAfter = 20_000;
  await withHub(hub, async (store) => {
    const interrupt = async () => {
      hub.cuts = 1;
      hub.failures.push(0, 0, 403);
      await assertRejects(() => pull("org/model"), ForgeError, "403");
      assertEquals(listModels().map((model) => ({ ...model, path: "" })), [
        { name: "org/model", path: "", bytes: 20_000, total_bytes: 50_000, complete: false },
      ]);
    };
    await interrupt();
    assertEquals(removeModel("org/model")?.bytes, 20_000);
    assertEquals([...Deno.readDirSync(join(store, "models"))], []);
    await interrupt();
    const model = await pull("org/model");
    assertEquals([await Deno.readFile(model.path), model.complete], [data, true]);
    assertEquals(hub.requests.at(-1)?.range, "bytes=20000-");
  });
});

Deno.test("a repository that another process downloads from is waited for", async () => {
  const hub = new FakeHub({ "a.gguf": bytes(10), "b.gguf": bytes(20) });
  await withHub(hub, async (store) => {
    await pull("org/model:a.gguf");
    const lock = lockRepository(join(store, "models", "org", "model", "main"));
    assertThrows(() => removeModel("org/model:a.gguf"), ForgeError, "another process");
    let waits = 0;
    const onWait = () => {
      waits++;
      lock?.[Symbol.dispose]();
    };
    assertEquals((await pull("org/model:b.gguf", { onWait })).bytes, 20);
    assertEquals(waits, 1);
  });
});

Deno.test("a server error is tried again, a refusal is not", async () => {
  const hub = new FakeHub({ "a.gguf": bytes(10) });
  await withHub(hub, async () => {
    hub.failures.push(503, 429, 0, 500);
    await pull("org/model");
    assertEquals(hub.requests.length, 5);
    removeModel("org/model");
    hub.failures.push(429, 429, 429, 429, 429);
    await assertRejects(() => pull("org/model"), ForgeError, "429: there are too many requests");
    hub.failures.push(401);
    const refused = await assertRejects(() => pull("org/model"), ForgeError, "401");
    assertStringIncludes(refused.message, "HF_TOKEN");
    hub.failures.push(404);
    await assertRejects(() => pull("org/model"), ForgeError, "no such model");
  });
});

Deno.test("a file with a wrong checksum is refused and leaves nothing behind", async () => {
  const hub = new FakeHub({ "a.gguf": bytes(10) }, { "a.gguf": { sha256: "0".repeat(64) } });
  await withHub(hub, async (store) => {
    await assertRejects(() => pull("org/model"), ForgeError, "damaged");
    assertEquals(listModels(), []);
    assertEquals([...Deno.readDirSync(join(store, "models"))], []);
  });
});

Deno.test("a file name that leaves the folder is refused", async () => {
  const hub = new FakeHub({ "../../evil.gguf": bytes(10) });
  await withHub(hub, async () => {
    await assertRejects(() => pull("org/model"), ForgeError, "not safe");
  });
});

Deno.test("an unreachable hub is named", async () => {
  const hub = new FakeHub({});
  await withHub(hub, async () => {
    Deno.env.set(ENDPOINT_VARIABLE, "http://127.0.0.1:1");
    await assertRejects(() => pull("org/model"), ForgeError, "127.0.0.1:1 cannot be reached");
  });
});

Deno.test("a stopped download keeps what has arrived and counts as incomplete", async () => {
  const hub = new FakeHub({ "a.gguf": bytes(10) });
  await withHub(hub, async () => {
    const error = await assertRejects(
      () => pull("org/model", { signal: AbortSignal.abort() }),
      ForgeError,
    );
    assertEquals(error.code, "cancelled");
    assert(listModels().length === 0);
  });
});

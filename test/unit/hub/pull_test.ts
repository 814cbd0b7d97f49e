import {
  assert,
  assertEquals,
  assertMatch,
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
import { hubName } from "../../../src/hub/model_reference.ts";
import { pull } from "../../../src/hub/pull.ts";
import { FakeHub } from "./fake_hub.ts";

const bytes = (length: number) => crypto.getRandomValues(new Uint8Array(length));

/** Runs a test against a hub, with an empty store, no other cache and the variables given. */
async function withHub(
  hub: FakeHub,
  test: (store: string) => Promise<void>,
  variables: Readonly<Record<string, string>> = {},
): Promise<void> {
  const store = await Deno.makeTempDir();
  const set = {
    [CACHE_VARIABLE]: store,
    HF_HOME: `${store}/hf`,
    HF_ENDPOINT: hub.endpoint,
    MODELSCOPE_ENDPOINT: hub.endpoint,
    ...variables,
  };
  const before = Object.keys(set).map((name) => [name, Deno.env.get(name)] as const);
  for (const [name, value] of Object.entries(set)) Deno.env.set(name, value);
  try {
    await using _ = hub;
    await test(store);
  } finally {
    for (const [name, value] of before) {
      if (value === undefined) Deno.env.delete(name);
      else Deno.env.set(name, value);
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

Deno.test("pull takes the addresses of models", () => {
  const names = {
    "https://huggingface.co/org/name": "org/name",
    "huggingface.co/org/name/": "org/name",
    "hf.co/org/name:Q4_K_M": "org/name:Q4_K_M",
    "https://hf.co/org/name/tree/v1.0": "org/name@v1.0",
    "https://huggingface.co/org/name/tree/main?x=y": "org/name",
    "https://huggingface.co/org/name/blob/main/a/model-Q8_0.gguf": "org/name:a/model-Q8_0.gguf",
    "https://huggingface.co/org/name/resolve/v1.0/b%20c.gguf?download=true":
      "org/name@v1.0:b c.gguf",
    "https://huggingface.co/org/name/blob/main/config.json": "org/name",
    "https://example.com/org/name": "https://example.com/org/name",
    "modelscope:org/name@v1:Q4": "modelscope:org/name@v1:Q4",
    "https://modelscope.cn/models/org/name": "modelscope:org/name",
    "www.modelscope.cn/models/org/name/summary": "modelscope:org/name",
    "https://modelscope.cn/models/org/name/files:Q8_0": "modelscope:org/name:Q8_0",
    "https://modelscope.cn/models/org/name/tree/v2/a": "modelscope:org/name@v2",
    "https://modelscope.cn/models/org/name/file/view/master/a.gguf?status=2":
      "modelscope:org/name:a.gguf",
    "https://modelscope.cn/models/org/name/resolve/v2/b%20c.gguf":
      "modelscope:org/name@v2:b c.gguf",
    "https://modelscope.cn/datasets/org/name": "https://modelscope.cn/datasets/org/name",
    "hf.co/org/name@v1:sub/model-Q4_0.gguf": "org/name@v1:sub/model-Q4_0.gguf",
    "http://www.huggingface.co/org/name?x": "org/name",
    "https://hf.co/org/name/blob/main/%zz.gguf": "org/name:%zz.gguf",
    "https://hf.co/org/name/blob/main/a%3Ab.gguf": "https://hf.co/org/name/blob/main/a%3Ab.gguf",
    "https://hf.co/org/name/discussions/1": "https://hf.co/org/name/discussions/1",
    "https://hf.co/datasets/org/name": "https://hf.co/datasets/org/name",
    "org/name@v1:Q4": "org/name@v1:Q4",
    "./hf.co/org/name": "./hf.co/org/name",
  };
  for (const [text, name] of Object.entries(names)) assertEquals(hubName(text), name);
});

Deno.test("pull takes addresses of models on a mirror, and no mirror without a scheme", async () => {
  const hub = new FakeHub({ "a.gguf": bytes(10) });
  await withHub(hub, async () => {
    assertEquals((await pull(`${hub.endpoint}/org/model`)).name, "org/model");
    assertEquals(hubName(`${hub.endpoint}/models/org/name`), "modelscope:org/name");
    for (const address of ["hf-mirror.example", "ftp://a", "https://"]) {
      Deno.env.set("HF_ENDPOINT", address);
      await assertRejects(() => pull("org/other"), ForgeError, "valid is an address such as");
    }
  });
});

Deno.test("a token goes to the hub, and not to hosts that it redirects to", async () => {
  const files = { "a.gguf": bytes(10) };
  for (
    const [name, cookie] of [["org/model", null], [
      "modelscope:org/model",
      "m_session_id=key",
    ]] as const
  ) {
    await using host = new FakeHub(files);
    const hub = new FakeHub(files);
    hub.redirect = host.endpoint;
    const test = async () => {
      await pull(name);
      const sent = ["Bearer key", cookie];
      assertEquals(hub.requests.map(({ secrets }) => secrets), [sent, sent]);
      assertEquals(host.requests.map(({ secrets }) => secrets), [[null, null]]);
    };
    await withHub(hub, test, { HF_TOKEN: "key", MODELSCOPE_API_TOKEN: "key" });
  }
});

Deno.test("a server that asks to wait is asked again at its time", async () => {
  // The text of a date has no fractions of a second.
  const times = [() => "1", () => new Date(Date.now() + 2000).toUTCString()];
  for (const retryAfter of times) {
    const hub = new FakeHub({ "a.gguf": bytes(10) });
    hub.failures.push(429);
    await withHub(hub, async () => {
      hub.retryAfter = retryAfter();
      const start = performance.now();
      await pull("org/model");
      // Without the header it would be half a second.
      assert(performance.now() - start >= 900, hub.retryAfter);
    });
  }
});

Deno.test("pull downloads from ModelScope, next to the same name on the hub", async () => {
  const data = bytes(60_000);
  const hub = new FakeHub({ "model-Q4_K_M.gguf": data, "sub/model-Q8_0.gguf": bytes(10) });
  await withHub(hub, async () => {
    const model = await pull("modelscope:org/model");
    assertEquals([model.name, model.complete], ["modelscope:org/model", true]);
    assertEquals(await Deno.readFile(model.path), data);
    assertEquals(hub.requests.map(({ path }) => path), [
      "/api/v1/models/org/model/repo/files",
      "/models/org/model/resolve/master/model-Q4_K_M.gguf",
    ]);
    assertEquals((await pull("https://modelscope.cn/models/org/model/files")).path, model.path);
    assertEquals(hub.requests.length, 2);
    const other = await pull("org/model");
    assert(other.path !== model.path);
    assertEquals(listModels().map(({ name }) => name), ["modelscope:org/model", "org/model"]);
    await pull("modelscope:org/model@v2:Q8_0");
    assertEquals(hub.requests.at(-1)?.path, "/models/org/model/resolve/v2/sub/model-Q8_0.gguf");
    assertEquals(removeModel("modelscope:org/model")?.bytes, data.length);
    assertEquals(await Deno.readFile(other.path), data);
  });
});

Deno.test("what ModelScope lists is checked", async () => {
  const declared = { "a.gguf": { sha256: "0".repeat(64) } };
  const hub = new FakeHub({ "a.gguf": bytes(10) }, declared);
  await withHub(hub, async () => {
    await assertRejects(() => pull("modelscope:org/model"), ForgeError, "damaged");
    hub.listing = () => Response.json({ Code: 10010205001, Message: "no", Data: null });
    await assertRejects(() => pull("modelscope:org/model"), ForgeError, '("Data.Files")');
    // Other values, and a folder that is named like a file.
    const entry = (Path: string, Type: string) => ({ Path, Type, Size: 10 });
    const Files = [null, 5, entry("a.gguf", "tree"), entry("b.gguf", "blob")];
    hub.listing = () => Response.json({ Data: { Files } });
    await assertRejects(() => pull("modelscope:org/model"), ForgeError, "b.gguf answered 404");
    hub.listing = undefined;
    hub.replaceFiles({ "../../evil.gguf": bytes(10) });
    await assertRejects(() => pull("modelscope:org/model"), ForgeError, "not safe");
    assertEquals(listModels(), []);
  });
});

/** Writes a model into a cache of the hub's own programs, which links its files. */
class HubCache {
  readonly snapshot: string;
  readonly #folder: string;

  constructor(cache: string, commit: string) {
    this.#folder = join(cache, "models--org--model");
    this.snapshot = join(this.#folder, "snapshots", commit);
    for (const each of [join(this.#folder, "refs"), join(this.#folder, "blobs"), this.snapshot]) {
      Deno.mkdirSync(each, { recursive: true });
    }
    Deno.writeTextFileSync(join(this.#folder, "refs", "main"), `${commit}\n`);
  }

  add(name: string): void {
    Deno.writeTextFileSync(join(this.#folder, "blobs", name), "weights");
    Deno.symlinkSync(`../../blobs/${name}`, join(this.snapshot, name));
  }

  removeBlob(name: string): void {
    Deno.removeSync(join(this.#folder, "blobs", name));
  }
}

const COMMIT = "0123456789".repeat(4);

Deno.test("pull finds whole models in the cache of the hub's own programs", async () => {
  const hub = new FakeHub({ "model-Q4_K_M.gguf": bytes(60) });
  await withHub(hub, async (store) => {
    const cache = new HubCache(join(store, "hf", "hub"), COMMIT);
    const { snapshot } = cache;
    cache.add("model-Q8_0.gguf");
    assertEquals((await pull("org/model:Q8_0")).path, join(snapshot, "model-Q8_0.gguf"));
    assertEquals((await pull(`org/model@${COMMIT}`)).path, join(snapshot, "model-Q8_0.gguf"));
    Deno.mkdirSync(join(snapshot, "sub"));
    Deno.writeTextFileSync(join(snapshot, "sub", "b-F16.gguf"), "ab");
    const below = await pull("org/model:sub/b-F16.gguf");
    assertEquals([below.path, below.bytes], [join(snapshot, "sub", "b-F16.gguf"), 2]);
    assertEquals(hub.requests.length, 0);
    await assertRejects(() => pull("modelscope:org/model@main:Q8_0"), ForgeError);
    cache.add("config.json");
    cache.add("tokenizer.json");
    cache.add("model-00001-of-00002.safetensors");
    hub.requests.length = 0;
    await pull("org/model");
    assert(hub.requests.length > 0, "a part is missing in the cache");
    cache.add("model-00002-of-00002.safetensors");
    const folder = await pull("https://hf.co/org/model/tree/" + COMMIT);
    assertEquals([folder.path, folder.bytes], [snapshot, 4 * "weights".length]);
    Deno.removeSync(join(snapshot, "tokenizer.json"));
    assert((await pull(`org/model@${COMMIT}`)).path !== snapshot, "the tokenizer is missing");
    cache.removeBlob("model-Q8_0.gguf");
    await assertRejects(() => pull("org/model:Q8_0"), ForgeError, "does not have");
  });
});

Deno.test("the cache of the hub's own programs is where their variables say", async () => {
  const root = await Deno.makeTempDir();
  try {
    const cases: readonly (readonly [folder: string, Record<string, string>])[] = [
      ["a", { HF_HUB_CACHE: join(root, "a"), HUGGINGFACE_HUB_CACHE: join(root, "no") }],
      ["b", { HUGGINGFACE_HUB_CACHE: join(root, "b") }],
      ["c/hub", { HF_HOME: "~/c", HOME: root }],
      ["d/huggingface/hub", { HF_HOME: "", XDG_CACHE_HOME: join(root, "d") }],
      [".cache/huggingface/hub", { HF_HOME: "", XDG_CACHE_HOME: "", HOME: root }],
    ];
    for (const [folder, variables] of cases) {
      const cache = new HubCache(join(root, folder), COMMIT);
      cache.add("model-Q8_0.gguf");
      const hub = new FakeHub({});
      await withHub(hub, async () => {
        assertEquals((await pull("org/model")).path, join(cache.snapshot, "model-Q8_0.gguf"));
      }, variables);
    }
  } finally {
    await Deno.remove(root, { recursive: true });
  }
});

Deno.test("removing a model removes its folder, except files that other models share", async () => {
  const files = { "model-Q4_K_M.gguf": bytes(60), "model-Q8_0.gguf": bytes(10) };
  const hub = new FakeHub(files);
  await withHub(hub, async (store) => {
    const small = await pull("org/model:Q4_K_M");
    const same = await pull("org/model:model-Q4_K_M.gguf");
    const large = await pull("org/model:Q8_0");
    assertEquals(same.path, small.path);
    assertEquals(removeModel("org/other"), undefined);

    // Both models list one more file.
    const folder = join(store, "models", "org", "model", "main");
    const shared = join(folder, "shared.bin");
    const data = bytes(7);
    Deno.writeFileSync(shared, data);
    for (const name of ["model-Q4_K_M.gguf", "model-Q8_0.gguf"]) {
      const path = join(folder, ".forge", `${name}.json`);
      const manifest = JSON.parse(Deno.readTextFileSync(path));
      manifest.files.push({ path: "shared.bin", bytes: 7 });
      Deno.writeTextFileSync(path, JSON.stringify(manifest));
    }
    const names = () => listModels().map(({ name }) => name);
    const before = names();
    assertEquals(before.length, 2);
    assertEquals(removeModel(large.name)?.bytes, 10);
    assertEquals(names(), before.filter((name) => name !== large.name));
    assertEquals(await Deno.readFile(shared), data);
    await assertRejects(() => Deno.stat(large.path), Deno.errors.NotFound);
    while (names().length > 0) {
      assertEquals(await Deno.readFile(small.path), files["model-Q4_K_M.gguf"]);
      assert(removeModel(names()[0]!) !== undefined);
    }
    assertEquals([...Deno.readDirSync(join(store, "models"))], []);
  });
});

Deno.test("models are listed by name and removed with their folders, next to other files", async () => {
  const hub = new FakeHub({ "sub/a.gguf": bytes(10) });
  hub.listing = () => Response.json({ siblings: [{ rfilename: "sub/a.gguf" }] });
  await withHub(hub, async (store) => {
    const names = ["m/z", "z/a", "a/m", "q/b", "b/q"];
    for (const name of names) await pull(name);
    Deno.writeTextFileSync(join(store, "models", "notes.txt"), "");
    Deno.writeTextFileSync(join(store, "models", "m", "notes.txt"), "");
    assertEquals(listModels().map(({ name }) => name), names.toSorted());
    for (const { complete, total_bytes, bytes } of listModels()) {
      assertEquals([complete, total_bytes, bytes], [true, null, 10]);
    }
    for (const name of names) removeModel(name);
    const left = (...path: string[]) =>
      Array.from(Deno.readDirSync(join(store, "models", ...path)), ({ name }) => name).sort();
    assertEquals([left(), left("m")], [["m", "notes.txt"], ["notes.txt"]]);
  });
});

Deno.test("the store is in the cache folder of the user unless a variable names it", async () => {
  const hub = new FakeHub({ "a.gguf": bytes(10) });
  await withHub(hub, async (store) => {
    const cases = [
      [{ XDG_CACHE_HOME: join(store, "x"), HOME: join(store, "h") }, join("x", "forge")],
      [
        { XDG_CACHE_HOME: "", HOME: join(store, "h"), LOCALAPPDATA: join(store, "l") },
        Deno.build.os === "windows" ? join("l", "forge") : join("h", ".cache", "forge"),
      ],
    ] as const;
    for (const [variables, folder] of cases) {
      const test = async () => {
        const { path } = await pull("org/model");
        assertEquals(path, join(store, folder, "models", "org", "model", "main", "a.gguf"));
      };
      const mirror = new FakeHub({ "a.gguf": bytes(10) });
      await withHub(mirror, test, { ...variables, [CACHE_VARIABLE]: "" });
    }
  });
});

Deno.test("a file that cannot be written is reported at once, by name", async () => {
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

Deno.test("pull downloads only the files that a safetensors folder needs", async () => {
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

Deno.test("a download continues after the connection ends early", async () => {
  const data = bytes(50_000);
  const hub = new FakeHub({ "a.gguf": data });
  hub.cutAfter = 20_000;
  await withHub(hub, async () => {
    const { path } = await pull("org/model:a.gguf");
    assertEquals(await Deno.readFile(path), data);
    assertEquals(hub.requests.map(({ range }) => range), [null, null, "bytes=20000-"]);
    assert(hub.requests.at(-1)?.ifRange !== null);
  });
});

Deno.test("a server that ignores ranges sends the complete file again", async () => {
  const data = bytes(50_000);
  const hub = new FakeHub({ "a.gguf": data });
  hub.cutAfter = 20_000;
  hub.honoursRange = false;
  await withHub(hub, async () => {
    assertEquals(await Deno.readFile((await pull("org/model")).path), data);
  });
});

Deno.test("a range that was not asked for is asked for again, or arrives damaged", async () => {
  const data = bytes(50_000);
  for (const start of [0, 7]) {
    const hub = new FakeHub({ "a.gguf": data });
    hub.cutAfter = 20_000;
    let edits = 0;
    hub.editRange = (headers) => {
      if (edits++ === 0) headers["content-range"] = `bytes ${start}-49999/50000`;
    };
    await withHub(hub, async () => {
      // A file that begins at 0 is taken for the whole one.
      if (start === 0) await assertRejects(() => pull("org/model"), ForgeError, "arrived damaged");
      else assertEquals(Deno.readFileSync((await pull("org/model")).path), data);
      const ranges = hub.requests.map(({ range }) => range);
      assertEquals(ranges, [null, null, "bytes=20000-", `bytes=${start === 0 ? 30000 : 20000}-`]);
    });
  }
});

Deno.test("a download is retried while it makes progress", async () => {
  const data = bytes(50_000);
  const hub = new FakeHub({ "a.gguf": data });
  hub.cutAfter = 6_000;
  hub.cuts = 8;
  await withHub(hub, async () => {
    assertEquals(await Deno.readFile((await pull("org/model")).path), data);
  });
});

Deno.test("a download that made progress ends after five failures in a row", async () => {
  const hub = new FakeHub({ "a.gguf": bytes(50_000) });
  hub.cutAfter = 20_000;
  await withHub(hub, async () => {
    hub.failures.push(0, 0, 503, 503, 503, 503, 503);
    await assertRejects(() => pull("org/model"), ForgeError, "received data is kept");
    assertEquals(hub.requests.length, 7);
  });
});

Deno.test("a stalled connection is replaced", async () => {
  const data = bytes(500);
  const hub = new FakeHub({ "a.gguf": data });
  hub.cutAfter = 200;
  hub.stalls = true;
  await withHub(hub, async (store) => {
    const path = join(store, "a.gguf");
    const url = `${hub.endpoint}/org/model/resolve/main/a.gguf`;
    await download({ url, path, headers: {}, bytes: 500, checksum: undefined, stallMs: 100 });
    assertEquals(await Deno.readFile(path), data);
    assertEquals(hub.requests.map(({ range }) => range), [null, "bytes=200-"]);
  });
});

Deno.test("a file that is too long is rejected and removed", async () => {
  const hub = new FakeHub({ "a.gguf": bytes(50_000) }, { "a.gguf": { size: 100 } });
  await withHub(hub, async () => {
    await assertRejects(() => pull("org/model"), ForgeError, "longer than its 100 bytes");
    assertEquals(listModels(), []);
  });
});

Deno.test("an incomplete model is listed, continues, and can be removed", async () => {
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

Deno.test("pull waits for another process that downloads from the repository", async () => {
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

Deno.test("a pull that waits can be stopped, and finds what the other one downloaded", async () => {
  const hub = new FakeHub({ "a.gguf": bytes(10), "b.gguf": bytes(20) });
  await withHub(hub, async (store) => {
    const model = await pull("org/model:a.gguf");
    const folder = join(store, "models", "org", "model", "main");
    const lock = lockRepository(folder);
    const stop = new AbortController();
    const stopped = () =>
      pull("org/model:b.gguf", { signal: stop.signal, onWait: () => stop.abort() });
    assertEquals((await assertRejects(stopped, ForgeError)).code, "cancelled");
    lock?.[Symbol.dispose]();
    Deno.removeSync(model.path);
    const both = await Promise.all([pull("org/model:a.gguf"), pull("org/model:a.gguf")]);
    assertEquals(both.map(({ complete }) => complete), [true, true]);
    assertEquals(hub.requests.filter(({ path }) => path.endsWith("/a.gguf")).length, 2);
  });
});

Deno.test("the hub's listing is checked; entries without a name or a size count as such", async () => {
  const data = bytes(10);
  const hub = new FakeHub({ "a.gguf": data });
  await withHub(hub, async () => {
    for (const body of [{}, [], null, "x", { siblings: {} }]) {
      hub.listing = () => Response.json(body);
      await assertRejects(() => pull("org/model"), ForgeError, "siblings");
    }
    const folder = { "config.json": bytes(5), "tokenizer.json": bytes(6), [SHARDS[0]]: bytes(7) };
    const sizes = Object.keys(folder).map((rfilename, i) => ({ rfilename, size: [5, null, 7][i] }));
    hub.listing = () => Response.json({ siblings: sizes });
    hub.replaceFiles(folder);
    const { total_bytes, complete } = await pull("org/other");
    assertEquals([total_bytes, complete], [null, true]);
    hub.replaceFiles({ "a.gguf": data });
    const siblings = [
      null,
      5,
      {},
      { rfilename: 7 },
      { rfilename: "a.gguf", size: -1, lfs: { sha256: "z".repeat(64) }, blobId: 3 },
    ];
    hub.listing = () => Response.json({ siblings, sha: "main" });
    assertEquals(Deno.readFileSync((await pull("org/model")).path), data);
  });
});

Deno.test("server errors are retried, client errors are not", async () => {
  const hub = new FakeHub({ "a.gguf": bytes(10) });
  await withHub(hub, async () => {
    hub.failures.push(503, 429, 0, 500);
    await pull("org/model");
    assertEquals(hub.requests.length, 5);
    removeModel("org/model");
    hub.requests.length = 0;
    hub.failures.push(408, 503, 429, 500, 0, 408, 429, 500, 503);
    await pull("org/model");
    assertEquals(hub.requests.length, 10);
    removeModel("org/model");
    hub.requests.length = 0;
    hub.failures.push(429, 429, 429, 429, 429);
    await assertRejects(() => pull("org/model"), ForgeError, "429: too many requests");
    assertEquals(hub.requests.length, 5);
    hub.failures.push(401);
    const refused = await assertRejects(() => pull("org/model"), ForgeError, "401");
    assertStringIncludes(refused.message, "HF_TOKEN");
    hub.failures.push(404);
    await assertRejects(() => pull("org/model"), ForgeError, "no such model");
  });
});

Deno.test("a file with a wrong checksum is rejected and removed", async () => {
  const hub = new FakeHub({ "a.gguf": bytes(10) }, { "a.gguf": { sha256: "0".repeat(64) } });
  await withHub(hub, async (store) => {
    await assertRejects(() => pull("org/model"), ForgeError, "damaged");
    assertEquals(listModels(), []);
    assertEquals([...Deno.readDirSync(join(store, "models"))], []);
  });
});

Deno.test("a file name that leads out of the folder is rejected", async () => {
  const hub = new FakeHub({ "../../evil.gguf": bytes(10) });
  await withHub(hub, async () => {
    await assertRejects(() => pull("org/model"), ForgeError, "not safe");
  });
});

Deno.test("a repository cannot name files of the store itself", async () => {
  const names = [
    ".forge/Qwen_Qwen3-0.6B.gguf",
    ".FORGE/a.gguf",
    "a/.hidden/b.gguf",
    "a//b.gguf",
    "/a.gguf",
    "a.part/b.gguf",
    "a.part.etag/b.gguf",
    "a\\b.gguf",
    "c:b.gguf",
    "a\u200d/b.gguf",
  ];
  for (const name of names) {
    const hub = new FakeHub({ [name]: bytes(10) });
    await withHub(hub, async () => {
      await assertRejects(() => pull("org/model"), ForgeError, "not safe");
      assertEquals(listModels(), []);
    });
  }
});

Deno.test("a manifest counts only for its own repository's files", async () => {
  const hub = new FakeHub({ "a.gguf": bytes(10) });
  await withHub(hub, async (store) => {
    const model = await pull("org/model");
    const folder = join(store, "models", "org", "model", "main");
    const manifest = {
      name: "org/model",
      entry: "a.gguf",
      files: [{ path: "a.gguf", bytes: 10 }],
    };
    const path = join(folder, ".forge", "a.gguf.json");
    const write = (value: unknown) => Deno.writeTextFileSync(path, JSON.stringify(value));
    write(manifest);
    assertEquals(listModels(), [model]);
    const foreign: readonly unknown[] = [
      { ...manifest, name: "Qwen/Qwen3-0.6B" },
      { ...manifest, name: "org/model@other" },
      { ...manifest, name: "no name" },
      { ...manifest, entry: "../../../../etc/passwd" },
      { ...manifest, entry: "b.gguf" },
      { ...manifest, entry: undefined },
      { ...manifest, entry: 7 },
      { ...manifest, files: [{ path: "../a.gguf", bytes: 10 }, ...manifest.files] },
      { ...manifest, files: [{ path: "a.gguf", bytes: "10" }] },
      { ...manifest, files: [null] },
      [],
      null,
    ];
    for (const value of foreign) {
      write(value);
      assertEquals(listModels(), [], JSON.stringify(value));
    }
    Deno.writeTextFileSync(join(folder, ".forge", "other.json"), JSON.stringify(manifest));
    assertEquals(listModels(), []);
  });
});

const SHARDS = [
  "model-00001-of-00002.safetensors",
  "model-00002-of-00002.safetensors",
] as const;

for (const listsChecksums of [true, false]) {
  Deno.test(
    `shards of a revision that moved are fetched again, ${
      listsChecksums ? "with" : "without"
    } checksums`,
    async () => {
      const version = () => ({
        "config.json": bytes(5),
        [SHARDS[0]]: bytes(70),
        [SHARDS[1]]: bytes(80),
      });
      const hub = new FakeHub(version());
      hub.listsChecksums = listsChecksums;
      await withHub(hub, async () => {
        // The listing, the config and the first shard succeed; the second shard is refused.
        hub.failures.push(0, 0, 0, 403);
        await assertRejects(() => pull("org/model"), ForgeError, "403");
        const later = version();
        hub.replaceFiles(later);
        const { path } = await pull("org/model");
        for (const [name, data] of Object.entries(later)) {
          assertEquals(await Deno.readFile(join(path, name)), data, name);
        }
      });
    },
  );
}

Deno.test("all files are of the commit that was listed, although its branch moves", async () => {
  const version = () => ({
    "config.json": bytes(5),
    [SHARDS[0]]: bytes(70),
    [SHARDS[1]]: bytes(80),
  });
  const listed = version();
  const hub = new FakeHub(listed);
  Object.assign(hub, { listsCommits: true, listsChecksums: false });
  hub.onDownload = () => hub.replaceFiles(version());
  await withHub(hub, async () => {
    const { path } = await pull("org/model");
    for (const [name, data] of Object.entries(listed)) {
      assertEquals(await Deno.readFile(join(path, name)), data, name);
    }
  });
});

for (const sendsEtags of [true, false]) {
  for (const listsChecksums of [true, false]) {
    const known = `${sendsEtags ? "an" : "no"} ETag and ${listsChecksums ? "a" : "no"} checksum`;
    Deno.test(`a partial download of a changed file starts again, with ${known}`, async () => {
      const hub = new FakeHub({ "a.gguf": bytes(50_000) });
      Object.assign(hub, { sendsEtags, listsChecksums, cutAfter: 20_000 });
      await withHub(hub, async (store) => {
        hub.failures.push(0, 0, 403);
        await assertRejects(() => pull("org/model"), ForgeError, "403");
        const folder = join(store, "models", "org", "model", "main");
        const names = listModels().length === 0
          ? []
          : Array.from(Deno.readDirSync(folder), ({ name }) => name).sort();
        // A part that nothing identifies is not kept.
        const parts = ["a.gguf.part", ...(sendsEtags ? ["a.gguf.part.etag"] : [])];
        assertEquals(names, sendsEtags || listsChecksums ? [".forge", ...parts] : []);
        const data = bytes(50_000);
        hub.replaceFiles({ "a.gguf": data });
        hub.cutAfter = undefined;
        const { path } = await pull("org/model");
        assertEquals(await Deno.readFile(path), data);
        assertEquals(
          Array.from(Deno.readDirSync(folder), ({ name }) => name).sort(),
          [".forge", "a.gguf"],
        );
      });
    });
  }
}

Deno.test("a small file is checked by its Git blob id", async () => {
  const hub = new FakeHub({ "a.gguf": new TextEncoder().encode("hello\n") });
  const listed = (blobId: string) => () =>
    Response.json({ siblings: [{ rfilename: "a.gguf", size: 6, blobId }] });
  await withHub(hub, async () => {
    hub.listing = listed("0".repeat(40));
    await assertRejects(() => pull("org/model"), ForgeError, "Git blob");
    // As printed by: echo hello | git hash-object --stdin
    hub.listing = listed("ce013625030ba8dba906f756967f9e9ca394464a");
    assertEquals((await pull("org/model")).bytes, 6);
    removeModel("org/model");
    // The blob of a large file is a pointer to it. As printed by: echo hello | sha256sum
    const sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
    const large = { rfilename: "a.gguf", size: 6, blobId: "0".repeat(40), lfs: { sha256 } };
    hub.listing = () => Response.json({ siblings: [large] });
    assertEquals((await pull("org/model")).bytes, 6);
  });
});

Deno.test("names of files are encoded, and a mirror may end in a slash", async () => {
  const name = "sub/a#b 5%.gguf";
  const hub = new FakeHub({ [name]: bytes(10) });
  const test = async () => {
    const { path } = await pull("org/model");
    assert(path.endsWith(join("main", name)), path);
    assertEquals(hub.requests.map(({ path, secrets }) => [path, ...secrets]), [
      ["/api/models/org/model/revision/main", null, null],
      [`/org/model/resolve/main/${name}`, null, null],
    ]);
    removeModel("org/model");
  };
  // An empty token is none.
  await withHub(hub, test, { HF_ENDPOINT: `${hub.endpoint}/`, HF_TOKEN: "" });
});

Deno.test("characters of a listing that arrive in parts are whole", async () => {
  const hub = new FakeHub({ "zwölf.gguf": bytes(10) });
  await withHub(hub, async () => {
    const body = JSON.stringify({ siblings: [{ rfilename: "zwölf.gguf" }] });
    const text = new TextEncoder().encode(body);
    const cut = text.indexOf(0xc3) + 1;
    const parts = async function* () {
      yield text.subarray(0, cut);
      await new Promise((resolve) => setTimeout(resolve, 50));
      yield text.subarray(cut);
    };
    hub.listing = () => new Response(ReadableStream.from(parts()));
    assert((await pull("org/model")).path.endsWith("zwölf.gguf"));
  });
});

Deno.test("a pull that waits for a busy server can be stopped", async () => {
  const hub = new FakeHub({ "a.gguf": bytes(10) });
  await withHub(hub, async () => {
    const stop = new AbortController();
    hub.listing = () => {
      setTimeout(() => stop.abort(), 50);
      return new Response(null, { status: 429, headers: { "retry-after": "60" } });
    };
    const start = performance.now();
    const error = await assertRejects(() => pull("org/model", stop), ForgeError);
    assertEquals(error.code, "cancelled");
    assert(performance.now() - start < 30_000);
  });
});

Deno.test("an empty file of a repository is pulled", async () => {
  const files = {
    "config.json": bytes(5),
    "chat_template.jinja": bytes(0),
    "model.safetensors": bytes(7),
  };
  await withHub(new FakeHub(files), async () => {
    const { path, total_bytes } = await pull("org/model");
    assertEquals(Deno.statSync(join(path, "chat_template.jinja")).size, 0);
    assertEquals(total_bytes, 12);
  });
});

Deno.test("the file listing has a budget of bytes and of time", async () => {
  const hub = new FakeHub({ "a.gguf": bytes(10) });
  await withHub(hub, async () => {
    let sent = 0;
    const chunk = new TextEncoder().encode(" ".repeat(2 ** 20));
    hub.listing = () =>
      new Response(
        new ReadableStream({
          pull(controller) {
            sent += chunk.length;
            controller.enqueue(chunk);
          },
        }),
      );
    await assertRejects(() => pull("org/model"), ForgeError, "more than 16 MiB");
    assert(sent < 64 * 2 ** 20, `${sent} bytes were sent`);
    hub.listing = () => new Response(new ReadableStream({}));
    const late = () => pull("org/model", { listingTimeoutMs: 200 });
    await assertRejects(late, ForgeError, "did not list its files within 0.2 s");
    hub.listing = undefined;
    await pull("org/model", { listingTimeoutMs: 5000 });
  });
});

Deno.test("an unreachable hub is named", async () => {
  const hub = new FakeHub({});
  await withHub(hub, async () => {
    Deno.env.set("HF_ENDPOINT", "http://127.0.0.1:1");
    await assertRejects(() => pull("org/model"), ForgeError, "127.0.0.1:1 cannot be reached");
  });
});

Deno.test("a stopped download keeps its data and counts as incomplete", async () => {
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

/** Downloads a file in chunks of 1,000 bytes; returns its bytes, and reports the progress. */
async function downloadChunks(hub: FakeHub, store: string, expected: Uint8Array<ArrayBuffer>) {
  const path = join(store, "a.gguf");
  const progress: number[] = [];
  await download({
    url: `${hub.endpoint}/org/model/resolve/main/a.gguf`,
    path,
    headers: {},
    bytes: expected.length,
    checksum: {
      kind: "SHA-256",
      value: new Uint8Array(await crypto.subtle.digest("SHA-256", expected)).toHex(),
    },
    onProgress: (bytes) => progress.push(bytes),
    stallMs: 300,
    chunkBytes: 1000,
  });
  assertEquals(await Deno.readFile(path), expected);
  assertEquals(progress.at(-1), expected.length);
  assertEquals([...Deno.readDirSync(store)].map(({ name }) => name), ["a.gguf"]);
  return hub.requests;
}

Deno.test("a large file is fetched in chunks by four connections at a time", async () => {
  const data = bytes(12_345);
  const hub = new FakeHub({ "a.gguf": data });
  hub.delayMs = 5;
  await withHub(hub, async (store) => {
    const requests = await downloadChunks(hub, store, data);
    assertEquals(hub.open.most, 4);
    const starts = Array.from({ length: 13 }, (_, i) => i * 1000);
    assertEquals(
      requests.map(({ range }) => range).sort(),
      starts.map((from) => `bytes=${from}-${Math.min(from + 1000, data.length) - 1}`).sort(),
    );
    assertEquals(requests.filter(({ ifRange }) => ifRange === null).length, 1);
  });
});

Deno.test("chunks whose connections fail are fetched again from where they ended", async () => {
  for (const stalls of [false, true]) {
    const data = bytes(9_000);
    const hub = new FakeHub({ "a.gguf": data });
    Object.assign(hub, { cutAfter: 400, cuts: 8, stalls });
    hub.failures.push(0, 503, 0, 429);
    await withHub(hub, async (store) => {
      const requests = await downloadChunks(hub, store, data);
      assert(requests.some(({ range }) => /^bytes=[1-8]400-/.test(range!)), "continues in a chunk");
    });
  }
});

Deno.test("a stopped download in chunks leaves a beginning of the file and continues", async () => {
  const data = bytes(20_000);
  const hub = new FakeHub({ "a.gguf": data });
  await withHub(hub, async (store) => {
    const path = join(store, "a.gguf");
    let downloads = 0;
    const stop = new AbortController();
    hub.onDownload = () => void (++downloads === 9 && stop.abort());
    const options = { url: `${hub.endpoint}/org/model/resolve/main/a.gguf`, path, headers: {} };
    const stopped = () =>
      download({
        ...options,
        bytes: data.length,
        checksum: undefined,
        signal: stop.signal,
        chunkBytes: 1000,
      });
    assertEquals((await assertRejects(stopped, ForgeError)).code, "cancelled");
    const part = await Deno.readFile(`${path}.part`);
    assert(part.length > 0 && part.length < data.length, `${part.length}`);
    assertEquals(part, data.subarray(0, part.length));
    hub.requests.length = 0;
    const requests = await downloadChunks(hub, store, data);
    assertEquals(requests[0]?.range, `bytes=${part.length}-${part.length + 999}`);
    assert(requests.every(({ ifRange }) => ifRange !== null));
  });
});

Deno.test("a large file that nothing identifies is fetched by one connection, from its start", async () => {
  const data = bytes(9_000);
  for (const received of [0, 500]) {
    const hub = new FakeHub({ "a.gguf": data });
    // A part without one may be of another file, although the server sends ETags now.
    hub.sendsEtags = received > 0;
    await withHub(hub, async (store) => {
      const path = join(store, "a.gguf");
      if (received > 0) Deno.writeFileSync(`${path}.part`, bytes(received));
      const url = `${hub.endpoint}/org/model/resolve/main/a.gguf`;
      const known = { bytes: data.length, checksum: undefined };
      await download({ url, path, headers: {}, ...known, chunkBytes: 1000 });
      assertEquals(await Deno.readFile(path), data);
      assertEquals(hub.requests.at(-1)?.range, null);
    });
  }
});

Deno.test("a part that is the whole file is fetched again if it is too long or unverified", async () => {
  const data = bytes(900);
  const cases: readonly (readonly [number, boolean, (string | null)[]])[] = [
    [900, true, []],
    [900, false, [null]],
    [1000, true, ["bytes=1000-", null]],
  ];
  for (const [length, isVerified, expected] of cases) {
    const hub = new FakeHub({ "a.gguf": data });
    hub.sendsEtags = false;
    await withHub(hub, async (store) => {
      const path = join(store, "a.gguf");
      Deno.writeFileSync(`${path}.part`, length > data.length ? bytes(length) : data);
      const value = new Uint8Array(await crypto.subtle.digest("SHA-256", data)).toHex();
      await download({
        url: `${hub.endpoint}/org/model/resolve/main/a.gguf`,
        path,
        headers: {},
        bytes: length > data.length ? undefined : data.length,
        checksum: isVerified ? { kind: "SHA-256", value } : undefined,
      });
      assertEquals(await Deno.readFile(path), data);
      assertEquals(hub.requests.map(({ range }) => range), expected);
    });
  }
});

Deno.test("a server that sends other ranges than asked sends the file by one connection", async () => {
  const data = bytes(9_000);
  const faults: readonly ((hub: FakeHub) => void)[] = [
    (hub) => hub.honoursRange = false,
    (hub) => hub.failures.push(0, 0, 416),
    (hub) => hub.editRange = (headers) => delete headers["content-range"],
    (hub) => hub.editRange = (headers) => headers["content-range"] = "bytes 0-999/9001",
    (hub) => {
      let downloads = 0;
      hub.onDownload = () => void (hub.honoursRange = ++downloads < 4);
    },
  ];
  for (const [i, fault] of faults.entries()) {
    const hub = new FakeHub({ "a.gguf": data });
    fault(hub);
    await withHub(hub, async (store) => {
      const requests = await downloadChunks(hub, store, data);
      assert(requests.length <= 10, `fault ${i}: ${requests.length} requests`);
      assertMatch(requests.at(-1)!.range ?? "bytes=0-", /^bytes=\d+-$/);
    });
  }
});

Deno.test("a file that changes while its chunks are fetched is fetched again whole", async () => {
  for (const sendsEtags of [true, false]) {
    const after = bytes(9_000);
    const hub = new FakeHub({ "a.gguf": bytes(9_000) });
    hub.sendsEtags = sendsEtags;
    let downloads = 0;
    hub.onDownload = () => void (++downloads === 4 && hub.replaceFiles({ "a.gguf": after }));
    await withHub(hub, async (store) => {
      const path = join(store, "a.gguf");
      const url = `${hub.endpoint}/org/model/resolve/main/a.gguf`;
      const checksum = {
        kind: "SHA-256" as const,
        value: new Uint8Array(await crypto.subtle.digest("SHA-256", after)).toHex(),
      };
      const fetchIt = () =>
        download({ url, path, headers: {}, bytes: 9_000, checksum, chunkBytes: 1000 });
      // Without ETags only the checksum notices; the next attempt starts again.
      if (!sendsEtags) await assertRejects(fetchIt, ForgeError, "damaged");
      await fetchIt();
      assertEquals(await Deno.readFile(path), after);
    });
  }
});

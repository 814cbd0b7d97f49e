/** Several models on one server: loaded on demand, unloaded for room or after their time. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { openCheckpoint } from "../../src/formats/checkpoint.ts";
import { ForgeError, load, type Model } from "../../src/mod.ts";
import {
  createHandler,
  type Handler,
  type ModelSource,
  type OfferedModels,
  offerModels,
  type PoolOptions,
} from "../../src/serve/mod.ts";
import { parseDuration } from "../../src/serve/model_pool.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeEndlessLlama } from "../support/tiny_llama.ts";
import { until } from "../support/wait.ts";

/** A server with the models `a`, `b` and `c`, and `broken`, which cannot be loaded. */
class Models implements AsyncDisposable {
  readonly handler: Handler;
  /** Names in the order in which they were loaded. */
  readonly loads: string[] = [];
  readonly errors: unknown[] = [];
  readonly #pool: OfferedModels;
  readonly #folder = new TempFolder();

  /**
   * @param leastMemory bytes that each model is said to need
   * @param reported memory that models report in place of their own
   * @param onLoad called before a model is loaded; may throw
   */
  constructor(
    options: PoolOptions = {},
    leastMemory = 0,
    reported: Partial<Pick<Model, "memory" | "deviceMemory">> = {},
    onLoad: (name: string) => void | Promise<void> = () => {},
  ) {
    const sources = ["a", "b", "c"].map((name): ModelSource => {
      const path = `${this.#folder.path}/${name}`;
      Deno.mkdirSync(path);
      writeEndlessLlama(path);
      return {
        names: [name],
        checkpoint: () => openCheckpoint(path),
        load: async () => {
          this.loads.push(name);
          await onLoad(name);
          const model = await load(path, { device: "cpu", contextLength: 20_000, parallel: 2 });
          return new Proxy(model, {
            get(_, key) {
              if (key in reported) return reported[key as keyof typeof reported];
              const value = Reflect.get(model, key);
              return typeof value === "function" ? value.bind(model) : value;
            },
          });
        },
        leastMemory: () => leastMemory,
      };
    });
    const broken = {
      names: ["broken"] as const,
      checkpoint: () => openCheckpoint("/nowhere"),
      load: () => Promise.reject(new ForgeError("bad_model", "its weights are missing")),
      leastMemory: () => 0,
    };
    this.#pool = offerModels([...sources, broken], options);
    this.handler = createHandler(this.#pool, { onError: (error) => this.errors.push(error) });
  }

  request(path: string, body?: object, init: RequestInit = {}): Promise<Response> {
    const post = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
    return this.handler(new Request(`http://localhost${path}`, { ...post, ...init }));
  }

  // deno-lint-ignore no-explicit-any
  async json(path: string, body?: object, status = 200): Promise<any> {
    const response = await this.request(path, body);
    const text = await response.text();
    assertEquals(response.status, status, text);
    return JSON.parse(text);
  }

  complete(model: string | undefined, more: object = {}) {
    return this.json("/v1/completions", { model, prompt: "a", max_tokens: 2, ...more });
  }

  /** Begins a stream that does not end by itself. */
  async stream(model: string): Promise<ReadableStreamDefaultReader<Uint8Array>> {
    const response = await this.request("/v1/completions", { model, prompt: "a", stream: true });
    const reader = response.body!.getReader();
    await reader.read();
    return reader;
  }

  async loaded(): Promise<string[]> {
    const { models } = await this.json("/api/ps");
    return models.map(({ name }: { name: string }) => name);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#pool[Symbol.asyncDispose]();
    this.#folder[Symbol.dispose]();
  }
}

Deno.test("models: requests choose one, which is loaded once and listed", async () => {
  await using models = new Models();
  assertEquals(await models.loaded(), []);
  const names = (await models.json("/v1/models")).data.map(({ id }: { id: string }) => id);
  assertEquals(names, ["a", "b", "c", "broken"]);
  const { models: tags } = await models.json("/api/tags");
  assertEquals(tags.map(({ name }: { name: string }) => name), ["a", "b", "c"]);
  assertEquals((await models.json("/api/show", { model: "c" })).capabilities[0], "completion");
  assertEquals(models.loads, []);

  const answers = await Promise.all(
    ["b", "b:latest", "b", undefined].map((name) => models.complete(name)),
  );
  assertEquals(answers.map(({ model }) => model), ["b", "b", "b", "a"]);
  assertEquals(models.loads.toSorted(), ["a", "b"]);
  const { models: [first] } = await models.json("/api/ps");
  assertEquals([first.name, first.size_vram, first.context_length], ["a", 0, 20_000]);
  assert(first.size > 1000 && Date.parse(first.expires_at) > Date.now() + 1e12);
  const { embedding } = await models.json("/api/embeddings", { model: "b", prompt: "text" });
  assert(embedding.length > 4 && embedding.every(Number.isFinite));
  assertEquals((await models.json("/props?model=b")).model_alias, "b");
});

Deno.test("models: unknown and broken ones are errors, and the others still answer", async () => {
  await using models = new Models();
  const { error } = await models.json("/v1/completions", { model: "x", prompt: "a" }, 404);
  assertEquals([error.code, error.param], ["model_not_found", "model"]);
  const messages = [{ role: "user", content: "a" }];
  for (
    const [path, body] of [
      ["/api/show", {}],
      ["/api/chat", { messages }],
      ["/api/generate", {}],
      ["/api/generate", { prompt: "a" }],
      ["/api/embed", { input: "a" }],
    ] as const
  ) {
    const refused = await models.json(path, { model: "x", ...body }, 404);
    assertEquals(refused, { error: "model 'x' not found" });
  }
  for (let i = 0; i < 2; i++) {
    const failed = await models.json("/v1/completions", { model: "broken", prompt: "a" }, 500);
    assertEquals(failed.error.code, "model_load_failed");
    assertEquals(failed.error.message, 'cannot load "broken": its weights are missing');
    assertEquals((models.errors[i] as ForgeError).message, failed.error.message);
    assert(models.errors[i] instanceof ForgeError); // not an internal error in the log
  }
  assertEquals((await models.complete("a")).model, "a");
});

Deno.test("models: the least recently used makes room, but none that is answering", async () => {
  await using models = new Models({ maxLoaded: 2 });
  await models.complete("a");
  await models.complete("b");
  await models.complete("a");
  await models.complete("c");
  assertEquals(await models.loaded(), ["a", "c"]);

  const streams = [await models.stream("a"), await models.stream("c")];
  const waiting = models.complete("b");
  // Both are busy: one of them takes no new request, and is unloaded after its answer.
  await new Promise((resolve) => setTimeout(resolve, 50));
  const again = models.complete("a");
  assertEquals(models.loads, ["a", "b", "c"]);
  for (const reader of streams) assertEquals((await reader.read()).done, false);
  for (const reader of streams) await reader.cancel();
  assertEquals((await waiting).model, "b");
  assertEquals((await again).model, "a");
  // The unloaded model did not take the request that came before its end.
  assertEquals(models.loads, ["a", "b", "c", "b", "a"]);
  assertEquals((await models.loaded()).length, 2);
});

Deno.test("models: those that do not fit the memory of the device replace each other", async () => {
  const { MemTotal = 0 } = Object.fromEntries(
    Deno.readTextFileSync("/proc/meminfo").split("\n").map((line) => line.split(/:\s+/))
      .map(([name, value]) => [name, parseInt(value ?? "") * 1024]),
  );
  await using models = new Models({}, MemTotal + 1);
  await models.complete("a");
  assertEquals(await models.loaded(), ["a"]);
  await models.complete("b");
  assertEquals(await models.loaded(), ["b"]);
});

Deno.test("models: one that the device refuses is tried again without the least recent", async () => {
  let nFailures = 0;
  let code: ForgeError["code"] = "device";
  await using models = new Models({}, 0, {}, (name) => {
    if (name === "c" && nFailures-- > 0) throw new ForgeError(code, "no memory");
  });
  const fill = async () => {
    for (const name of ["b", "a"]) await models.complete(name);
    models.loads.length = 0;
  };
  for (const [failures, loaded] of [[1, ["a", "c"]], [2, ["c"]], [0, ["a", "b", "c"]]] as const) {
    await fill();
    nFailures = failures;
    await models.complete("c");
    assertEquals(models.loads, Array(failures + 1).fill("c"));
    assertEquals(await models.loaded(), [...loaded]);
    await models.json("/api/generate", { model: "c", keep_alive: 0 });
  }
  // Without other models, or for an error that memory does not explain, the error is the answer.
  for (const [failing, loaded] of [["device", []], ["bad_model", ["a", "b"]]] as const) {
    await fill();
    [code, nFailures] = [failing, 3];
    const { error } = await models.json("/v1/completions", { model: "c", prompt: "a" }, 500);
    assertStringIncludes(error.message, "no memory");
    assertEquals(models.loads, Array(3 - nFailures).fill("c"));
    assertEquals(await models.loaded(), [...loaded]);
  }
});

Deno.test("models: mapped files that count as free are taken all the same", async () => {
  const memory = { weights: 150, kvCache: 0, states: 0, activations: 0 };
  const deviceMemory = { total: 1000, free: 900 };
  for (const [needed, expected] of [[850, ["a", "b"]], [851, ["b"]]] as const) {
    await using models = new Models({}, needed, { memory, deviceMemory });
    await models.complete("a");
    await models.complete("b");
    assertEquals(await models.loaded(), [...expected]);
  }
});

Deno.test("models: keep_alive says when one is unloaded", async () => {
  await using models = new Models({ keepAliveMs: 30 });
  await models.complete("a");
  await until(async () => (await models.loaded()).length === 0);
  await models.complete("a", { keep_alive: "1h" });
  await models.complete("b", { keep_alive: -1 });
  await new Promise((resolve) => setTimeout(resolve, 60));
  const { models: [first] } = await models.json("/api/ps");
  assertEquals(await models.loaded(), ["a", "b"]);
  const hours = (Date.parse(first.expires_at) - Date.now()) / 3.6e6;
  assert(hours > 0.9 && hours <= 1, first.expires_at);

  const stream = await models.stream("b");
  const unload = { model: "b", keep_alive: 0 };
  assertEquals((await models.json("/api/generate", unload)).done_reason, "unload");
  assertEquals((await stream.read()).done, false);
  await stream.cancel();
  await until(async () => !(await models.loaded()).includes("b"));
  const load = { model: "c", messages: [], keep_alive: "5m" };
  assertEquals((await models.json("/api/chat", load)).done_reason, "load");
  assertEquals(await models.loaded(), ["a", "c"]);
  const refused = await models.json("/api/generate", { model: "a", keep_alive: "soon" }, 400);
  assertStringIncludes(refused.error, 'keep_alive is "soon"; valid is seconds, or a duration');
  for (
    const [text, ms] of [["90", 9e4], ["1h30m", 54e5], ["1.5s", 1500], ["-5m", Infinity], [
      "-0",
      0,
    ]] as const
  ) {
    assertEquals(parseDuration(text), ms);
  }
  for (const text of ["", "m", "5 m", "5x", "1h5"]) assertEquals(parseDuration(text), undefined);
});

Deno.test("models: every route gives its model back, after an answer and after an error", async () => {
  await using models = new Models();
  const messages = [{ role: "user", content: "a" }];
  const options = { num_predict: 1 };
  const bodies: readonly (readonly [path: string, body: object])[] = [
    ["/v1/completions", { prompt: "a", max_tokens: 1 }],
    ["/v1/chat/completions", { messages, max_tokens: 1 }],
    ["/v1/responses", { input: "a", max_output_tokens: 16 }],
    ["/v1/messages", { messages, max_tokens: 1 }],
    ["/v1/messages/count_tokens", { messages }],
    ["/v1/embeddings", { input: "a" }],
    ["/v1/rerank", { query: "a", documents: ["b"] }],
    ["/api/generate", { prompt: "a", options, stream: false }],
    ["/api/generate", { prompt: "a", options, raw: true }],
    ["/api/generate", { prompt: "a", suffix: "b", options }],
    ["/api/chat", { messages, options }],
    ["/api/embed", { input: "a" }],
    ["/api/embeddings", { prompt: "a" }],
    ["/tokenize", { content: "a" }],
    ["/detokenize", { tokens: [5] }],
  ];
  const broken = [{}, { temperature: "hot" }, { options: { temperature: "hot" } }, {
    messages: 7,
    input: 7,
    prompt: 7,
    content: 7,
    tokens: 7,
  }];
  for (const [path, body] of bodies) {
    const answered = await models.request(path, { model: "a", ...body });
    assert(answered.status !== 404, `${path}: ${await answered.text()}`);
    if (!answered.bodyUsed) await answered.text();
    for (const wrong of broken) {
      const refused = await models.request(path, { model: "a", ...body, ...wrong });
      await refused.text();
    }
    // A model in use is unloaded after its last user, and until then takes no request.
    const unload = models.json("/api/generate", { model: "a", keep_alive: 0 });
    assertEquals((await unload).done_reason, "unload");
    const { promise: late, resolve } = Promise.withResolvers<boolean>();
    const timer = setTimeout(() => resolve(false), 30_000);
    const isFree = models.complete("a").then(() => true);
    assert(await Promise.race([isFree, late]), `a user of the model is left after ${path}`);
    clearTimeout(timer);
  }
});

Deno.test("models: two of one name, or none, are refused", () => {
  const source: ModelSource = {
    names: ["a"],
    checkpoint: () => openCheckpoint("/nowhere"),
    load: () => load("/nowhere"),
    leastMemory: () => 0,
  };
  for (
    const [sources, message] of [[[], /no model/], [[source, source], /two models .*"a"/]] as const
  ) {
    try {
      offerModels(sources);
      assert(false, "it was accepted");
    } catch (error) {
      assertMatch((error as Error).message, message);
    }
  }
});

/** Tests the status and message of rejected requests. */
import {
  assert,
  assertEquals,
  assertMatch,
  assertRejects,
  assertStringIncludes,
  assertThrows,
} from "@std/assert";
import { ForgeError } from "../../src/errors.ts";
import { load } from "../../src/mod.ts";
import { TooLongError } from "../../src/engine/request/prompt.ts";
import { RequestError } from "../../src/requests/values.ts";
import { anthropicError } from "../../src/serve/anthropic/format.ts";
import { errorBody, errorResponse, HttpError, isFault } from "../../src/serve/http/http_error.ts";
import { createHandler, type ServeOptions } from "../../src/serve/mod.ts";
import { readBody } from "../../src/serve/http/request_body.ts";
import { Server } from "../../src/serve/service.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { Client, DEMO, user } from "./client.ts";

const CHAT = "/v1/chat/completions";
const TEXT = "/v1/completions";
const messages = [user("Hi")];

/** Bodies, the expected messages and the keys that the errors name. */
const BAD_CHATS: readonly (readonly [body: unknown, message: string, param: string | null])[] = [
  ["", "the body is empty", null],
  ["{", "the body is not valid JSON", null],
  ["[]", "the body holds an array", null],
  ['{"messages": [], "messages": []}', 'duplicate key "messages"', "messages"],
  [`{"a": ${"[".repeat(1e6)}`, "the body nests deeper than 200 levels", null],
  [{}, "messages is missing; valid is a list", "messages"],
  [{ messages: [{ role: "user" }] }, "messages[0].content is missing", "messages[0].content"],
  [{ messages, temprature: 1 }, "did you mean temperature?", "temprature"],
  [{ messages, system: "x" }, 'unknown key "system"', "system"],
  [{ messages, raw: true }, 'unknown key "raw"', "raw"],
  [{ messages, functions: [] }, "did you mean tools?", "functions"],
  [{ messages, audio: {} }, 'unknown key "audio"; valid are model, messages', "audio"],
  [{ messages, temperature: "hot" }, 'temperature is "hot"; valid is a number', "temperature"],
  [{ messages, n: 129 }, "n is 129; valid is a whole number from 1 to 128", "n"],
  [{ messages, stop: Array(65).fill("x") }, "stop has 65 texts", "stop"],
  [{ messages, stop: "x".repeat(1001) }, "stop has a text of 1001 characters", "stop"],
  [{ messages, stream: 1 }, "stream is 1; valid is true or false", "stream"],
  [{ messages, stream_options: {} }, 'stream_options needs "stream": true', "stream_options"],
  [{ messages, modalities: ["audio"] }, 'modalities is an array; valid is ["text"]', "modalities"],
  [{ messages, regex: "a", json_object: true }, "give json_object or regex, not both", "regex"],
  [{ messages, regex: "(?=a)" }, "lookahead", null],
  [{ messages, max_tokens: 3, max_completion_tokens: 3 }, "not both", "max_completion_tokens"],
  [{ messages, logit_bias: { "99999": 1 } }, 'the logit biases name token "99999"', null],
  [
    { messages, logit_bias: { "5": 1e39 } },
    'logit_bias["5"] is 1e+39; valid is a number from -3.4e38 to 3.4e38',
    'logit_bias["5"]',
  ],
  [{ messages: [user("x ".repeat(2000))] }, "the context of 1024 has room for 1023", null],
  [{ messages: [{ role: "user", content: [{ type: "image_url" }] }] }, '"image_url"', null],
];

Deno.test("serve: a bad request is rejected by key before anything is generated", async () => {
  await using client = await Client.open(DEMO);
  for (const [body, message, param] of BAD_CHATS) {
    const error = await client.refusal(CHAT, body);
    assertStringIncludes(error.message, message);
    assertEquals(error.type, "invalid_request_error");
    if (param !== null) assertEquals(error.param, param);
  }
  for (
    const [body, message] of [
      [{}, "prompt is missing"],
      [{ prompt: [] }, "prompt is an empty array"],
      [{ prompt: ["a", 1] }, "prompt is an array"],
      [{ prompt: [99999] }, "token 0 of the prompt is 99999"],
      [{ prompt: "a", echo: true }, "echo is true; valid is false"],
      [{ prompt: "a", messages }, 'unknown key "messages"'],
      [{ prompt: "a", system: "x" }, 'unknown key "system"'],
      [{ prompt: "a", raw: true }, 'unknown key "raw"'],
      [{ prompt: "a", logprobs: 1, top_logprobs: 1 }, 'unknown key "top_logprobs"'],
      [{ prompt: "a", chat_template_kwargs: {} }, 'unknown key "chat_template_kwargs"'],
      [{ prompt: Array(65).fill("a"), n: 2 }, "prompt and n ask for 130 answers"],
    ] as const
  ) assertStringIncludes((await client.refusal(TEXT, body)).message, message);
  const long = await client.refusal(CHAT, { messages: [user("x ".repeat(2000))] });
  assertEquals(long.code, "context_length_exceeded");
  assertEquals((await client.chat({ messages, max_tokens: -1 })).choices.length, 1);
  // A stream that cannot start is also rejected by status.
  await client.refusal(CHAT, { messages, stream: true, regex: "(" });
  await client.refusal("/tokenize", { prompt: "x" });
  for (
    const [path, wrong, message] of [
      ["/tokenize", {}, "content is missing"],
      ["/tokenize", { content: "x", messages }, "give content or messages, not both"],
      ["/detokenize", {}, "tokens is missing; valid is a list of token ids"],
      ["/detokenize", { tokens: [1.5] }, "tokens is an array; valid is a list of token ids"],
      ["/detokenize", { tokens: [99999] }, "token 0 of tokens is 99999"],
    ] as const
  ) assertStringIncludes((await client.refusal(path, wrong)).message, message);
  const bodiless = await client.get(TEXT, { method: "POST" });
  assertStringIncludes(
    (await bodiless.json()).error.message,
    "the body is empty; valid is a JSON object",
  );
  const { answers } = await (await client.get("/health")).json();
  assertEquals(answers, 0);
});

/** Requests, and the range of a whole number in them by the documentation of its API. */
const WHOLE_NUMBERS: readonly (readonly [path: string, key: string, min: number, max: number])[] = [
  [CHAT, "n", 1, 128],
  [CHAT, "max_completion_tokens", -1, 2 ** 31 - 1],
  [CHAT, "top_logprobs", 0, 20],
  [CHAT, "seed", 0, Number.MAX_SAFE_INTEGER],
  [CHAT, "top_k", 0, 2 ** 30],
  [TEXT, "n", 1, 128],
  [TEXT, "max_tokens", -1, 2 ** 31 - 1],
  [TEXT, "logprobs", 0, 20],
  ["/v1/responses", "max_output_tokens", 1, 2 ** 31 - 1],
  ["/v1/responses", "top_logprobs", 0, 20],
  ["/v1/messages", "max_tokens", 1, 2 ** 31 - 1],
  ["/v1/embeddings", "dimensions", 1, 2 ** 31 - 1],
  ["/v1/rerank", "top_n", 1, 2 ** 31 - 1],
  ["/v1/rerank", "max_tokens_per_doc", 1, 2 ** 31 - 1],
];

Deno.test("serve: a number out of its range is refused by name, with the range", async () => {
  await using client = await Client.open(DEMO);
  for (const [path, key, min, max] of WHOLE_NUMBERS) {
    const other = { input: "a", prompt: "a", query: "a", documents: ["a"], messages };
    const fields: Readonly<Record<string, readonly (keyof typeof other)[]>> = {
      [TEXT]: ["prompt"],
      "/v1/responses": ["input"],
      "/v1/embeddings": ["input"],
      "/v1/rerank": ["query", "documents"],
    };
    const body = Object.fromEntries(
      (fields[path] ?? ["messages"]).map((name) => [name, other[name]]),
    );
    const rest = key === "top_logprobs" && path === CHAT ? { logprobs: true } : {};
    const more = path === "/v1/messages" ? { max_tokens: 1 } : {};
    for (const value of [min - 1, max + 1, min + 0.5, `${max}`, [max], {}]) {
      const response = await client.post(path, { ...body, ...rest, ...more, [key]: value });
      const { error } = await response.json();
      assertEquals(response.status, 400, `${path} ${key} ${value}`);
      assertStringIncludes(error.message, `${key} is `);
      assertMatch(error.message, /valid is a whole number from -?\d+ to \d+$/);
    }
  }
});

Deno.test("serve: keys without effect are accepted", async () => {
  await using client = await Client.open(DEMO);
  const neutral = {
    user: "u",
    metadata: { a: "b" },
    store: true,
    service_tier: "auto",
    modalities: ["text"],
    verbosity: "low",
    keep_alive: "5m",
    cache_prompt: false,
    reasoning_effort: "high",
  };
  const body = { messages, max_tokens: 1, ...neutral, tools: [], seed: null, logprobs: null };
  assertEquals((await client.chat(body)).choices.length, 1);
  const text = { prompt: "a", max_tokens: 1, echo: false, best_of: 1, suffix: null };
  assertEquals((await client.complete({ ...text, model: null })).choices.length, 1);
});

Deno.test("serve: the page about serving names every endpoint and every key", async () => {
  await using client = await Client.open(DEMO);
  const page = await Deno.readTextFile(new URL("../../src/serve/README.md", import.meta.url));
  const spans = page.match(/`[^`\n]+`/g) ?? [];
  const named = new Set(spans.flatMap((span) => span.split(/\W+/)));
  const { message } = await client.refusal("/nowhere", {}, 404);
  const routes = message.slice(message.indexOf("valid are ") + 10).split(", ");
  assert(routes.length > 25, message);
  const lists: string[] = [];
  for (const route of routes) {
    const [method, path] = route.split(" ") as [string, string];
    assert(page.includes(path.replace(/\*$/, "")), `${path} is missing`);
    if (method !== "POST") continue;
    const body = { model: "demo", zzzzzzzz: 1 };
    const response = await client.post(path, body);
    const { error } = await response.json();
    const problem: string = error.message ?? error;
    assertStringIncludes(problem, 'unknown key "zzzzzzzz"; valid are ');
    const keys = problem.slice(problem.indexOf("valid are ") + 10).split(", ");
    const missing = keys.filter((key) => !named.has(key));
    assertEquals(missing, [], `keys of ${path} that the page does not name`);
    lists.push(...keys);
  }
  assert(lists.length > 100);
});

Deno.test("serve: other models, paths and methods are rejected", async () => {
  await using client = await Client.open(DEMO, { names: ["Org/Model", "gpt-4o"] });
  const error = await client.refusal(CHAT, { model: "gpt-5", messages }, 404);
  assertEquals([error.code, error.param], ["model_not_found", "model"]);
  assertStringIncludes(error.message, '"Org/Model", "gpt-4o"');
  assertEquals((await client.get("/v1/models/gpt-5")).status, 404);
  for (const [method, path] of [["GET", "models"], ["GET", "responses"], ["DELETE", "responses"]]) {
    for (const name of ["%ff", "%", "a%2", "gpt-5", "%67pt-5"]) {
      const answer = await client.handler(
        new Request(`http://localhost/v1/${path}/${name}`, { method: method! }),
      );
      assertEquals(answer.status, 404, `${method} ${path} ${name}`);
      await answer.text();
    }
  }
  for (const path of ["/v1/models/Org/Model", "/v1/models/Org%2FModel"]) {
    const model = await (await client.get(path)).json();
    assertEquals([model.id, model.object, model.max_model_len], ["Org/Model", "model", 1024]);
  }
  const list = await (await client.get("/v1/models")).json();
  assertEquals(list.data.map(({ id }: { id: string }) => id), ["Org/Model", "gpt-4o"]);
  const { message } = await client.refusal("/v1/answers", {}, 404);
  assertStringIncludes(message, "POST /v1/chat/completions");
  assert(!message.includes("/api/"), message);
  const wrong = await client.get(CHAT);
  assertEquals([wrong.status, wrong.headers.get("allow")], [405, "POST"]);
  await wrong.body?.cancel();
  const stored = await client.get("/v1/responses/resp_1", { method: "PATCH" });
  assertEquals([stored.status, stored.headers.get("allow")], [405, "GET, DELETE"]);
  assertStringIncludes((await stored.json()).error.message, '"PATCH"; valid is GET, DELETE');
});

Deno.test("serve: a large or compressed body is rejected", async () => {
  await using client = await Client.open(DEMO);
  const long = "x".repeat(16 * 2 ** 20);
  const chunks = () => ReadableStream.from([new TextEncoder().encode(`{"a": "${long}`)]);
  for (const init of [{ headers: { "content-length": `${2 ** 40}` } }, { body: chunks() }]) {
    const response = await client.post(CHAT, "{}", init);
    assertEquals(response.status, 413);
    assertMatch((await response.json()).error.message, /more than 16777216 bytes/);
  }
  // The limit itself is valid, in several chunks as well.
  const most = 16 * 2 ** 20;
  const read = async (chunks: readonly string[], headers: Record<string, string> = {}) => {
    const body = ReadableStream.from(chunks.map((chunk) => new TextEncoder().encode(chunk)));
    return await readBody(new Request("http://localhost/", { method: "POST", body, headers }));
  };
  assertEquals(await read(["{".padEnd(most - 1), "}"]), {});
  assertEquals(await read(["{}"], { "content-length": `${most}` }), {});
  const identity = { "content-encoding": "identity" };
  assertEquals(await read(['{"a": "b', "c", 'd", "e": 1', "}"], identity), { a: "bcd", e: 1 });
  const gzip = await client.post(CHAT, "{}", { headers: { "content-encoding": "gzip" } });
  assertEquals(gzip.status, 415);
  await gzip.body?.cancel();
  const binary = await client.post(CHAT, "", { body: new Uint8Array([0xff]) });
  assertStringIncludes((await binary.json()).error.message, "not UTF-8");
});

Deno.test("serve: an API key is required, except for /health", async () => {
  await using client = await Client.open(DEMO, { apiKey: "secret" });
  for (const authorization of ["", "Bearer", "Bearer wrong", "secret", "Bearer secrets"]) {
    const response = await client.get("/v1/models", { headers: { authorization } });
    assertEquals(response.status, 401);
    assertEquals(response.headers.get("www-authenticate"), "Bearer");
    const { error } = await response.json();
    assertEquals(error.type, "authentication_error");
    const what = /^Bearer \w/.test(authorization) ? "wrong" : "missing";
    assertStringIncludes(error.message, `the API key is ${what}; send it as`);
  }
  for (
    const headers of [
      { authorization: "Bearer secret" },
      { authorization: "bearer  secret" },
      { "x-api-key": "secret" },
    ]
  ) {
    const response = await client.get("/v1/models", { headers });
    assertEquals(response.status, 200);
    await response.body?.cancel();
  }
  const head = { method: "HEAD" };
  for (
    const [path, init, status] of [
      ...["/", "/page/main.ts", "/page/style.css", "/health"].map((path) => [path, {}, 200]),
      ["/health", head, 200],
      ...["/v1/models", "/v1/models/demo", "/v1/responses/a", "/props", "/slots", "/metrics"]
        .flatMap((path) => [[path, {}, 401], [path, head, 401]]),
      ...["/api/tags", "/api/ps", "/api/version", "/nowhere", "/page/"]
        .map((path) => [path, {}, 401]),
      ...[CHAT, TEXT, "/v1/messages", "/api/chat", "/api/show", "/tokenize", "/health"]
        .map((path) => [path, { method: "POST", body: "{}" }, 401]),
    ] as [string, RequestInit, number][]
  ) {
    const response = await client.get(path, init);
    assertEquals(response.status, status, `${init.method ?? "GET"} ${path}`);
    await response.body?.cancel();
  }
  // With a key the server accepts any host name.
  const request = new Request("http://forge.example/health");
  assertEquals((await client.handler(request)).status, 200);
});

Deno.test("serve: requests for other hosts and from other origins are rejected", async () => {
  await using client = await Client.open(DEMO);
  const { model } = client;
  const status = async (options: ServeOptions, url: string, origin?: string) => {
    const headers = origin === undefined ? {} : { origin };
    const response = await createHandler(model, options)(new Request(url, { headers }));
    const allowed = response.headers.get("access-control-allow-origin");
    await response.body?.cancel();
    return [response.status, allowed];
  };
  for (const host of ["localhost", "127.0.0.1:8080", "[::1]:80", "127.1.2.3", "a.localhost"]) {
    assertEquals(await status({}, `http://${host}/health`), [200, null]);
  }
  for (
    const host of [
      ...["evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "evil-localhost"],
      ...["126.0.0.1", "1127.0.0.1.nip.io", "[::2]"],
    ]
  ) {
    assertEquals(await status({}, `http://${host}/health`), [403, null]);
    assertEquals(await status({ anyHost: true }, `http://${host}/health`), [200, null]);
  }
  const url = "http://localhost:8080/health";
  assertEquals(await status({}, url, "http://evil.example"), [403, null]);
  assertEquals(await status({}, url, "null"), [403, null]);
  assertEquals(await status({}, url, "http://localhost:8081"), [403, null]);
  assertEquals(await status({}, url, "http://localhost:8080"), [200, null]);
  const corsOrigin = "https://good.example";
  assertEquals(await status({ corsOrigin }, url, corsOrigin), [200, corsOrigin]);
  assertEquals(await status({ corsOrigin }, url, "http://evil.example"), [403, corsOrigin]);
  assertEquals(await status({ corsOrigin: "*" }, url, "http://evil.example"), [200, "*"]);
  // Caches keep the answers to different origins apart.
  for (const [origin, vary] of [[corsOrigin, "origin"], ["*", null]] as const) {
    const response = await createHandler(model, { corsOrigin: origin })(new Request(url));
    assertEquals([response.headers.get("vary"), (await response.json()).status], [vary, "ok"]);
  }
});

Deno.test("serve: a CORS preflight lists the allowed methods and headers", async () => {
  await using client = await Client.open(DEMO, {
    corsOrigin: "https://good.example",
    apiKey: "k",
  });
  const preflight = (asked: string, origin = "https://good.example") =>
    client.get(CHAT, {
      method: "OPTIONS",
      headers: { origin, "access-control-request-headers": asked },
    });
  const response = await preflight("authorization,x-stainless-os");
  assertEquals(response.status, 204);
  assertEquals(response.headers.get("access-control-allow-methods"), "GET, POST, DELETE");
  const allowed = "access-control-allow-headers";
  assertEquals(response.headers.get(allowed), "authorization,x-stainless-os");
  assertEquals((await preflight("a<b>")).headers.get(allowed), "authorization, content-type");
  assertEquals((await preflight("a", "https://evil.example")).status, 403);
});

Deno.test("serve: invalid options are rejected", async () => {
  await using client = await Client.open(DEMO);
  for (
    const [options, message] of [
      [{ corsOrigin: "good.example" }, '"good.example"; valid is * or an origin'],
      [{ corsOrigin: "https://good.example/" }, "valid is * or an origin"],
      [{ apiKey: "" }, "visible ASCII"],
      [{ apiKey: "a\nb" }, "visible ASCII"],
      [{ names: [""] }, "a name of the model is empty"],
      [{ maxAnswers: 0 }, "maxAnswers is 0"],
      [{ defaults: { maxTokns: 1 } as object }, "createHandler's defaults"],
    ] as const
  ) {
    const error = assertThrows(() => createHandler(client.model, options), ForgeError);
    assertEquals(error.code, "usage");
    assertStringIncludes(error.message, message);
  }
});

Deno.test("serve: a server fault has status 500 or is an event in a stream", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, {
    chatTemplate: "{% for m in messages %}{{ m.content }}{% endfor %}",
    change: (tensors) =>
      tensors.map((tensor) =>
        tensor.name === "model.norm.weight"
          ? { ...tensor, data: new Uint8Array(new Float32Array(64).fill(NaN).buffer) }
          : tensor
      ),
  });
  const faults: unknown[] = [];
  await using client = await Client.open(folder.path, { onError: (error) => faults.push(error) });
  const error = await client.refusal(TEXT, { prompt: "a" }, 500);
  assertEquals([error.type, error.code], ["server_error", "bad_model"]);
  assertEquals(faults.length, 1);
  const response = await client.post(TEXT, { prompt: "a", stream: true });
  const events = (await response.text()).trim().split("\n\n");
  assertEquals(JSON.parse(events.at(-1)!.slice(6)).error.code, "bad_model");
  assert(!events.includes("data: [DONE]"));
  assertEquals(faults.length, 2);
  const reason = "model.norm.weight";
  for (
    const [path, body, start] of [
      ["/v1/responses", { input: "a" }, 'event: error\ndata: {"type":"error",'],
      ["/v1/messages", { messages, max_tokens: 2 }, 'event: error\ndata: {"type":"error",'],
      ["/api/chat", { messages }, '{"error":"'],
      ["/api/generate", { prompt: "a" }, '{"error":"'],
    ] as const
  ) {
    const answer = await (await client.post(path, { ...body, stream: true })).text();
    const last = answer.trim().split(path.startsWith("/v1") ? "\n\n" : "\n").at(-1)!;
    assertEquals([last.slice(0, start.length), last.includes(reason)], [start, true], answer);
  }
  assertEquals(faults.length, 6);
  assertEquals((await (await client.get("/health")).json()).answers, 0);
});

Deno.test("serve: an error has its status, type and code, and no internal details", () => {
  const forge = (code: ForgeError["code"]) => new ForgeError(code, "m");
  const invalid = "invalid_request_error";
  const long = "p".repeat(200);
  const cases: readonly (readonly [error: unknown, status: number, object])[] = [
    [new HttpError(401, "m"), 401, { type: "authentication_error" }],
    [new HttpError(403, "m", { code: "c" }), 403, { type: "permission_error", code: "c" }],
    [new HttpError(404, "m", { param: "p" }), 404, { type: invalid, param: "p" }],
    [new HttpError(503, "m"), 503, { type: "server_error" }],
    [new RequestError("m", "p"), 400, { type: invalid, param: "p" }],
    [new RequestError("m"), 400, { type: invalid }],
    [new RequestError("m", long), 400, { type: invalid, param: long }],
    [new RequestError("m", `${long}p`), 400, { type: invalid, param: `${long}…` }],
    [new TooLongError("m"), 400, { type: invalid, code: "context_length_exceeded" }],
    ...(["usage", "bad_input", "unsupported"] as const)
      .map((code) => [forge(code), 400, { type: invalid }] as const),
    [forge("cancelled"), 499, { type: invalid }],
    [forge("device"), 500, { type: "server_error", code: "device" }],
    [new Error("secret"), 500, { type: "server_error", message: "internal error" }],
    ["secret", 500, { type: "server_error", message: "internal error" }],
  ];
  for (const [error, status, expected] of cases) {
    const body = { message: "m", param: null, code: null, ...expected };
    assertEquals<unknown>(errorBody(error).error, body);
    assertEquals([errorResponse(error).status, isFault(error)], [status, status === 500]);
  }
  for (
    const [error, type] of [
      [new HttpError(503, "m", { code: "queue_full" }), "overloaded_error"],
      [new HttpError(404, "m", { code: "model_not_found" }), "not_found_error"],
      [new HttpError(401, "m"), "authentication_error"],
      [forge("device"), "api_error"],
      [forge("usage"), invalid],
    ] as const
  ) assertEquals(anthropicError(error), { type: "error", error: { type, message: "m" } });
});

Deno.test("serve: answers are admitted up to the limit, and a large request alone", async () => {
  await using client = await Client.open(DEMO);
  for (const [options, most] of [[{}, 288], [{ maxAnswers: 2 }, 2]] as const) {
    const { admission } = new Server(client.model, options);
    const first = admission.enter(most - 1);
    const second = admission.enter(1);
    const error = assertThrows(() => admission.enter(1), HttpError, `the limit is ${most}`);
    assertEquals([error.status, admission.inProgress], [503, most]);
    first[Symbol.dispose]();
    second[Symbol.dispose]();
    const large = admission.enter(most + 1);
    assertThrows(() => admission.enter(1), HttpError);
    large[Symbol.dispose]();
    assertEquals(admission.inProgress, 0);
  }
});

Deno.test("serve: converts texts to ids and back", async () => {
  await using client = await Client.open(DEMO);
  const { tokenizer } = client.model;
  const tokens = async (body: object) =>
    (await (await client.post("/tokenize", body)).json()).tokens;
  const text = "Once <|im_start|>";
  assertEquals(await tokens({ content: text }), [...tokenizer.encode(text, { addSpecial: false })]);
  assertEquals(await tokens({ content: text, add_special: true }), [...tokenizer.encode(text)]);
  const plain = await tokens({ content: text, parse_special: false });
  assert(plain.length > (await tokens({ content: text })).length);
  assertEquals(await tokens({ messages }), [...client.model.encodePrompt(messages).tokens]);
  const back = await client.post("/detokenize", { tokens: plain });
  assertEquals(await back.json(), { content: text });
  const special = await client.post("/detokenize", { tokens: await tokens({ content: text }) });
  assertEquals(await special.json(), { content: text });
});

Deno.test("serve: a body that never arrives times out", async () => {
  let isCancelled = false;
  const body = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(new TextEncoder().encode('{"prompt":')),
    cancel: () => void (isCancelled = true),
  });
  const request = new Request("http://localhost/v1/completions", { method: "POST", body });
  const error = await assertRejects(() => readBody(request, 50), HttpError, "within 0.05 s");
  assertEquals([error.status, isCancelled], [408, true]);
});

Deno.test("serve: bad hosts and clients that disconnect cause no server error", async () => {
  await using model = await load(DEMO);
  const faults: unknown[] = [];
  const done = Promise.withResolvers<void>();
  let answered = 0;
  const handler = createHandler(model, { onError: (error) => faults.push(error) });
  await using server = Deno.serve(
    { port: 0, hostname: "127.0.0.1", onListen() {} },
    async (request) => {
      const response = await handler(request);
      if (++answered === 5) done.resolve();
      return response;
    },
  );
  const send = async (text: string, isRead: boolean) => {
    using connection = await Deno.connect({ hostname: "127.0.0.1", port: server.addr.port });
    await connection.write(new TextEncoder().encode(text));
    if (!isRead) return "";
    const buffer = new Uint8Array(64);
    const size = await connection.read(buffer);
    return new TextDecoder().decode(buffer.subarray(0, size ?? 0));
  };
  for (const host of ["[", "[::1", "localhost:99999"]) {
    const answer = await send(`GET /health HTTP/1.1\r\nHost: ${host}\r\n\r\n`, true);
    assert(answer.includes("400 Bad Request"), `${host}: ${answer}`);
  }
  const head = `POST ${CHAT} HTTP/1.1\r\nHost: localhost\r\n`;
  await send(`${head}Content-Length: 100\r\n\r\n{`, false);
  await send(`${head}Transfer-Encoding: chunked\r\n\r\n5\r\n{`, false);
  await done.promise;
  assertEquals(faults, []);
});

Deno.test("serve: an error does not echo a key of megabytes", async () => {
  await using client = await Client.open(DEMO);
  const { message, param } = await client.refusal(CHAT, { ["k".repeat(1e6)]: 1 });
  assert(message.length < 2000 && param!.length < 300, `${message.length}, ${param!.length}`);
});

/** Tests that Ollama's endpoints give the same answers in Ollama's format. */
import { assert, assertEquals, assertMatch, assertStringIncludes, assertThrows } from "@std/assert";
import type { JsonObject, JsonValue } from "../../src/formats/json.ts";
import type { Checkpoint } from "../../src/formats/checkpoint.ts";
import type { TensorInfo, TensorType } from "../../src/formats/tensor_info.ts";
import { createHandler, offerModels } from "../../src/serve/mod.ts";
import { RequestError } from "../../src/requests/values.ts";
import { readSettings } from "../../src/serve/ollama/options.ts";
import type { Service } from "../../src/serve/service.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { assertRecent, Client, DEMO, user } from "./client.ts";
import { GIVEN, scripted } from "./scripted.ts";

interface Line {
  readonly model: string;
  readonly created_at: string;
  readonly response?: string;
  readonly message?: {
    readonly role: string;
    readonly content: string;
    readonly thinking?: string;
    readonly tool_calls?: readonly { readonly function: { readonly name: string } }[];
  };
  readonly done: boolean;
  readonly done_reason?: string;
  readonly prompt_eval_count?: number;
  readonly eval_count?: number;
  readonly total_duration?: number;
  readonly load_duration?: number;
  readonly prompt_eval_duration?: number;
  readonly eval_duration?: number;
}

/** Returns the lines of a stream and checks their format. */
async function lines(client: Client, path: string, body: object): Promise<Line[]> {
  const response = await client.post(path, body);
  const text = await response.text();
  assertEquals(response.status, 200, text);
  assertEquals(response.headers.get("content-type"), "application/x-ndjson");
  assert(text.endsWith("\n"), text);
  const parts: Line[] = text.trimEnd().split("\n").map((line) => JSON.parse(line));
  assertEquals(parts.map(({ done }) => done), parts.map((_, i) => i === parts.length - 1));
  for (const { created_at } of parts) assertMatch(created_at, /^\d{4}-\d\d-\d\dT[\d:.]+Z$/);
  return parts;
}

async function whole(client: Client, path: string, body: object): Promise<Line> {
  const response = await client.post(path, { ...body, stream: false });
  const text = await response.text();
  assertEquals([response.status, response.headers.get("content-type")], [200, "application/json"]);
  return JSON.parse(text);
}

async function refusal(client: Client, path: string, body: unknown, status = 400): Promise<string> {
  const response = await client.post(path, body);
  const text = await response.text();
  assertEquals(response.status, status, text);
  const { error, ...others } = JSON.parse(text);
  assertEquals([typeof error, others], ["string", {}]);
  return error;
}

const GREEDY = { temperature: 0, num_predict: 12, num_ctx: 4096, num_thread: 2, tfs_z: 1 };

Deno.test("serve: Ollama's chat and generate give the library's answers", async () => {
  await using client = await Client.open(DEMO, { names: ["demo"] });
  const options = { temperature: 0, maxTokens: 12 };
  for (
    const [path, body, expected, said] of [
      [
        "/api/generate",
        { model: "demo", prompt: "A fox", options: GREEDY },
        await client.model.complete("A fox", options),
        (line: Line) => line.response,
      ],
      [
        "/api/generate",
        { model: "demo:latest", prompt: "A fox", raw: true, options: GREEDY, keep_alive: "5m" },
        await client.model.complete("A fox", { ...options, raw: true }),
        (line: Line) => line.response,
      ],
      [
        "/api/generate",
        { prompt: "A fox", format: "json", options: GREEDY, context: [], images: [], suffix: "" },
        await client.model.complete("A fox", { ...options, jsonObject: true }),
        (line: Line) => line.response,
      ],
    ] as const
  ) {
    const stream = await lines(client, path, body);
    const answer = await whole(client, path, body);
    assertEquals([stream.map(said).join(""), said(answer)], [expected.text, expected.text]);
    assert(stream.length > 3);
    for (const end of [stream.at(-1)!, answer]) {
      assertEquals([end.model, end.done, end.done_reason], ["demo", true, "length"]);
      assertEquals([end.prompt_eval_count, end.eval_count], [expected.promptTokens, 12]);
      const { load_duration: load, prompt_eval_duration: prefill, eval_duration: decode } = end;
      const parts = [load!, prefill!, decode!], total = end.total_duration!;
      // In nanoseconds.
      assert(parts.every((part) => Number.isInteger(part) && part >= 0), `${parts}`);
      assert(prefill! > 0 && decode! > 0 && prefill! + decode! <= total, `${parts}`);
    }
    assertEquals(said(stream.at(-1)!), "");
  }
  assertEquals((await (await client.get("/health")).json()).answers, 0);
});

Deno.test("serve: every option of Ollama has its meaning, is ignored or refused", () => {
  const tokenizer = { idOf: () => undefined };
  const model = { tokenizer, checkpoint: { chatTemplate: undefined } };
  const service = { model, name: "m", defaults: {} } as unknown as Service;
  // As JSON, without what is undefined.
  const read = (options: JsonObject, body: JsonObject = {}) =>
    JSON.parse(JSON.stringify(readSettings(service, { options, ...body }).options));
  const none = read({});
  const meanings: [JsonObject, Record<string, unknown>][] = [
    [{ num_predict: 7 }, { maxTokens: 7 }],
    [{ stop: ["a", "b"] }, { stop: ["a", "b"] }],
    [{ temperature: 0.5, top_k: 3, top_p: 0.25 }, { temperature: 0.5, topK: 3, topP: 0.25 }],
    [{ min_p: 0.125, typical_p: 0.5 }, { minP: 0.125, typicalP: 0.5 }],
    [{ repeat_penalty: 1.5, repeat_last_n: 9 }, { repeatPenalty: 1.5, repeatLastN: 9 }],
    [
      { presence_penalty: 0.5, frequency_penalty: 0.25 },
      { presencePenalty: 0.5, frequencyPenalty: 0.25 },
    ],
    [{ mirostat: 2, mirostat_tau: 4, mirostat_eta: 0.2 }, {
      mirostat: 2,
      mirostatTau: 4,
      mirostatEta: 0.2,
    }],
    [{ seed: 5 }, { seed: 5 }],
    [{ dry_multiplier: 1, dry_sequence_breakers: ["x"] }, {
      dryMultiplier: 1,
      drySequenceBreakers: ["x"],
    }],
    // Values that mean the default, settings of loading, and samplers that are turned off.
    [{ num_predict: -1 }, {}],
    [{ num_predict: -2, seed: -1, temperature: null }, {}],
    [{ num_ctx: 4096, num_batch: 8, num_gpu: 1, main_gpu: 0, num_thread: 2, num_keep: 4 }, {}],
    [{ numa: true, low_vram: true, use_mmap: false, use_mlock: true }, {}],
    [{ vocab_only: false, f16_kv: true, tfs_z: 1, penalize_newline: true }, {}],
  ];
  for (const [options, meaning] of meanings) {
    assertEquals(read(options), { ...none, ...meaning }, JSON.stringify(options));
  }
  const refused: [JsonObject, JsonObject, string][] = [
    [{ num_predict: -3 }, {}, "max_tokens is -3"],
    [{ seed: -2 }, {}, "seed is -2"],
    [{ tfs_z: 0.5 }, {}, "options.tfs_z is 0.5; valid is 1"],
    [{ penalize_newline: false }, {}, "options.penalize_newline is false; valid is true"],
    [{ top_q: 1 }, {}, 'unknown key "top_q"'],
    [{ toString: 1 }, {}, 'unknown key "toString"'],
    [{}, { options: [] }, "options is an empty array"],
    [{}, { format: "xml" }, 'format is "xml"; valid is "json" or a JSON schema'],
    [{}, { format: [] }, "format is an empty array"],
    [{}, { think: true }, '"m" does not support thinking'],
    [{}, { think: "high" }, '"m" does not support thinking'],
    [{}, { think: "much" }, 'think is "much"; valid is true, false, "low", "medium" or "high"'],
    [{}, { stream: "yes" }, 'stream is "yes"'],
  ];
  for (const [options, body, message] of refused) {
    assertThrows(() => read(options, body), RequestError, message);
  }
  const formats: [JsonValue, Record<string, unknown>][] = [
    ["", {}],
    [null, {}],
    ["json", { jsonObject: true }],
    [{ type: "null" }, { jsonSchema: { type: "null" } }],
  ];
  for (const [format, meaning] of formats) {
    assertEquals(read({}, { format, think: false }), { ...none, ...meaning });
  }
  const streams = [{}, { stream: null }, { stream: true }, { stream: false }]
    .map((body) => readSettings(service, body).isStream);
  assertEquals(streams, [true, true, true, false]);
});

Deno.test("serve: Ollama's chat returns reasoning and whole tool calls", async () => {
  using folder = new TempFolder();
  const script = [
    "<think>",
    "Hm",
    "m.</think>\n",
    "Loo",
    "king.",
    '<tool_call>{"name": "now", "argu',
    'ments": {"zone": "UTC"}}',
    "</tool_call>",
    '<tool_call>{"name": "now", "arguments": {"zone": "CET"}}</tool_call>',
  ];
  const chatTemplate = `${GIVEN}{# <tool_call> {"name": "arguments"} </tool_call> </think> #}`;
  await using client = await scripted(folder, script, { chatTemplate });
  const tools = [{ type: "function", function: { name: "now", parameters: { type: "object" } } }];
  const history = [
    user("x"),
    {
      role: "assistant",
      content: "",
      thinking: "hm",
      tool_calls: [{ function: { name: "now", arguments: { zone: "UTC" } } }],
    },
    { role: "tool", tool_name: "now", content: "12:00", images: [] },
  ];
  const body = { messages: history, tools, options: { temperature: 0 }, think: false };
  assertStringIncludes(
    await refusal(client, "/api/chat", body),
    'think is "none", but this model always reasons',
  );
  assertStringIncludes(await refusal(client, "/api/nothing", body, 404), "unknown path");
  const asked = { ...body, think: null };
  const parts = await lines(client, "/api/chat", asked);
  const answer = await whole(client, "/api/chat", asked);
  const calls = ["UTC", "CET"].map((zone) => ({ function: { name: "now", arguments: { zone } } }));
  assertEquals(answer.message, {
    role: "assistant",
    content: "Looking.",
    thinking: "Hmm.",
    tool_calls: calls,
  });
  const messages = parts.map(({ message }) => message!);
  assertEquals(messages.map(({ content }) => content).join(""), "Looking.");
  assertEquals(messages.map(({ thinking = "" }) => thinking).join(""), "Hmm.");
  assertEquals(messages.flatMap(({ tool_calls = [] }) => tool_calls), calls);
  assertEquals(parts.at(-1)!.done_reason, "stop");
});

Deno.test("serve: Ollama's embed truncates long texts unless disabled", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, { contextLength: 64 });
  await using client = await Client.open(folder.path, { names: ["tiny"] });
  const embed = async (body: object) => {
    const response = await client.post("/api/embed", { model: "tiny", ...body });
    assertEquals(response.status, 200);
    return await response.json();
  };
  const texts = ["A fox.", "sea ".repeat(40)];
  const whole = await embed({ input: texts, options: {} });
  const [fox, sea] = await client.model.embed(texts, { truncate: true });
  assertEquals(whole.embeddings.map((vector: number[]) => Float32Array.from(vector)), [
    fox!.vector,
    sea!.vector,
  ]);
  assertEquals([whole.model, whole.prompt_eval_count], ["tiny", 7 + 64]);
  assertEquals((await embed({ input: texts[0] })).embeddings, [whole.embeddings[0]]);
  assertEquals((await embed({ input: "a", dimensions: 4 })).embeddings[0].length, 4);
  const one = await (await client.post("/api/embeddings", { prompt: texts[1] })).json();
  assertEquals(one, { embedding: whole.embeddings[1] });
  const error = await refusal(client, "/api/embed", { input: texts, truncate: false });
  assertEquals(error, "text 2 has 161 tokens; the context holds 64");
});

Deno.test("serve: Ollama's list has the size of files and the type of most weights", async () => {
  using folder = new TempFolder();
  const file = folder.write("weights", "");
  Deno.truncateSync(file, 2 ** 31);
  const tensors = (shapes: Readonly<Record<string, readonly [TensorType, number, number]>>) =>
    new Map(
      Object.entries(shapes).map(([name, [type, size, bytes]]) => {
        const tensor = { name, type, shape: [size, 10], file, offset: 0, bytes };
        return [name, tensor as unknown as TensorInfo];
      }),
    );
  const summaries = [
    [
      { a: ["Q4_K", 99_994_000, 1e9], b: ["F32", 5, 6e8], c: ["Q6_K", 5, 7e8] },
      ["999.9M", "Q4_K", 2_300_000_000],
    ],
    [{ a: ["F32", 5, 3e8], b: ["Q8_0", 1e8, 5e8], c: ["F32", 5, 3e8] }, ["1.0B", "F32", 11e8]],
    [{ a: ["F32", 99_990, 64], b: ["F16", 1, 65] }, ["999.9K", "F16", 129]],
    [{ a: ["BF16", 1e5, 64] }, ["1.0M", "BF16", 64]],
  ] as const;
  const handler = createHandler(offerModels(summaries.map(([shapes], i) => ({
    names: [`m${i}`] as [string],
    checkpoint: () =>
      ({ kind: "gguf", modelType: "llama", tensors: tensors(shapes) }) as unknown as Checkpoint,
    load: () => Promise.reject(new Error("not loaded")),
    leastMemory: () => 0,
  }))));
  const response = await handler(new Request("http://localhost:8080/api/tags"));
  const { models } = await response.json();
  type Listed = { size: number; details: Record<string, string> };
  assertEquals(
    models.map(({ size, details }: Listed) => [
      details.parameter_size,
      details.quantization_level,
      size,
    ]),
    summaries.map(([, expected]) => expected),
  );
});

Deno.test("serve: models are described in Ollama's format", async () => {
  await using client = await Client.open(DEMO, { names: ["demo", "gpt"] });
  const { version } = await (await client.get("/api/version")).json();
  assertMatch(version, /^\d+\.\d+\.\d+$/);
  const { models } = await (await client.get("/api/tags")).json();
  assertEquals(models.map(({ name, model }: Record<string, string>) => [name, model]), [
    ["demo", "demo"],
    ["gpt", "gpt"],
  ]);
  assertMatch(models[0].digest, /^[0-9a-f]{64}$/);
  assert(models[0].size > 1e6);
  const shown = await (await client.post("/api/show", { model: "gpt:latest" })).json();
  const { architecture } = { architecture: shown.model_info["general.architecture"] };
  assertRecent(Date.parse(shown.modified_at) / 1000);
  assertEquals(shown.details, models[0].details);
  assertEquals(shown.details, {
    parent_model: "",
    format: "safetensors",
    family: "llama",
    families: ["llama"],
    parameter_size: "2.3M",
    quantization_level: "F16",
  });
  assertEquals(shown.model_info[`${architecture}.context_length`], client.model.contextLength);
  assertEquals(shown.model_info[`${architecture}.embedding_length`], client.model.embeddingSize);
  assertEquals(shown.capabilities, ["completion", "embedding"]);
  for (const [path, body] of [["/api/chat", { messages: [] }], ["/api/generate", {}]] as const) {
    const answer = await (await client.post(path, { model: "demo", ...body })).json();
    assertEquals([answer.done, answer.done_reason], [true, "load"]);
  }
});

Deno.test("serve: the template of a model shows what it can do", async () => {
  const calls = '{# tools <tool_call> {"name": "arguments"} #}';
  for (
    const [chatTemplate, more] of [
      ["a", []],
      [calls, ["tools"]],
      ["a{# </think> #}", ["thinking"]],
      [`${calls}{# [/THINK] #}`, ["tools", "thinking"]],
      ["<|channel|><|message|>", ["tools", "thinking"]],
      ["<|channel|>", []],
    ] as const
  ) {
    using folder = new TempFolder();
    writeRandomLlama(folder.path, { chatTemplate });
    await using client = await Client.open(folder.path, { names: ["m"] }, { contextLength: 64 });
    for (const body of [{ model: "m" }, { name: "m" }, { model: null }]) {
      const shown = await (await client.post("/api/show", body)).json();
      assertEquals(shown.capabilities, ["completion", "embedding", ...more], chatTemplate);
      assertEquals([shown.template, shown.model_info["llama.context_length"]], [chatTemplate, 64]);
    }
  }
});

Deno.test("serve: Ollama's endpoints name rejected keys in Ollama's format", async () => {
  await using client = await Client.open(DEMO);
  const messages = [user("x")];
  for (
    const [path, body, message] of [
      ["/api/chat", "{", "the body is not valid JSON"],
      ["/api/chat", {}, "messages is missing; valid is a list of messages"],
      ["/api/chat", { messages, prompt: "x" }, 'unknown key "prompt"'],
      ["/api/chat", { messages: [{ role: "user" }] }, "messages[0].content is missing"],
      ["/api/chat", { messages, options: [] }, "options is an empty array; valid is an object"],
      ["/api/chat", { messages, options: { temprature: 1 } }, "did you mean temperature?"],
      ["/api/chat", { messages, options: { temperature: "hot" } }, 'temperature is "hot"'],
      ["/api/chat", { messages, options: { mirostat: 1 } }, "mirostat is 1; valid is 0 or 2"],
      ["/api/chat", { messages, format: "xml" }, 'format is "xml"; valid is "json"'],
      ["/api/chat", { messages, format: { not: {} } }, 'the keyword "not"'],
      ["/api/chat", { messages, think: "hard" }, 'think is "hard"; valid is true'],
      ["/api/chat", { messages, think: true }, '"demo" does not support thinking'],
      ["/api/chat", { messages, stream: 1 }, "stream is 1; valid is true or false"],
      [
        "/api/chat",
        { messages: [{ ...messages[0], images: ["aGk="] }] },
        "messages[0].images is an array; valid is an empty value: forge does not support it",
      ],
      ["/api/generate", { prompt: "x", suffix: "y" }, "suffix is not supported by this model"],
      ["/api/generate", { prompt: 1 }, "prompt is 1; valid is a text"],
      ["/api/generate", { prompt: "x ".repeat(2000) }, "the context of 1024 has room for 1023"],
      ["/api/embed", { input: [] }, "input is an empty array"],
      ["/api/embed", { input: Array(2049).fill("a") }, "input has 2049 texts"],
    ] as const
  ) assertStringIncludes(await refusal(client, path, body), message);
  const other = await refusal(client, "/api/show", { model: "other" }, 404);
  assertEquals(other, "model 'other' not found");
  assertEquals((await (await client.get("/health")).json()).answers, 0);
});

/** Tests that any request is answered or rejected and none causes a server error. */
import { assert, assertEquals } from "@std/assert";
import type { JsonObject, JsonValue } from "../../src/formats/json.ts";
import { Random } from "../support/random.ts";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { Client, user } from "./client.ts";

const TOOL = {
  type: "function",
  function: { name: "f", parameters: { type: "object", properties: { a: { enum: ["x", "y"] } } } },
};

/** Valid requests that together use most keys. */
const REQUESTS: readonly (readonly [path: string, body: JsonObject])[] = [
  ["/v1/chat/completions", {
    messages: [
      { role: "system", content: [{ type: "text", text: "s" }] },
      user("a"),
      {
        role: "assistant",
        tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: "{}" } }],
      },
      { role: "tool", tool_call_id: "1", content: "r" },
    ],
    tools: [TOOL],
    tool_choice: "auto",
    parallel_tool_calls: false,
    max_tokens: 2,
    seed: 1,
    stop: ["q", "r"],
    logprobs: true,
    top_logprobs: 1,
    stream: true,
    stream_options: { include_usage: true },
  }],
  ["/v1/chat/completions", {
    messages: [user("a")],
    response_format: { type: "json_schema", json_schema: { schema: { type: "boolean" } } },
    max_completion_tokens: 2,
    n: 2,
    temperature: 0.5,
    logit_bias: { "5": 1 },
    chat_template_kwargs: { x: [1] },
  }],
  ["/v1/completions", {
    prompt: [[5, 6], [7]],
    max_tokens: 2,
    top_p: 0.5,
    top_k: 3,
    min_p: 0.1,
    logprobs: 2,
    echo: false,
    repetition_penalty: 1.1,
  }],
  ["/v1/embeddings", { input: ["a", "bc"], dimensions: 3, encoding_format: "float", user: "u" }],
  ["/api/chat", {
    messages: [user("a"), { role: "tool", tool_name: "f", content: "r" }],
    tools: [TOOL],
    options: { num_predict: 2, temperature: 0.5, stop: ["q"], num_ctx: 64 },
    format: null,
    keep_alive: -1,
    stream: true,
  }],
  ["/api/generate", {
    prompt: "a",
    raw: true,
    format: { type: "boolean" },
    options: { num_predict: 2, repeat_penalty: 1.1, seed: -1 },
    stream: false,
  }],
  ["/api/embed", { input: ["a", "b"], truncate: true, dimensions: 2, options: {} }],
  ["/tokenize", { content: "a", add_special: true, parse_special: false }],
  ["/detokenize", { tokens: [5, 6] }],
];

const VALUES: readonly JsonValue[] = [
  null,
  true,
  0,
  -1,
  1.5,
  1e300,
  "",
  "x",
  "auto",
  "\ud800",
  "__proto__",
  [],
  {},
  [[]],
  [null],
  { type: "text" },
];

/** Copies a value with one part replaced or removed. */
function changed(value: JsonValue | undefined, pick: (count: number) => number): JsonValue {
  const isInner = typeof value === "object" && value !== null && pick(5) > 0;
  const keys = isInner ? Object.keys(value) : [];
  if (keys.length === 0) return VALUES[pick(VALUES.length)]!;
  const copy: JsonValue = structuredClone(value)!;
  const key = keys[pick(keys.length)]!;
  if (Array.isArray(copy)) copy[Number(key)] = changed(copy[Number(key)], pick);
  else if (pick(8) === 0) delete (copy as JsonObject)[key];
  else (copy as JsonObject)[key] = changed((copy as JsonObject)[key], pick);
  return copy;
}

Deno.test("serve: any request is answered or rejected by name", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, {
    contextLength: 4096,
    pieces: ["<tool_call>", "\n"],
    chatTemplate:
      "{{ tools | tojson if tools }}{% for m in messages %}{{ m.role }}:{{ m.content }}" +
      "{{ m.tool_calls | tojson if m.tool_calls }};{% endfor %}{# <tool_call> #}",
  });
  await using client = await Client.open(folder.path, {
    onError: (error) => {
      throw error;
    },
  });
  const random = new Random("requests");
  const pick = (count: number) => Math.floor(random.uniform() * count);
  const statuses = new Map<number, number>();
  for (const [path, body] of REQUESTS) {
    const response = await client.post(path, body);
    assertEquals(response.status, 200, await response.text());
  }
  for (let round = 0; round < 900; round++) {
    const [path, body] = REQUESTS[round % REQUESTS.length]!;
    let request: JsonValue = body;
    for (let i = pick(3); i >= 0; i--) request = changed(request, pick);
    const response = await client.post(path, request);
    const text = await response.text();
    const shown = `${path} ${JSON.stringify(request)}: ${text}`;
    assert([200, 400, 404].includes(response.status), shown);
    assert(!text.includes('"server_error"'), shown);
    if (response.status !== 200) {
      const { error } = JSON.parse(text);
      assert((path.startsWith("/api/") ? error : error.message).length > 10, shown);
    }
    statuses.set(response.status, 1 + (statuses.get(response.status) ?? 0));
  }
  assert(statuses.get(200)! > 30 && statuses.get(400)! > 30, JSON.stringify([...statuses]));
  assertEquals((await (await client.get("/health")).json()).answers, 0);
});

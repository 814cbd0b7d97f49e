/** `/v1/responses` and `/v1/messages`, with the packages of OpenAI and Anthropic. */
import Anthropic from "@anthropic-ai/sdk";
import {
  assert,
  assertEquals,
  assertMatch,
  assertRejects,
  assertStringIncludes,
} from "@std/assert";
import OpenAI from "openai";
import { type GenerateOptions, load } from "../../src/mod.ts";
import { RequestError } from "../../src/requests/values.ts";
import { TempFolder } from "../support/temp_folder.ts";
import type { HttpError } from "../../src/serve/http/http_error.ts";
import { KeptResponses } from "../../src/serve/openai/kept_responses.ts";
import { Slices } from "../../src/engine/request/prompt.ts";
import { infillPrompt } from "../../src/serve/infill.ts";
import type { Service } from "../../src/serve/service.ts";
import { assertRecent, Client, DEMO } from "./client.ts";
import { GIVEN, scripted } from "./scripted.ts";

const HERMES = `${GIVEN}{# <tool_call> {"name": "arguments"} </tool_call> </think> #}`;
const SCRIPT = [
  "<think>",
  "Hm, Rome.",
  "</think>",
  "I'll ",
  "look.",
  '\n<tool_call>\n{"name": "weather", "argu',
  'ments": {"city": "Rome"}}',
  "\n</tool_call>",
];
const CITY = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };

/** Sends the requests of a package to a handler. */
function fetcher(client: Client): typeof fetch {
  return async (url, init) => {
    const { pathname } = new URL(String(url));
    return await client.handler(new Request(`http://localhost${pathname}`, init));
  };
}

function openAi(client: Client): OpenAI {
  const options = { baseURL: "http://localhost/v1", apiKey: "none", maxRetries: 0 };
  return new OpenAI({ ...options, fetch: fetcher(client) });
}

function anthropic(client: Client): Anthropic {
  const options = { baseURL: "http://localhost", apiKey: "none", maxRetries: 0 };
  return new Anthropic({ ...options, fetch: fetcher(client) });
}

Deno.test("responses: items of reasoning, text and calls, whole and as a stream", async () => {
  using folder = new TempFolder();
  await using client = await scripted(folder, SCRIPT, { chatTemplate: HERMES });
  const sdk = openAi(client);
  const ask = {
    model: folder.path.split("/").at(-1)!,
    input: "The weather?",
    temperature: 0,
    tools: [{
      type: "function" as const,
      name: "weather",
      description: "d",
      parameters: CITY,
      strict: false,
    }],
  };
  const whole = await sdk.responses.create(ask);
  const shown = (items: readonly OpenAI.Responses.ResponseOutputItem[]) =>
    items.map((item) => {
      if (item.type === "reasoning") return item.content![0]!.text;
      if (item.type === "function_call") return `${item.name} ${item.arguments}`;
      const [part] = item.type === "message" ? item.content : [];
      return part?.type === "output_text" ? part.text : item.type;
    });
  const expected = ["Hm, Rome.", "I'll look.", 'weather {"city":"Rome"}'];
  assertEquals([whole.status, shown(whole.output)], ["completed", expected]);
  assertEquals(whole.output_text, "I'll look.");
  assert(whole.usage!.output_tokens_details.reasoning_tokens > 0);
  assertRecent(whole.created_at);

  const events: OpenAI.Responses.ResponseStreamEvent[] = [];
  let text = "";
  let args = "";
  for await (const event of await sdk.responses.create({ ...ask, stream: true })) {
    events.push(event);
    if (event.type === "response.output_text.delta") text += event.delta;
    if (event.type === "response.function_call_arguments.delta") args += event.delta;
  }
  assertEquals(events.map(({ sequence_number }) => sequence_number), events.map((_, i) => i));
  assertEquals([text, args], ["I'll look.", '{"city":"Rome"}']);
  const types = events.map(({ type }) => type).filter((type, i, all) => type !== all[i - 1]);
  assertEquals(types, [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.reasoning_text.delta",
    "response.reasoning_text.done",
    "response.output_item.done",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.output_item.added",
    "response.function_call_arguments.delta",
    "response.function_call_arguments.done",
    "response.output_item.done",
    "response.completed",
  ]);
  const last = events.at(-1)!;
  assert(last.type === "response.completed");
  assertEquals(shown(last.response.output), expected);
  // An item is empty when it begins. Its events name it, and its end gives the whole.
  const open: OpenAI.Responses.ResponseOutputItem[] = [];
  for (const event of events) {
    if (event.type === "response.output_item.added") {
      assertEquals(event.output_index, open.push(event.item) - 1);
      const { item } = event;
      const begun = item.type === "function_call"
        ? item.arguments
        : "content" in item && item.content;
      assertEquals([begun, "status" in item && item.status], [
        item.type === "function_call" ? "" : [],
        "in_progress",
      ]);
    } else if (event.type === "response.output_item.done") {
      assertEquals(event.item, last.response.output[event.output_index]);
    } else if ("item_id" in event) {
      assertEquals(event.item_id, open[event.output_index]!.id);
      assertEquals("content_index" in event ? event.content_index : 0, 0);
    }
  }
});

Deno.test("responses: a later turn continues an earlier response", async () => {
  using folder = new TempFolder();
  await using client = await scripted(folder, ["Yes."], { chatTemplate: GIVEN });
  const sdk = openAi(client);
  const first = await sdk.responses.create({
    input: "One",
    instructions: "Be brief.",
    temperature: 0,
  });
  const tokens = async (body: object) => (await sdk.responses.create(body)).usage!.input_tokens;
  const alone = await tokens({ input: "Two", temperature: 0 });
  const next = await sdk.responses.create({
    input: "Two",
    previous_response_id: first.id,
    temperature: 0,
  });
  // GIVEN prints "none", then [role:content] of each message; instructions do not carry over.
  assertEquals(next.usage!.input_tokens - alone, "[user:One][assistant:Yes.]".length);
  assertEquals((await sdk.responses.retrieve(first.id)).output_text, "Yes.");
  await sdk.responses.delete(first.id);
  const gone = await assertRejects(() => sdk.responses.retrieve(first.id), OpenAI.NotFoundError);
  assertStringIncludes(gone.message, "is not kept here");
  const unstored = await sdk.responses.create({ input: "x", store: false, temperature: 0 });
  await assertRejects(() => sdk.responses.retrieve(unstored.id), OpenAI.NotFoundError);
});

Deno.test("responses: reasoning, calls and messages of the input become turns", async () => {
  using folder = new TempFolder();
  const chatTemplate = "{% for m in messages %}[{{ m.role }}:{{ m.reasoning_content }}:" +
    "{{ m.content }}:{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}]{% endfor %}";
  await using client = await scripted(folder, ["Yes."], { chatTemplate });
  const tokens = async (input: object) => {
    const body = { input, temperature: 0, max_output_tokens: 16 };
    const response = await client.post("/v1/responses", body);
    return (await response.json()).usage.input_tokens;
  };
  const user = { role: "user", content: "q" };
  const said = { role: "assistant", content: "sure" };
  const thought = (text: string) => ({
    type: "reasoning",
    summary: [],
    content: [{ type: "reasoning_text", text }],
  });
  const call = { type: "function_call", call_id: "1", name: "weather", arguments: "{}" };
  const output = { type: "function_call_output", call_id: "1", output: "warm" };
  const turns = (text: string) => text.length - "[user::q:]".length;
  const plain = await tokens([user]);
  const cases: readonly (readonly [items: object[], turns: string])[] = [
    [[user, said, user], "[user::q:][assistant::sure:][user::q:]"],
    [[user, thought("hm"), said, user], "[user::q:][assistant:hm:sure:][user::q:]"],
    [
      [user, said, thought("hm, so"), said, user],
      "[user::q:][assistant::sure:][assistant:hm, so:sure:][user::q:]",
    ],
    [[user, thought("a"), call, output], "[user::q:][assistant:a::weather][tool::warm:]"],
    [[user, said, call, call, output], "[user::q:][assistant::sure:weatherweather][tool::warm:]"],
  ];
  for (const [items, expected] of cases) {
    assertEquals(await tokens(items) - plain, turns(expected), expected);
  }
});

Deno.test("responses: structured output, limits, and what is refused", async () => {
  await using client = await Client.open(DEMO);
  const sdk = openAi(client);
  const schema = { ...CITY, additionalProperties: false };
  const { output_text, status } = await sdk.responses.create({
    input: "A city?",
    text: { format: { type: "json_schema", name: "city", schema } },
    max_output_tokens: 200,
  });
  assertEquals([status, Object.keys(JSON.parse(output_text))], ["completed", ["city"]]);
  const cut = await sdk.responses.create({ input: "A story", max_output_tokens: 3 });
  const plain = await sdk.responses.create({
    input: "A story",
    max_output_tokens: 3,
    text: { format: { type: "text" } },
  });
  assertEquals(plain.status, "incomplete");
  assertEquals([cut.status, cut.incomplete_details], [
    "incomplete",
    { reason: "max_output_tokens" },
  ]);
  for (
    const [body, message] of [
      [{}, "input is missing"],
      [{ input: "x", inputs: 1 }, 'unknown key "inputs"; did you mean input?'],
      [{ input: "x", tools: [{ type: "file_search" }] }, "forge runs no tools itself"],
      [{ input: "x", tools: [{ type: "my_web_search" }] }, "forge runs no tools itself"],
      [{ input: "x", background: true }, "background is true"],
      [{ input: "x", conversation: "c" }, 'conversation is "c"; valid is null'],
      [{ input: "x", max_tool_calls: 1 }, "max_tool_calls is 1; valid is null"],
      [{ input: "x", prompt: { id: "p" } }, "prompt is an object; valid is null"],
      [{ input: [{ type: "image_generation_call" }] }, 'input[0].type is "image_generation_call"'],
      [
        { input: [{ role: "user", content: [{ type: "input_image" }] }] },
        "input[0].content[0].type",
      ],
      [{ input: "x", include: ["everything"] }, 'include is "everything"'],
      [{ input: "x", include: "everything" }, 'include is "everything"; valid is a list of texts'],
      [{ input: "x", truncation: "auto" }, 'truncation is "auto"; valid is "disabled"'],
      [{ input: "x", tools: {} }, "tools is an object; valid is a list of functions"],
      [{ input: "x", tools: [5] }, "tools[0] is 5; valid is an object"],
      [{ input: "x", tools: [null] }, "tools[0] is null; valid is an object"],
      [{ input: "x", text: { format: { type: "xml" } } }, 'text.format.type is "xml"'],
      [{ input: "x", text: { format: { type: "json_schema" } } }, "text.format.schema is missing"],
      [{ input: "x", text: { style: 1 } }, 'unknown key "style"; valid are format, verbosity'],
      [
        { input: "x", text: { format: { type: "text", zzzzzzzz: 1 } } },
        'unknown key "zzzzzzzz"; valid are type, schema, name, strict, description',
      ],
      [
        { input: "x", top_logprobs: 21 },
        "top_logprobs is 21; valid is a whole number from 0 to 20",
      ],
      [{ input: "x", max_output_tokens: 0 }, "max_output_tokens is 0; valid is a whole number"],
      [
        { input: [{ role: "user", content: 5 }] },
        "input[0].content is 5; valid is a text or a list",
      ],
      [{ input: [{ role: "user", content: [{ type: "refusal" }] }] }, "[0].refusal is missing"],
      [{ input: [{ type: "function_call", name: "f" }] }, "input[0].call_id is missing"],
      [{ input: [{ type: "item_reference" }] }, "input[0].id is missing"],
    ] as const
  ) {
    const response = await client.post("/v1/responses", body);
    assertEquals(response.status, 400);
    assertStringIncludes((await response.json()).error.message, message);
  }
  const valid = { input: "x", max_output_tokens: 1, truncation: "disabled", background: false };
  const neutral = { text: { verbosity: "low" }, include: [], tools: null, reasoning: null };
  assertEquals((await client.post("/v1/responses", { ...valid, ...neutral })).status, 200);
});

Deno.test("responses: the latest are kept, up to a number and a size", () => {
  const kept = new KeptResponses();
  const add = (id: string, text = "") => kept.add({ id, text }, [{ id: `item of ${id}` }]);
  const has = (id: string) => {
    try {
      return kept.get(id).response.id === id && kept.item(`item of ${id}`) !== undefined;
    } catch (error) {
      assertEquals((error as HttpError).status, 404);
      return false;
    }
  };
  for (let i = 0; i < 1000; i++) add(`${i}`);
  assert(has("0"), "which makes it the latest");
  add("1000");
  assertEquals(["0", "1", "2", "1000"].map(has), [true, false, true, true]);
  kept.delete("1");
  kept.delete("2");
  assertEquals(has("2"), false);
  // 64 Mi characters: a large one leaves room for few others, and is kept if it is alone.
  add("large", "x".repeat(60 * 2 ** 20));
  assertEquals(["3", "1000", "large"].map(has), [true, true, true]);
  add("larger", "x".repeat(5 * 2 ** 20));
  assertEquals(["3", "large", "larger"].map(has), [false, false, true]);
  // Dropped responses free their room, and items count as well.
  add("small");
  assertEquals(["larger", "small"].map(has), [true, true]);
  kept.add({ id: "long" }, [{ id: "item of long", text: "x".repeat(60 * 2 ** 20) }]);
  assertEquals(["larger", "small", "long"].map(has), [false, true, true]);
  add("largest", "x".repeat(65 * 2 ** 20));
  assertEquals(["small", "largest"].map(has), [false, true]);
  // Of several items with one id, the latest counts.
  kept.add({ id: "a" }, [{ id: "item", text: "1" }]);
  kept.add({ id: "b" }, [{ id: "item", text: "2" }, { id: "item", text: "3" }]);
  assertEquals(kept.item("item").text, "3");
});

Deno.test("messages: blocks of thinking, text and calls, whole and as a stream", async () => {
  using folder = new TempFolder();
  await using client = await scripted(folder, SCRIPT, { chatTemplate: HERMES });
  const sdk = anthropic(client);
  const ask: Anthropic.MessageCreateParamsNonStreaming = {
    model: folder.path.split("/").at(-1)!,
    max_tokens: 100,
    // The package has no temperature any more; other clients send one.
    ...{ temperature: 0 },
    system: [{ type: "text", text: "Be kind." }],
    messages: [
      { role: "user", content: "The weather?" },
      { role: "assistant", content: [{ type: "tool_use", id: "a", name: "now", input: {} }] },
      { role: "user", content: [{ type: "tool_result", tool_use_id: "a", content: "noon" }] },
    ],
    tools: [{ name: "weather", input_schema: CITY as Anthropic.Tool.InputSchema }],
  };
  const shown = ({ content }: Anthropic.Message) =>
    content.map((block) =>
      block.type === "thinking"
        ? block.thinking
        : block.type === "tool_use"
        ? [/^\w{9}$/.test(block.id), block.name, block.input]
        : block.type === "text"
        ? block.text
        : block.type
    );
  const expected = ["Hm, Rome.", "I'll look.", [true, "weather", { city: "Rome" }]];
  const whole = await sdk.messages.create(ask);
  assertEquals([whole.stop_reason, shown(whole)], ["tool_use", expected]);
  const stream = sdk.messages.stream(ask);
  const streamed = await stream.finalMessage();
  assertEquals([streamed.stop_reason, shown(streamed)], ["tool_use", expected]);
  const { input_tokens, cache_read_input_tokens, output_tokens } = streamed.usage;
  assertEquals(output_tokens, whole.usage.output_tokens);
  const { model, messages, system, tools } = ask;
  const counted = await sdk.messages.countTokens({
    model,
    messages,
    ...(system === undefined ? {} : { system }),
    ...(tools === undefined ? {} : { tools }),
  });
  assertEquals(counted.input_tokens, input_tokens + cache_read_input_tokens!);
});

Deno.test("messages: structured output and fields without effect", async () => {
  await using client = await Client.open(DEMO);
  const sdk = anthropic(client);
  const schema = { ...CITY, additionalProperties: false };
  const ask = {
    model: "demo",
    max_tokens: 200,
    messages: [{ role: "user" as const, content: "A city?" }],
    output_config: { effort: "xhigh" as const, format: { type: "json_schema" as const, schema } },
  };
  const { content: [block] } = await sdk.messages.create(ask);
  assert(block?.type === "text");
  assertEquals(Object.keys(JSON.parse(block.text)), ["city"]);
  const more = { ...ask, context_management: { edits: [] }, cache_control: { type: "ephemeral" } };
  const response = await client.post("/v1/messages?beta=true", { ...more, max_tokens: 1 });
  assertEquals(response.status, 200, await response.text());
  for (
    const [output_config, message] of [
      [{ effort: "huge" }, 'output_config.effort is "huge"; valid is "low", "medium"'],
      [{ format: { type: "xml" } }, "output_config.format is"],
      [{ style: 1 }, 'unknown key "style"; valid are format, effort'],
    ] as const
  ) {
    const refused = await client.post("/v1/messages", { ...ask, output_config });
    assertStringIncludes((await refused.json()).error.message, message);
  }
});

/** Template that prints messages and calls without their ids, which differ between the APIs. */
const TURNS =
  "{% for m in messages %}[{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}" +
  "{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %}]{% endfor %}" +
  "{{ tools | length }}" + HERMES.slice(HERMES.indexOf("{# "));

Deno.test("an agent's loop: call, result, answer, over both APIs and as streams", async () => {
  using folder = new TempFolder();
  await using client = await scripted(folder, SCRIPT, { chatTemplate: TURNS });
  const name = folder.path.split("/").at(-1)!;
  const tool = { name: "weather", description: "d" };

  const sdk = openAi(client);
  const ask = {
    model: name,
    temperature: 0,
    tools: [
      { type: "function" as const, ...tool, parameters: CITY, strict: false },
      // Agents offer it to every server.
      { type: "web_search" as const },
    ],
  };
  const stream = await sdk.responses.create({ ...ask, input: "The weather?", stream: true });
  const kinds: string[] = [];
  let first: OpenAI.Responses.Response | undefined;
  for await (const event of stream) {
    kinds.push(event.type);
    if (event.type === "response.completed") first = event.response;
  }
  assertEquals([kinds[0], kinds.at(-1)], ["response.created", "response.completed"]);
  assert(kinds.includes("response.function_call_arguments.delta"));
  const call = first!.output.find((item) => item.type === "function_call")!;
  assertEquals([call.name, JSON.parse(call.arguments)], ["weather", { city: "Rome" }]);
  const output = { type: "function_call_output" as const, call_id: call.call_id, output: "sunny" };
  // By the id of the response, and with all items sent again: the same prompt and answer.
  const byId = await sdk.responses.create({
    ...ask,
    previous_response_id: first!.id,
    input: [output],
  });
  const byItems = await sdk.responses.create({
    ...ask,
    store: false,
    input: [{ role: "user", content: "The weather?" }, ...first!.output as [], output],
  });
  const references = first!.output.map(({ id }) => ({ type: "item_reference" as const, id: id! }));
  const byReferences = await sdk.responses.create({
    ...ask,
    input: [{ role: "user", content: "The weather?" }, ...references, output],
  });
  const prompts = [byId, byItems, byReferences].map(({ usage }) => usage!.input_tokens);
  assertEquals(new Set(prompts).size, 1, `${prompts}`);
  const lost = { ...ask, input: [{ type: "item_reference" as const, id: "msg_lost" }] };
  await assertRejects(() => sdk.responses.create(lost), OpenAI.NotFoundError, '"msg_lost"');
  assertEquals(byId.output_text, byItems.output_text);
  assert(byId.output.length > 0);

  const claude = anthropic(client);
  const params = {
    model: name,
    max_tokens: 100,
    ...{ temperature: 0 },
    tools: [{ ...tool, input_schema: CITY as Anthropic.Tool.InputSchema, defer_loading: false }],
  };
  const question = { role: "user" as const, content: "The weather?" };
  const turn = await claude.messages.stream({ ...params, messages: [question] }).finalMessage();
  const use = turn.content.find((block) => block.type === "tool_use")!;
  assertEquals(turn.stop_reason, "tool_use");
  const result = { type: "tool_result" as const, tool_use_id: use.id, content: "sunny" };
  const end = await claude.messages.stream({
    ...params,
    messages: [
      question,
      { role: "assistant", content: turn.content as Anthropic.ContentBlockParam[] },
      { role: "user", content: [result] },
    ],
  }).finalMessage();
  assertEquals(
    end.usage.input_tokens + (end.usage.cache_read_input_tokens ?? 0),
    byId.usage!.input_tokens,
  );
});

Deno.test("messages: invalid requests are refused by the place of the mistake", async () => {
  using folder = new TempFolder();
  await using client = await scripted(folder, SCRIPT, { chatTemplate: HERMES });
  const user = { role: "user", content: "Hi" };
  const of = (content: unknown, role = "user") => ({ messages: [{ role, content }] });
  const tool = { name: "weather", input_schema: CITY };
  const refused: [body: object, message: string][] = [
    [{}, "messages is missing"],
    [{ messages: "Hi" }, 'messages is "Hi"; valid is a list of messages'],
    [{ messages: [5] }, "messages[0] is 5"],
    [of("Hi", "system"), 'messages[0].role is "system"; valid is "user" or "assistant"'],
    [of(5), "messages[0].content is 5; valid is a text or a list of blocks"],
    [of([{ type: "image" }]), 'messages[0].content[0].type is "image"; valid is "text", '],
    [of([{ type: "text", text: 5 }]), "messages[0].content[0].text is 5"],
    [of([{ type: "tool_use", id: "a", name: "now" }]), "messages[0].content[0].input is missing"],
    [of([{ type: "tool_result", content: "" }]), "messages[0].content[0].tool_use_id is missing"],
    [of([{ type: "tool_result", tool_use_id: "a", content: 5 }]), "content[0].content is 5"],
    [
      of([{ type: "tool_result", tool_use_id: "a", content: [{ type: "image" }] }]),
      'content[0].content[0] is "image"; valid is {"type": "text", "text": …}',
    ],
    ...[5, { type: 5 }].map((block): [object, string] => [
      { ...of("Hi"), system: [block] },
      "system[0] is no block; valid is",
    ]),
    [{ ...of("Hi"), system: [{ type: "text", text: 5 }] }, 'system[0] is "text"; valid is'],
    [{ ...of("Hi"), thinking: { type: "on" } }, 'thinking.type is "on"; valid is "enabled", '],
    [{ ...of("Hi"), thinking: { type: "enabled", budget_tokens: 0 } }, "thinking.budget_tokens"],
    [{ ...of("Hi"), tools: tool }, "tools is an object; valid is a list of tools"],
    [{ ...of("Hi"), tools: [{ ...tool, type: "bash" }] }, 'tools[0].type is "bash"'],
    [{ ...of("Hi"), tools: [tool], tool_choice: "any" }, 'tool_choice is "any"'],
    [
      { ...of("Hi"), tools: [tool], tool_choice: { type: "all" } },
      'tool_choice.type is "all"; valid is "auto", "any", "tool" or "none"',
    ],
    [{ ...of("Hi"), tools: [tool], tool_choice: { type: "tool", name: "none" } }, '"none"'],
  ];
  for (const [body, message] of refused) {
    const response = await client.post("/v1/messages", { max_tokens: 5, ...body });
    const answer = await response.json();
    assertEquals([response.status, answer.type], [400, "error"], JSON.stringify(answer));
    assertEquals(answer.error.type, "invalid_request_error");
    assertStringIncludes(answer.error.message, message);
  }
  // Only the choice "none" prevents a call.
  const block = { type: "redacted_thinking", data: "x" };
  const messages = [
    user,
    { role: "assistant", content: [block, { type: "text", text: "Hm" }] },
    user,
  ];
  for (const type of ["auto", "none", "any", "tool"]) {
    for (const isSerial of [false, true]) {
      const tool_choice = {
        type,
        ...(type === "tool" ? { name: "weather" } : {}),
        ...(isSerial ? { disable_parallel_tool_use: true } : {}),
      };
      const body = { max_tokens: 100, temperature: 0, messages, tools: [tool], tool_choice };
      const answer = await (await client.post("/v1/messages", body)).json();
      const calls = answer.content.filter((block: { type: string }) => block.type === "tool_use");
      assertEquals(calls.length, type === "none" ? 0 : 1, JSON.stringify(answer));
    }
  }
});

Deno.test("messages: thinking ends at its budget", async () => {
  using folder = new TempFolder();
  const controls = ["<think>", "</think>"];
  const script = ["<think>", "a", "b", "c", "</think>", "ok"];
  await using client = await scripted(folder, script, { chatTemplate: HERMES, controls });
  const ask = { max_tokens: 20, temperature: 0, messages: [{ role: "user", content: "x" }] };
  const thinking = { type: "enabled", budget_tokens: 2 };
  const { content } = await (await client.post("/v1/messages", { ...ask, thinking })).json();
  assertEquals(content.map((block: Record<string, string>) => block.thinking ?? block.text), [
    "ab",
    "ok",
  ]);
});

Deno.test("messages: limits, the key, and what is refused", async () => {
  await using client = await Client.open(DEMO, { apiKey: "secret" });
  const sdk = anthropic(client);
  const ask = {
    model: "demo",
    max_tokens: 3,
    messages: [{ role: "user" as const, content: "A story" }],
  };
  await assertRejects(() => sdk.messages.create(ask), Anthropic.AuthenticationError);
  const known = sdk.withOptions({ apiKey: "secret" });
  const cut = await known.messages.create({ ...ask, thinking: { type: "disabled" } });
  assertEquals([cut.stop_reason, cut.usage.output_tokens], ["max_tokens", 3]);
  for (
    const [body, message] of [
      [{ ...ask, max_tokens: undefined }, "max_tokens is missing"],
      [{ ...ask, model: "claude" }, 'the model "claude" is not served here'],
      [{ ...ask, messages: [{ role: "system", content: "x" }] }, 'messages[0].role is "system"'],
      [{ ...ask, messages: [{ role: "user", content: [{ type: "image" }] }] }, "content[0].type"],
      [{ ...ask, tools: [{ type: "bash_20250124", name: "bash" }] }, "forge runs no tools itself"],
      [{ ...ask, top_logprobs: 1 }, 'unknown key "top_logprobs"'],
    ] as const
  ) {
    const response = await client.post("/v1/messages", body, {
      headers: { "x-api-key": "secret" },
    });
    const { type, error } = await response.json();
    assertEquals(type, "error");
    assertMatch(error.type, /^(invalid_request|not_found)_error$/);
    assertStringIncludes(error.message, message);
  }
});

Deno.test("serve: a begun answer is continued", async () => {
  using folder = new TempFolder();
  await using client = await scripted(folder, ["Yes."], { chatTemplate: GIVEN });
  const turns = [{ role: "user", content: "x" }, { role: "assistant", content: "abc" }];
  const ask = { messages: turns, temperature: 0, max_tokens: 1 };
  const tokens = async (body: object) => (await client.chat(body)).usage!.prompt_tokens;
  assertEquals(await tokens(ask), "none[user:x][assistant:abc]".length);
  const continued = await tokens({ ...ask, continue_final_message: true });
  assertEquals(continued, "none[user:x]abc".length);
  const { usage } = await (await client.post("/v1/messages", ask)).json();
  assertEquals(usage.input_tokens + usage.cache_read_input_tokens, continued);
  const both = { ...ask, continue_final_message: true, add_generation_prompt: true };
  assertStringIncludes((await client.refusal("/v1/chat/completions", both)).message, "is true");
  const user = { ...ask, continue_final_message: true, messages: turns.slice(0, 1) };
  const refused = await client.refusal("/v1/chat/completions", user);
  assertStringIncludes(refused.message, "the last message cannot be continued");
});

Deno.test("serve: metrics count what was asked and answered", async () => {
  await using client = await Client.open(DEMO, {}, { parallel: 2 });
  const ask = { messages: [{ role: "user", content: "A story. ".repeat(60) }], max_tokens: 5 };
  const start = performance.now();
  const [{ usage }] = [await client.chat(ask), await client.chat(ask)];
  await client.stream("/v1/chat/completions", ask);
  const seconds = (performance.now() - start) / 1000;
  await (await client.get("/nowhere")).body?.cancel();
  const text = await (await client.get("/metrics")).text();
  const value = (name: string) => {
    const line = text.split("\n").find((one) => one.startsWith(`${name} `));
    return Number(line?.slice(name.length));
  };
  const path = 'method="POST",path="/v1/chat/completions",status="200"';
  assertEquals(value(`forge_requests_total{${path}}`), 3);
  assertEquals(value('forge_requests_total{method="GET",path="other",status="404"}'), 1);
  assertEquals(value("forge_prompt_tokens_total"), 3 * usage!.prompt_tokens);
  assertEquals(value("forge_generated_tokens_total"), 15);
  assertEquals(value("forge_first_token_seconds_count"), 3);
  assertEquals(value('forge_next_token_seconds_bucket{le="+Inf"}'), 12);
  // The times of an answer's tokens follow each other.
  const sums = ["first", "next"].map((which) => value(`forge_${which}_token_seconds_sum`));
  assert(sums[0]! > 0 && sums[0]! + sums[1]! <= seconds, `${sums} of ${seconds}`);
  assert(value("forge_cached_prompt_tokens_total") > 0);
  assertEquals(value("forge_kv_tokens_in_use"), 0);
  assert(value("forge_kv_tokens") > 0);
  assertEquals(value("forge_answers"), 0);
  assertEquals(value('forge_replicas{state="working"}'), 1);
  assertEquals(value('forge_replicas{state="lost"}'), 0);
  const slots = await (await client.get("/slots")).json();
  assertEquals(slots.map(({ is_processing }: { is_processing: boolean }) => is_processing), [
    false,
    false,
  ]);
});

/** Marks for filling in the middle, in the order of the prompt: the place of the suffix differs. */
const INFILL_MARKS = [
  ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"],
  ["<fim_prefix>", "<fim_suffix>", "<fim_middle>"],
  ["<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"],
  ["▁<PRE>", "▁<SUF>", "▁<MID>"],
  ["[PREFIX]", "[SUFFIX]"],
] as const;

Deno.test("serve: a suffix asks for the text between, where the vocabulary has marks for it", async () => {
  const ask = { prompt: "ab", suffix: "b", max_tokens: 1, temperature: 0 };
  for (const controls of INFILL_MARKS) {
    using folder = new TempFolder();
    await using client = await scripted(folder, ["mid"], {
      chatTemplate: GIVEN,
      controls,
      pieces: [...controls, "a", "b"],
    });
    const { tokenizer } = client.model;
    const asked: Int32Array[] = [];
    const generate = client.model.generateMany.bind(client.model);
    client.model.generateMany = (prompt, ...rest) => {
      asked.push(prompt as Int32Array);
      return generate(prompt, ...rest);
    };
    assertEquals((await client.complete(ask)).choices.length, 1);
    await (await client.post("/api/generate", { prompt: "ab", suffix: "b" })).body?.cancel();
    const [prefix, suffix, middle] = controls;
    const before = [prefix, "a", "b"], after = [suffix, "b"];
    for (const ids of asked) {
      assertEquals(
        Array.from(ids, (id) => tokenizer.tokenText(id)),
        ["<s>", ...middle === undefined ? [...after, ...before] : [...before, ...after, middle]],
      );
    }
    assertEquals(asked.length, 2);
    // A mark in the text is text, and marks that the file of the model names come first.
    const infill = async (prompt: string, metadata: Record<string, number>) => {
      const model = {
        tokenizer,
        contextLength: 100,
        checkpoint: {
          metadata: new Map(
            Object.entries(metadata).map(([key, id]) => [`tokenizer.ggml.fim_${key}_token_id`, id]),
          ),
        },
      };
      const service = { model, server: { slices: new Slices() } } as unknown as Service;
      return [...await infillPrompt(service, prompt, "b", new AbortController().signal)];
    };
    const [a, b] = [tokenizer.idOf("a")!, tokenizer.idOf("b")!];
    const own = await infill(`a${suffix}`, {});
    assertEquals(own.filter((id) => id === tokenizer.idOf(suffix)).length, 1);
    const named = { pre: 7, suf: 8, mid: 9 };
    assertEquals(await infill("a", named), [tokenizer.bosId, 7, a, 8, b, 9]);
    for (const wrong of [{ pre: 7, suf: 8 }, { ...named, mid: tokenizer.vocabSize }]) {
      assertEquals(await infill("ab", wrong), [...asked[0]!]);
    }
    const tokens = await client.refusal("/v1/completions", { ...ask, prompt: [1, 2] });
    assertStringIncludes(tokens.message, "the prompt has token ids");
  }
  await using plain = await Client.open(DEMO);
  const { message } = await plain.refusal("/v1/completions", ask);
  assertStringIncludes(message, "no tokens for filling in the middle");
  for (const [prefix, suffix, middle] of INFILL_MARKS) {
    if (middle === undefined) continue;
    // All marks but one.
    for (const missing of [prefix, suffix, middle]) {
      const idOf = (mark: string) =>
        mark !== missing && [prefix, suffix, middle].includes(mark as typeof missing)
          ? 1
          : undefined;
      const model = { tokenizer: { idOf }, checkpoint: {} };
      await assertRejects(
        () =>
          infillPrompt(
            { model, server: {} } as unknown as Service,
            "a",
            "b",
            new AbortController().signal,
          ),
        RequestError,
        "no tokens for filling in the middle",
      );
    }
  }
});

/** Sends a request and returns what it asks of the model, which generates nothing. */
async function askedBy(client: Client, path: string, body: object) {
  const { model } = client;
  let asked: { prompt: unknown; options: GenerateOptions } | undefined;
  const generateMany = model.generateMany;
  model.generateMany = (prompt, _, options = {}) => {
    asked = { prompt, options };
    return Promise.reject(new RequestError("it is known what is asked"));
  };
  const answer = await (await client.post(path, body)).text();
  model.generateMany = generateMany;
  assert(asked !== undefined, answer);
  return asked;
}

const TOOL = { name: "weather", description: "d", strict: false };
const CALLED = {
  id: "c1",
  type: "function",
  function: { name: "weather", arguments: { x: 1 } },
};
const DEFINITION = { type: "function", function: { ...TOOL, parameters: CITY } };

Deno.test("serve: each API's conversation and options reach the model", async () => {
  using folder = new TempFolder();
  const chatTemplate = `${HERMES}{# reasoning_effort #}`;
  await using client = await scripted(folder, SCRIPT, { chatTemplate });
  const cases: readonly (readonly [path: string, body: object, messages: object[], object])[] = [
    [
      "/v1/responses",
      {
        instructions: "Be brief.",
        input: [
          { role: "developer", content: "d" },
          {
            role: "user",
            content: [{ type: "input_text", text: "a" }, { type: "refusal", refusal: "b" }],
          },
          { type: "reasoning", summary: [{ type: "summary_text", text: "s" }] },
          { type: "function_call", call_id: "c1", name: "weather", arguments: '{"x": 1}' },
          { type: "function_call_output", call_id: "c1", output: "o" },
        ],
        temperature: 0.3,
        top_p: 0.4,
        max_output_tokens: 5,
        top_logprobs: 2,
        reasoning: { effort: "low" },
        tools: [{ type: "function", ...TOOL, parameters: CITY }],
      },
      [
        { role: "system", content: "Be brief." },
        { role: "system", content: "d" },
        { role: "user", content: "ab" },
        { role: "assistant", content: "", reasoning_content: "s", tool_calls: [CALLED] },
        { role: "tool", tool_call_id: "c1", content: "o" },
      ],
      {
        temperature: 0.3,
        topP: 0.4,
        maxTokens: 5,
        logprobs: 2,
        templateVariables: { reasoning_effort: "low", tools: [DEFINITION] },
      },
    ],
    [
      "/v1/responses",
      {
        input: [
          { role: "user", content: "a" },
          { type: "reasoning", summary: [] },
          { type: "message", role: "assistant", content: "b" },
          { role: "assistant", content: "c" },
          { type: "function_call", call_id: "c1", name: "weather", arguments: '{"x": 1}' },
          { role: "assistant", content: "d" },
        ],
        include: ["message.output_text.logprobs"],
        text: { format: { type: "json_object" } },
      },
      [
        { role: "user", content: "a" },
        { role: "assistant", content: "b" },
        { role: "assistant", content: "c", tool_calls: [CALLED] },
        { role: "assistant", content: "d" },
      ],
      { logprobs: 0, jsonObject: true },
    ],
    [
      "/v1/responses",
      { input: "a", include: ["reasoning.encrypted_content"], reasoning: null },
      [{ role: "user", content: "a" }],
      { logprobs: undefined, jsonObject: undefined, templateVariables: undefined },
    ],
    [
      "/v1/messages",
      {
        system: [{ type: "text", text: "Be" }, { type: "text", text: " brief." }],
        messages: [
          { role: "user", content: "a" },
          {
            role: "assistant",
            content: [
              { type: "thinking", thinking: "t", signature: "" },
              ...["b", "c"].map((text) => ({ type: "text", text })),
              { type: "tool_use", id: "c1", name: "weather", input: { x: 1 } },
            ],
          },
          {
            role: "user",
            content: [
              { type: "tool_result", tool_use_id: "c1", content: [{ type: "text", text: "o" }] },
              { type: "text", text: "d" },
            ],
          },
        ],
        max_tokens: 4,
        temperature: 0.3,
        top_k: 7,
        top_p: 0.4,
        stop_sequences: ["q"],
        thinking: { type: "enabled" },
        tools: [{ ...TOOL, input_schema: CITY }],
      },
      [
        { role: "system", content: "Be brief." },
        { role: "user", content: "a" },
        { role: "assistant", content: "bc", reasoning_content: "t", tool_calls: [CALLED] },
        { role: "tool", tool_call_id: "c1", content: "o" },
        { role: "user", content: "d" },
      ],
      {
        maxTokens: 4,
        temperature: 0.3,
        topK: 7,
        topP: 0.4,
        stop: ["q"],
        templateVariables: { reasoning_effort: "medium", tools: [DEFINITION] },
      },
    ],
    [
      "/v1/messages",
      {
        messages: [
          { role: "user", content: [] },
          { role: "assistant", content: [{ type: "thinking", thinking: "t", signature: "" }] },
          { role: "user", content: "a" },
        ],
        max_tokens: 4,
      },
      [
        { role: "user", content: "" },
        { role: "assistant", content: "", reasoning_content: "t" },
        { role: "user", content: "a" },
      ],
      { maxTokens: 4 },
    ],
    [
      "/v1/messages",
      {
        messages: [{ role: "user", content: "a" }, { role: "assistant", content: "b" }],
        max_tokens: 4,
        output_config: { format: { type: "json_schema", schema: CITY } },
      },
      [{ role: "user", content: "a" }],
      { answerStart: "b", jsonSchema: CITY },
    ],
    [
      "/api/chat",
      {
        messages: [
          { role: "user", content: "a" },
          { role: "assistant", content: "b", thinking: "t", tool_calls: [CALLED] },
          { role: "tool", content: "o", tool_name: "weather", images: [] },
        ],
        think: "low",
        options: { temperature: 0.3, num_predict: 4 },
        tools: [DEFINITION],
      },
      [
        { role: "user", content: "a" },
        { role: "assistant", content: "b", reasoning_content: "t", tool_calls: [CALLED] },
        { role: "tool", content: "o", name: "weather" },
      ],
      {
        temperature: 0.3,
        maxTokens: 4,
        templateVariables: { reasoning_effort: "low", tools: [DEFINITION] },
      },
    ],
    [
      "/api/generate",
      { system: "s", prompt: "a", format: CITY },
      [{ role: "system", content: "s" }, { role: "user", content: "a" }],
      { jsonSchema: CITY },
    ],
    ["/api/generate", { prompt: "a", think: true }, [{ role: "user", content: "a" }], {
      templateVariables: { reasoning_effort: "medium" },
    }],
    ["/api/generate", { system: "", prompt: "a", format: "" }, [{ role: "user", content: "a" }], {
      jsonSchema: undefined,
    }],
    [
      "/v1/chat/completions",
      {
        messages: [
          { role: "developer", content: "d" },
          { role: "user", content: "a" },
          { role: "assistant", content: "b" },
        ],
        continue_final_message: true,
        add_generation_prompt: false,
        max_completion_tokens: 4,
      },
      [{ role: "system", content: "d" }, { role: "user", content: "a" }],
      { answerStart: "b", maxTokens: 4 },
    ],
  ];
  for (const [path, body, messages, options] of cases) {
    const asked = await askedBy(client, path, body);
    assertEquals(asked.prompt, messages, path);
    const found = Object.fromEntries(
      Object.keys(options).map((key) => [key, asked.options[key as keyof GenerateOptions]]),
    );
    assertEquals(found, options, path);
  }
  const raw = await askedBy(client, "/api/generate", { system: "s", prompt: "a", raw: true });
  assertEquals([raw.prompt, raw.options.raw, raw.options.system], ["a", true, "s"]);
  using bare = new TempFolder();
  await using plain = await scripted(bare, ["Yes."], {});
  const continued = await askedBy(plain, "/api/generate", { prompt: "a", system: "s" });
  assertEquals([continued.prompt, continued.options.raw, continued.options.system], [
    "a",
    true,
    "s",
  ]);
});

Deno.test("serve: the choice of a tool asks the same in each API", async () => {
  using folder = new TempFolder();
  await using client = await scripted(folder, SCRIPT, { chatTemplate: HERMES });
  const messages = [{ role: "user", content: "a" }];
  const chat = { messages, max_tokens: 4, tools: [DEFINITION] };
  const claude = { ...chat, tools: [{ ...TOOL, input_schema: CITY }] };
  const responses = {
    ...{ input: "a", max_output_tokens: 4 },
    tools: [{ type: "function", ...TOOL, parameters: CITY }],
  };
  const ask = async (path: string, body: object) => {
    const { signal: _, ...options } = (await askedBy(client, path, body)).options;
    return options;
  };
  const one = { type: "function", function: { name: "weather" } };
  const choices = [["auto", "auto"], ["none", "none"], ["any", "required"], ["tool", one]] as const;
  for (const [type, tool_choice] of choices) {
    for (const isSerial of [false, true]) {
      const expected = await ask("/v1/chat/completions", {
        ...chat,
        tool_choice,
        parallel_tool_calls: !isSerial,
      });
      const claudes = { type, name: "weather", disable_parallel_tool_use: isSerial };
      assertEquals(await ask("/v1/messages", { ...claude, tool_choice: claudes }), expected);
      const own = await ask("/v1/responses", {
        ...responses,
        tool_choice: tool_choice === one ? { type: "function", name: "weather" } : tool_choice,
        parallel_tool_calls: !isSerial,
      });
      assertEquals(own, expected);
    }
  }
});

Deno.test("serve: a request without an adapter's name uses none of the model's adapters", async () => {
  for (const names of [[], ["x"], ["x", "y"]]) {
    await using model = await load(DEMO, { device: "cpu" });
    const adapters = names.map((name) => ({ name, scale: 1 }));
    Object.defineProperty(model, "adapters", { value: adapters });
    const client = new Client(model, { names: ["demo"] });
    const lora = async (body: object) =>
      (await askedBy(client, "/v1/completions", { prompt: "a", ...body })).options.lora;
    assertEquals(await lora({}), names.length === 0 ? undefined : []);
    for (const name of names) assertEquals<unknown>(await lora({ model: `demo:${name}` }), name);
    assertEquals<unknown>(await lora({ lora: "z" }), "z");
    const preset = new Client(model, { defaults: { lora: "w" } });
    assertEquals<unknown>(
      (await askedBy(preset, "/v1/completions", { prompt: "a" })).options.lora,
      "w",
    );
  }
});

Deno.test("messages: thinking and effort set the variable of the template", async () => {
  const ask = { messages: [{ role: "user", content: "a" }], max_tokens: 4 };
  const cases: readonly (readonly [body: object, effort: string, thinks: boolean])[] = [
    [{ thinking: { type: "enabled" } }, "medium", true],
    [{ thinking: { type: "adaptive" }, output_config: { effort: "low" } }, "low", true],
    [{ output_config: { effort: "medium" } }, "medium", true],
    [{ output_config: { effort: "high" } }, "high", true],
    [{ output_config: { effort: "xhigh" } }, "high", true],
    [{ output_config: { effort: "max" } }, "high", true],
    [{ thinking: { type: "disabled" }, output_config: { effort: "low" } }, "none", false],
  ];
  for (const variable of ["reasoning_effort", "enable_thinking"]) {
    using folder = new TempFolder();
    await using client = await scripted(folder, SCRIPT, {
      chatTemplate: `${HERMES}{# ${variable} #}`,
    });
    for (const [body, effort, thinks] of cases) {
      if (variable === "reasoning_effort" && effort === "none") {
        const refused = await client.post("/v1/messages", { ...ask, ...body });
        assertStringIncludes((await refused.json()).error.message, '"none"; valid is "low"');
        continue;
      }
      const { options } = await askedBy(client, "/v1/messages", { ...ask, ...body });
      const expected = variable === "reasoning_effort" ? effort : thinks;
      assertEquals(options.templateVariables, { [variable]: expected }, JSON.stringify(body));
    }
  }
});

Deno.test("serve: an answer that is cut says where, and what it took", async () => {
  using folder = new TempFolder();
  const script = [
    "<think>",
    "Hm.",
    "</think>",
    "Look.",
    '<tool_call>{"name": "weather", "arguments": {"city": ',
    '"Rome"',
    "}}",
    "</tool_call>",
  ];
  await using client = await scripted(folder, script, { chatTemplate: HERMES });
  const [thinking, text] = [{ type: "thinking", thinking: "Hm.", signature: "" }, {
    type: "text",
    text: "Look.",
  }];
  const cases = [
    [2, ["incomplete"], 1, [thinking], "max_tokens"],
    [4, ["completed", "incomplete"], 2, [thinking, text], "max_tokens"],
    [
      6,
      ["completed", "completed", "incomplete"],
      2,
      [thinking, text, { partial_json: '{"city":"Rome"' }],
      "max_tokens",
    ],
    // The limit may end an answer after a complete call.
    [7, ["completed", "completed", "completed"], 2, [thinking, text, { city: "Rome" }], "tool_use"],
    [9, ["completed", "completed", "completed"], 2, [thinking, text, { city: "Rome" }], "tool_use"],
  ] as const;
  let cached = 0;
  for (const [most, statuses, reasoning_tokens, blocks, stop] of cases) {
    const ask = {
      temperature: 0,
      tools: [{ type: "function", name: "weather", parameters: CITY }],
    };
    const body = { ...ask, input: "a", max_output_tokens: most };
    const { output, usage, status } = await (await client.post("/v1/responses", body)).json();
    assertEquals(output.map((item: { status: string }) => item.status), statuses);
    assertEquals(status, most < 9 ? "incomplete" : "completed");
    const input_tokens = usage.input_tokens;
    assertEquals(usage, {
      input_tokens,
      input_tokens_details: { cached_tokens: cached },
      output_tokens: Math.min(most, 8),
      output_tokens_details: { reasoning_tokens },
      total_tokens: input_tokens + Math.min(most, 8),
    });
    cached = input_tokens - 1;
    const events = await (await client.post("/v1/responses", { ...body, stream: true })).text();
    const last = JSON.parse(events.trimEnd().split("\ndata: ").at(-1)!);
    assertEquals(last.type, `response.${status}`);
    const done = events.split("\n\n").flatMap((event) => {
      const isDone = event.startsWith("event: response.output_item.done\n");
      return isDone ? [JSON.parse(event.slice(event.indexOf("{"))).item] : [];
    });
    assertEquals(done, last.response.output);
    // Only texts of the answer have log-probabilities.
    for (const event of events.split("\n\n").filter((event) => event.includes('"logprobs"'))) {
      assertMatch(
        event,
        /^event: response\.(output_text|content_part|output_item|completed|incomplete)/,
      );
    }
    assertEquals<unknown>(done.map((item) => item.status), statuses);

    const messages = [{ role: "user", content: "a" }];
    const tools = [{ name: "weather", input_schema: CITY }];
    const claude = { messages, tools, max_tokens: most, temperature: 0 };
    const { content, stop_reason, usage: used } = await (await client.post("/v1/messages", claude))
      .json();
    assertEquals(
      content.map((block: { type: string; input: object }) =>
        block.type === "tool_use" ? block.input : block
      ),
      blocks,
    );
    assertEquals(stop_reason, stop);
    assertEquals(used, {
      input_tokens: 1,
      cache_read_input_tokens: cached,
      cache_creation_input_tokens: 0,
      output_tokens: Math.min(most, 8),
    });
    const stream = await (await client.post("/v1/messages", { ...claude, stream: true })).text();
    const start = JSON.parse(stream.slice(stream.indexOf("\ndata: ") + 7).split("\n")[0]!);
    assertEquals(
      start.message.usage.input_tokens,
      used.input_tokens + used.cache_read_input_tokens,
    );
  }
});

Deno.test("responses: a response repeats its request, and has log-probabilities on request", async () => {
  using folder = new TempFolder();
  await using client = await scripted(folder, ["Yes", "."], { chatTemplate: GIVEN });
  const post = async (body: object) => await (await client.post("/v1/responses", body)).json();
  const first = await post({ input: "a", temperature: 0 });
  const request = {
    instructions: "i",
    max_output_tokens: 9,
    metadata: { a: "b" },
    parallel_tool_calls: false,
    previous_response_id: first.id,
    reasoning: { effort: null, summary: "auto" },
    store: false,
    temperature: 0,
    tool_choice: "none",
    tools: [],
    top_p: 0.5,
    truncation: "disabled",
  };
  const text = { format: { type: "text" }, verbosity: "low" };
  const include = ["message.output_text.logprobs"];
  const again = await post({ ...request, text, input: "b", include });
  for (const [key, value] of Object.entries({ ...request, text })) {
    assertEquals(again[key], value, key);
  }
  const defaults = {
    instructions: null,
    max_output_tokens: null,
    metadata: {},
    parallel_tool_calls: true,
    previous_response_id: null,
    reasoning: { effort: null, summary: null },
    store: true,
    text: { format: { type: "text" } },
    tool_choice: "auto",
    tools: [],
    top_p: null,
    background: false,
    error: null,
    incomplete_details: null,
  };
  for (const [key, value] of Object.entries(defaults)) assertEquals(first[key], value, key);
  const tokensOf = ({ output: [{ content: [part] }] }: typeof first) =>
    part.logprobs.map(({ token }: { token: string }) => token);
  assertEquals([tokensOf(first), tokensOf(again)], [[], ["Yes", "."]]);
});

Deno.test("serve: a constraint applies after reasoning, and to calls that are marked", async () => {
  const marks = ["<think>", "</think>", "<tool_call>", "</tool_call>"];
  const tools = [DEFINITION];
  const messages = [{ role: "user", content: "a" }];
  const gaps = ["", "\n", "\n\n", " "];
  const ends = ["</tool_call>", "\n</tool_call>"];
  for (const isOpen of [false, true]) {
    using folder = new TempFolder();
    await using client = await scripted(folder, ["Yes."], {
      chatTemplate: isOpen ? `${HERMES}<think>\n` : HERMES,
      controls: marks,
      pieces: marks,
    });
    const [think, thought, call, called] = marks.map((mark) => client.model.tokenizer.idOf(mark));
    const thinks = { after: thought, opener: isOpen ? undefined : think };
    const ask = async (body: object): Promise<unknown> => {
      const { options } = await askedBy(client, "/v1/chat/completions", { messages, ...body });
      const { jsonSchema, regex, answerStart, constraintScope, shownTokens } = options;
      const schema = jsonSchema === undefined ? undefined : JSON.stringify(jsonSchema).slice(0, 40);
      return { schema, regex, answerStart, constraintScope, shownTokens };
    };
    const none = { schema: undefined, regex: undefined, answerStart: undefined };
    const calls = { ...none, schema: '{"anyOf":[{"type":"object","properties":' };
    assertEquals(await ask({}), {
      ...none,
      constraintScope: undefined,
      shownTokens: [think, thought],
    });
    assertEquals(await ask({ regex: "a" }), {
      ...none,
      regex: "a",
      constraintScope: { ...thinks, prefixes: gaps, suffixes: [""] },
      shownTokens: [think, thought],
    });
    assertEquals(await ask({ tools }), {
      ...calls,
      constraintScope: {
        after: call,
        prefixes: gaps,
        suffixes: ends,
        isOptional: true,
        repeats: true,
      },
      shownTokens: [think, thought, call, called],
    });
    assertEquals(
      await ask({ tools, tool_choice: "required" }),
      isOpen
        ? {
          ...calls,
          constraintScope: {
            ...thinks,
            prefixes: gaps.map((gap) => `${gap}<tool_call>\n`),
            suffixes: ends,
          },
          shownTokens: [think, thought, call, called],
        }
        : {
          ...calls,
          answerStart: "<tool_call>\n",
          constraintScope: undefined,
          shownTokens: undefined,
        },
    );
  }
});

/** Tests tools: the text of calls in each model family, and the calls that clients get. */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { TempFolder } from "../support/temp_folder.ts";
import { writeRandomLlama } from "../support/tiny_llama.ts";
import { type Answer, Client, joined, user } from "./client.ts";
import { CHAT, GIVEN, scripted } from "./scripted.ts";

/** Templates that print their input, with the call format of each model family. */
const HERMES = `${GIVEN}{# <tool_call> {"name": "arguments"} </tool_call> #}`;
const MISTRAL = `${GIVEN}{# [TOOL_CALLS] #}`;
const XML = `${GIVEN}{# <tool_call><function=x><parameter=y> #}`;
const LLAMA = `${GIVEN}{# {"name": x, "parameters": y} <|start_header_id|> #}`;

const PARAMETERS = {
  type: "object",
  properties: { city: { $ref: "#/$defs/city" }, days: { type: "integer", maximum: 9 } },
  required: ["city"],
  additionalProperties: false,
  $defs: { city: { enum: ["Rome", "Oslo"] } },
};
const TOOLS = [
  { type: "function", function: { name: "weather", description: "d", parameters: PARAMETERS } },
  { type: "function", function: { name: "now" } },
];
const ASK = { messages: [user("x")], temperature: 0, tools: TOOLS };

Deno.test("serve: calls in the format of Hermes and Qwen, next to content", async () => {
  using folder = new TempFolder();
  const script = [
    "I'll ",
    "look.",
    "\n<tool",
    '_call>\n{"name": "weather", "argu',
    'ments": {"city": "Rome"}}',
    "\n</tool_",
    "call>",
    '\n<tool_call>{"name": "now", "arguments": {}}</tool_call>',
    "\n",
  ];
  await using client = await scripted(folder, script, { chatTemplate: HERMES });
  const { choices: [choice] } = await client.chat(ASK);
  const { content, tool_calls } = choice!.message!;
  assertEquals([content, choice!.finish_reason], ["I'll look.", "tool_calls"]);
  assertEquals(tool_calls!.map((call) => [call.type, call.function]), [
    ["function", { name: "weather", arguments: '{"city":"Rome"}' }],
    ["function", { name: "now", arguments: "{}" }],
  ]);
  for (const { id } of tool_calls!) assertMatch(id, /^[0-9a-z]{9}$/);

  const parts = await client.stream(CHAT, ASK);
  const streamed = joined(parts);
  assertEquals([streamed.content, streamed.finish], ["I'll look.", "tool_calls"]);
  assertEquals(
    streamed.tool_calls!.map(({ index, function: called }) => [index, called]),
    tool_calls!.map(({ function: called }, index) => [index, called]),
  );
  for (const parallel_tool_calls of [true, false]) {
    const { choices } = await client.chat({ ...ASK, parallel_tool_calls });
    assertEquals(choices[0]!.message!.tool_calls!.length, parallel_tool_calls ? 2 : 1);
  }
  const claude = { ...ASK, max_tokens: 100, tools: [{ name: "weather" }, { name: "now" }] };
  for (const disable_parallel_tool_use of [true, false]) {
    const tool_choice = { type: "auto", disable_parallel_tool_use };
    const response = await client.post("/v1/messages", { ...claude, tool_choice });
    const { content } = await response.json();
    assertEquals(
      content.map((block: { readonly type: string }) => block.type),
      ["text", "tool_use", ...(disable_parallel_tool_use ? [] : ["tool_use"])],
    );
  }
  // Without tools the same text is content.
  for (const body of [{ ...ASK, tool_choice: "none" }, { ...ASK, tools: undefined }]) {
    const plain = await client.chat(body);
    assertEquals(plain.choices[0]!.message!.content, script.join(""));
    assertEquals(plain.choices[0]!.finish_reason, "stop");
  }
});

/** Returns the parts of calls in a stream, one text per event. */
function callEvents(parts: readonly Answer[]): string[] {
  return parts.flatMap(({ choices }) => choices.flatMap(({ delta }) => delta?.tool_calls ?? []))
    .map((call) => {
      const { index, function: called } = call;
      return "id" in call ? `${index} ${call.function.name}` : `${index} ${called.arguments}`;
    });
}

Deno.test("serve: a stream gives the name of a call first, then its arguments as generated", async () => {
  const city = ['{"name": "wea', 'ther", "arguments": ', '{"city"', ': "Ro', 'me"}', "}"];
  const now = '{"name": "now", "arguments": {}}';
  const xml = [
    "<function=weather>\n<parameter=",
    "city>\nRome\n</parameter>\n",
    "<parameter=days>",
  ];
  for (
    const [chatTemplate, script, events] of [
      [HERMES, [
        "Look: ",
        "<tool_call>\n",
        ...city,
        "\n</tool_call>",
        `<tool_call>${now}</tool_call>`,
      ], ["0 weather", '0 {"city"', '0 :"Ro', '0 me"}', "1 now", "1 {}"]],
      [MISTRAL, ["[TOOL_CALLS][", ...city, ", ", `${now}]`], [
        "0 weather",
        '0 {"city"',
        '0 :"Ro',
        '0 me"}',
        "1 now",
        "1 {}",
      ]],
      [LLAMA, ["<|python_tag|>", ...city], [
        "0 weather",
        '0 {"city"',
        '0 :"Ro',
        '0 me"}',
      ]],
      [XML, ["<tool_call>", ...xml, "3</parameter>", "</function>\n</tool_call>"], [
        "0 weather",
        '0 {"city":"Rome"',
        '0 ,"days":3',
        "0 }",
      ]],
    ] as const
  ) {
    using folder = new TempFolder();
    await using client = await scripted(folder, script, { chatTemplate });
    const parts = await client.stream(CHAT, ASK);
    assertEquals(callEvents(parts), [...events]);
    const streamed = joined(parts);
    const { choices: [choice] } = await client.chat(ASK);
    assertEquals([streamed.finish, choice!.finish_reason], ["tool_calls", "tool_calls"]);
    assertEquals(
      streamed.tool_calls!.map(({ function: call }) => call),
      choice!.message!.tool_calls!.map(({ function: call }) => call),
    );
    assertEquals(streamed.content, choice!.message!.content ?? "");
  }
});

Deno.test("serve: a call cut off in its arguments stays incomplete, with finish_reason length", async () => {
  using folder = new TempFolder();
  const script = ["<tool_call>\n", '{"name": "now", "arguments": {"zone"', ': "UTC"}', "}"];
  await using client = await scripted(folder, script, { chatTemplate: HERMES });
  const body = { ...ASK, max_tokens: 2 };
  const { choices: [choice] } = await client.chat(body);
  const streamed = joined(await client.stream(CHAT, body));
  assertEquals([choice!.finish_reason, streamed.finish], ["length", "length"]);
  for (const [call] of [choice!.message!.tool_calls!, streamed.tool_calls!]) {
    assertEquals(call!.function, { name: "now", arguments: '{"zone"' });
  }
});

Deno.test("serve: text that is not a call of a known tool is unchanged content", async () => {
  for (
    const text of [
      '<tool_call>{"name": "other", "arguments": {}}</tool_call>',
      '<tool_call>{"name": "now", "arguments": []}</tool_call> and more',
      "<tool_call>no JSON</tool_call>",
      '<tool_call>{"name": "now", "argu',
      "a < b <tool",
    ]
  ) {
    using folder = new TempFolder();
    await using client = await scripted(folder, [text.slice(0, 6), text.slice(6)], {
      chatTemplate: HERMES,
    });
    const { choices: [choice] } = await client.chat(ASK);
    assertEquals(choice!.message, { role: "assistant", content: text });
    assertEquals(choice!.finish_reason, "stop");
    assertEquals(joined(await client.stream(CHAT, ASK)), { content: text, finish: "stop" });
  }
});

Deno.test("serve: calls in the format of Mistral, whose mark is a control token", async () => {
  using folder = new TempFolder();
  const script = [
    "[TOOL_CALLS]",
    '[{"name": "now", "arguments": {}}, ',
    '{"name": "weather", "arguments": {"city": "Oslo"}}]',
  ];
  const options = { chatTemplate: MISTRAL, controls: ["[TOOL_CALLS]"] };
  await using client = await scripted(folder, script, options);
  const { choices: [choice] } = await client.chat(ASK);
  assertEquals([choice!.message!.content, choice!.finish_reason], [null, "tool_calls"]);
  const names = choice!.message!.tool_calls!.map(({ function: { name } }) => name);
  assertEquals(names, ["now", "weather"]);
  const plain = await client.chat({ ...ASK, tools: undefined });
  assertEquals(plain.choices[0]!.message!.content, script[1]! + script[2]!);
});

Deno.test("serve: calls in the format of Llama 3, with and without a mark", async () => {
  const call = '{"name": "weather", "parameters": {"city": "Oslo"}}';
  for (const [script, controls] of [[[call], []], [["<|python_tag|>", call], ["<|python_tag|>"]]]) {
    using folder = new TempFolder();
    await using client = await scripted(folder, script!, {
      chatTemplate: LLAMA,
      controls: controls!,
    });
    const { choices: [choice] } = await client.chat(ASK);
    assertEquals(choice!.finish_reason, "tool_calls");
    assertEquals(choice!.message!.tool_calls![0]!.function, {
      name: "weather",
      arguments: '{"city":"Oslo"}',
    });
  }
  using folder = new TempFolder();
  const strict = [{ type: "function", function: { name: "now", strict: true } }];
  const json = '{"name": "nobody"}';
  await using client = await scripted(folder, [json], { chatTemplate: LLAMA });
  assertEquals((await client.chat(ASK)).choices[0]!.message!.content, json);
  const { message } = await client.refusal(CHAT, { ...ASK, tools: strict });
  assertStringIncludes(message, "cannot be enforced in the format of this model's calls");
});

for (const [family, chatTemplate] of Object.entries({ HERMES, MISTRAL, LLAMA })) {
  Deno.test(`serve: a required call is made, in the format of ${family}`, async () => {
    using folder = new TempFolder();
    const options = { contextLength: 4096, chatTemplate, controls: ["[TOOL_CALLS]"] };
    writeRandomLlama(folder.path, { ...options, pieces: ["[TOOL_CALLS]", "\n"] });
    await using client = await Client.open(folder.path);
    const named = { type: "function", function: { name: "weather" } };
    let weathers = 0;
    for (const [tool_choice, seed] of [["required", 1], ["required", 2], [named, 3], [named, 4]]) {
      const body = { ...ASK, temperature: 1.5, tool_choice, seed, max_tokens: 300 };
      const { choices: [choice] } = await client.chat(body);
      assertEquals([choice!.finish_reason, choice!.message!.content], ["tool_calls", null]);
      const [call, ...others] = choice!.message!.tool_calls!;
      assertEquals(others, []);
      const args = JSON.parse(call!.function.arguments);
      if (typeof tool_choice === "object") assertEquals(call!.function.name, "weather");
      if (call!.function.name === "weather") {
        weathers++;
        assert(["Rome", "Oslo"].includes(args.city), args.city);
      } else assertEquals(args, {});
      const streamed = joined(await client.stream(CHAT, body));
      assertEquals(streamed.tool_calls![0]!.function, call!.function);
    }
    assert(weathers >= 2);
    // A call cut off before its name is not reported.
    const cut = await client.chat({ ...ASK, tool_choice: "required", max_tokens: 3 });
    assertEquals(cut.choices[0]!.finish_reason, "length");
    assertEquals(cut.choices[0]!.message!.tool_calls, undefined);
  });
}

Deno.test("serve: reasoning, content and calls in the channels of gpt-oss", async () => {
  const chatTemplate = `${GIVEN}<|start|>assistant{# <|channel|> <|message|> #}`;
  const controls = ["<|channel|>", "<|message|>", "<|call|>", "<|constrain|>"];
  const pieces = [...controls, "<|end|>"];
  const body = { ...ASK, tools: undefined };
  {
    using folder = new TempFolder();
    const script = [
      "<|channel|>",
      "analysis",
      "<|message|>",
      "Hm",
      "m.<|end|><|start|>assistant<|channel|>final<|message|>",
      "Forty",
      "-two",
    ];
    await using client = await scripted(folder, script, { chatTemplate, controls, pieces });
    const expected = { content: "Forty-two", reasoning_content: "Hmm." };
    const { choices: [choice] } = await client.chat(body);
    assertEquals(choice!.message, { role: "assistant", ...expected });
    assertEquals(joined(await client.stream(CHAT, body)), { ...expected, finish: "stop" });
    const constrained = await client.chat({ ...body, regex: "[a-z]{4}" });
    assertMatch(constrained.choices[0]!.message!.content!, /^[a-z]{4}$/);
    const named = { type: "function", function: { name: "weather" } };
    const demanded = await client.chat({ ...ASK, tool_choice: named, seed: 1, temperature: 1 });
    const [call] = demanded.choices[0]!.message!.tool_calls!;
    assertEquals(call!.function.name, "weather");
    assert(["Rome", "Oslo"].includes(JSON.parse(call!.function.arguments).city));
    const { param } = await client.refusal(CHAT, { ...ASK, tool_choice: "required" });
    assertEquals(param, "tool_choice");
    const strict = ASK.tools.map((tool) => ({
      ...tool,
      function: { ...tool.function, strict: true },
    }));
    const refused = await client.refusal(CHAT, { ...ASK, tools: strict });
    assertStringIncludes(refused.message, "the strict tool weather cannot be enforced unless");
  }
  using folder = new TempFolder();
  const script = [
    "<|channel|>",
    "commentary to=functions.now ",
    "<|constrain|>",
    "json",
    "<|message|>",
    '{"zone"',
    ': "UTC"}',
    // Not every model file lists <|call|> as an end token.
    "<|call|>",
    "and more",
  ];
  await using client = await scripted(folder, script, { chatTemplate, controls, pieces });
  const { choices: [choice] } = await client.chat(ASK);
  assertEquals([choice!.finish_reason, choice!.message!.content], ["tool_calls", null]);
  const [call] = choice!.message!.tool_calls!;
  assertEquals(call!.function, { name: "now", arguments: '{"zone":"UTC"}' });
});

Deno.test("serve: a voluntary call conforms to its schema if its mark is a token", async () => {
  for (
    const [chatTemplate, open, controls] of [
      [HERMES, "<tool_call>", []],
      [MISTRAL, "[TOOL_CALLS]", ["[TOOL_CALLS]"]],
    ] as const
  ) {
    using folder = new TempFolder();
    const pieces = [open, "\n"];
    const { idOf } = writeRandomLlama(folder.path, {
      contextLength: 4096,
      chatTemplate,
      pieces,
      controls,
    });
    await using client = await Client.open(folder.path);
    const tools = [
      { type: "function", function: { ...TOOLS[0]!.function, strict: true } },
      TOOLS[1]!,
    ];
    let calls = 0;
    for (let seed = 1; seed <= 6; seed++) {
      const { choices: [choice] } = await client.chat({
        ...ASK,
        tools,
        temperature: 1.5,
        seed,
        max_tokens: 400,
        logit_bias: { [idOf(open)]: 7 },
      });
      const { content, tool_calls = [] } = choice!.message!;
      // A call that is cut off stays incomplete, with finish_reason "length".
      const whole = choice!.finish_reason === "length" ? tool_calls.slice(0, -1) : tool_calls;
      for (const { function: { name, arguments: text } } of whole) {
        calls++;
        const args = JSON.parse(text);
        assert(typeof args === "object");
        if (name === "weather") assert(["Rome", "Oslo"].includes(args.city), text);
      }
      // Only a call cut off before its name remains content.
      if (content?.includes(open)) {
        assertEquals(choice!.finish_reason, tool_calls.length > 0 ? "tool_calls" : "length");
      }
    }
    assert(calls > 3, `${calls} calls`);
    // A schema that cannot be enforced is rejected only for a strict tool.
    const odd = { name: "odd", parameters: { type: "object", not: {} } };
    const lax = [{ type: "function", function: odd }];
    assertEquals((await client.chat({ ...ASK, tools: lax, max_tokens: 3 })).choices.length, 1);
    const strict = [{ type: "function", function: { ...odd, strict: true } }];
    const { message } = await client.refusal(CHAT, { ...ASK, tools: strict });
    assertStringIncludes(message, "the strict tool odd cannot be enforced");
  }
});

Deno.test("serve: a required call follows reasoning that the template opens", async () => {
  using folder = new TempFolder();
  const script = ["Hm", "m.", "</think>", "\n"];
  const chatTemplate = `${HERMES}<think>\n`;
  await using client = await scripted(folder, script, { chatTemplate, pieces: ["<think>"] });
  const { choices: [choice] } = await client.chat({ ...ASK, tool_choice: "required", seed: 1 });
  const { reasoning_content, content, tool_calls } = choice!.message!;
  assertEquals([reasoning_content, content, tool_calls?.length], ["Hmm.", null, 1]);
});

Deno.test("serve: earlier calls and results reach the template", async () => {
  using folder = new TempFolder();
  await using client = await scripted(folder, ["ok"], { chatTemplate: HERMES });
  const history = [
    user("x"),
    {
      role: "assistant",
      content: null,
      tool_calls: [{ id: "1", type: "function", function: { name: "now", arguments: '{"a": 1}' } }],
    },
    { role: "tool", tool_call_id: "1", content: [{ type: "text", text: "12:00" }] },
    { role: "developer", content: "d" },
  ];
  const response = await client.post("/tokenize", { messages: history });
  const { content } = await (await client.post("/detokenize", await only(response, "tokens")))
    .json();
  assertStringIncludes(content, '"name": "now", "arguments": {"a": 1}');
  assertStringIncludes(content, "[tool:12:00]");
  const { choices: [choice], usage } = await client.chat({ ...ASK, messages: history });
  assertEquals(choice!.message!.content, "ok");
  const without = await client.chat({ ...ASK, messages: history, tool_choice: "none" });
  assert(usage!.prompt_tokens > without.usage!.prompt_tokens, "the tools are in the prompt");
});

async function only(response: Response, key: string) {
  return { [key]: (await response.json())[key] };
}

Deno.test("serve: invalid tools are rejected", async () => {
  using folder = new TempFolder();
  await using client = await scripted(folder, ["ok"], { chatTemplate: HERMES, pieces: ["\n"] });
  const f = (definition: object) => ({
    ...ASK,
    tools: [{ type: "function", function: definition }],
  });
  const many = (count: number) =>
    Array.from({ length: count }, (_, i) => ({ type: "function", function: { name: `f${i}` } }));
  assertEquals(
    (await client.chat({ ...ASK, tools: many(128), tool_choice: "none" })).choices.length,
    1,
  );
  for (
    const [body, message] of [
      [{ ...ASK, tools: many(129) }, "tools has 129; at most 128 are valid"],
      [{ ...ASK, tools: {} }, "tools is an object; valid is a list of tools"],
      [{ ...ASK, tools: [{ type: "web_search" }] }, 'tools[0].type is "web_search"'],
      [
        { ...ASK, tools: [{ type: "custom", custom: { name: "a" } }] },
        'tools[0].type is "custom"; valid is "function"',
      ],
      [
        { ...ASK, tools: [{ ...TOOLS[1], zzzzzzzz: 1 }] },
        'unknown key "zzzzzzzz"; valid are type, function',
      ],
      [f({}), "tools[0].function.name is missing"],
      [f({ name: "a b" }), 'tools[0].function.name is "a b"'],
      [f({ name: "a", code: "" }), 'unknown key "code"'],
      [{ ...ASK, tools: [TOOLS[1], TOOLS[1]] }, 'two functions named "now"'],
      [{ ...ASK, tools: [], tool_choice: "required" }, "tool_choice needs tools"],
      [{ ...ASK, tool_choice: "any" }, 'tool_choice is "any"'],
      [
        { ...ASK, tool_choice: { type: "tool", function: { name: "now" } } },
        "tool_choice is an object",
      ],
      [
        { ...ASK, tool_choice: { type: "function", function: { name: "x" } } },
        'tool_choice.function.name is "x"; valid is "weather", "now"',
      ],
      [{ ...ASK, regex: "a" }, 'valid with regex is "tool_choice": "none"'],
      [
        { ...f({ name: "a", parameters: { not: {} } }), tool_choice: "required" },
        'the keyword "not"',
      ],
    ] as const
  ) assertStringIncludes((await client.refusal(CHAT, body)).message, message);

  {
    using other = new TempFolder();
    const call = "<tool_call><function=now></function></tool_call>";
    await using client = await scripted(other, [call], { chatTemplate: XML });
    assertEquals((await client.chat(ASK)).choices[0]!.finish_reason, "tool_calls");
    const { param } = await client.refusal(CHAT, { ...ASK, tool_choice: "required" });
    assertEquals(param, "tool_choice");
  }
  for (const chatTemplate of [GIVEN, `${GIVEN}{# <tool_call><function= #}`]) {
    using other = new TempFolder();
    await using refusing = await scripted(other, ["ok"], { chatTemplate });
    const { message, param } = await refusing.refusal(CHAT, ASK);
    assertEquals(param, "tools");
    assertStringIncludes(message, "has no tool calls in a supported format");
  }
});

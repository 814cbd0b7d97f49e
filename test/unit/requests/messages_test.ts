/** Tests reading messages in the formats of clients. */
import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import type { JsonObject, JsonValue } from "../../../src/formats/json.ts";
import { readMessages } from "../../../src/requests/messages.ts";
import type { GenerateOptions } from "../../../src/engine/request/options.ts";
import { readOptions } from "../../../src/requests/options.ts";
import { parseRequest } from "../../../src/requests/parse.ts";
import { floatsOf, readTexts, RequestError } from "../../../src/requests/values.ts";
import { Random } from "../../support/random.ts";

function calls(args: JsonValue | undefined): JsonValue {
  return [{ id: "1", type: "function", function: { name: "f", arguments: args ?? null } }];
}

Deno.test("messages: tool calls have their arguments as objects", () => {
  for (
    const [given, expected] of [
      ['{"a": [1]}', { a: [1] }],
      [{ a: 1 }, { a: 1 }],
      ["", {}],
      [null, {}],
    ] as const
  ) {
    const [message] = readMessages([{ role: "assistant", tool_calls: calls(given as JsonValue) }]);
    assertEquals(message, {
      role: "assistant",
      content: "",
      tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: expected } }],
    });
  }
  // Templates test for the presence of tool_calls, so an empty list is removed.
  for (const tool_calls of [[], null]) {
    assertEquals(readMessages([{ role: "user", content: "x", tool_calls, name: "n" }]), [
      { role: "user", content: "x", name: "n" },
    ]);
  }
});

Deno.test("messages: text parts are joined without anything between them", () => {
  const content = ["Once", " upon"].map((text) => ({ type: "text", text }));
  assertEquals(readMessages([{ role: "user", content }]), [{ role: "user", content: "Once upon" }]);
});

Deno.test("messages: errors name the wrong key", () => {
  const place = "messages[0].tool_calls";
  for (
    const [message, text, key] of [
      [{ role: "a", tool_calls: {} }, "a list of tool calls", place],
      [{ role: "a", tool_calls: [1] }, "an object with id, type and function", `${place}[0]`],
      [{ role: "a", tool_calls: [{ id: "1" }] }, "an object with id, type and", `${place}[0]`],
      [
        { role: "a", tool_calls: [{ function: { name: "" } }] },
        'name is ""; valid is the name of a tool',
        `${place}[0].function.name`,
      ],
      [
        { role: "a", content: [{ type: "text", text: "x" }, { type: "image", text: "x" }] },
        'messages[0].content[1] is "image"; valid is {"type": "text"',
        "messages[0].content[1]",
      ],
      [{ role: "a", content: [{ type: 5 }] }, "content[0] is an object", "messages[0].content[0]"],
      [{ role: "a", content: [5] }, "content[0] is a number", "messages[0].content[0]"],
      [{ role: "a", tool_calls: calls("[1]") }, "arguments holds an array", undefined],
      [{ role: "a", tool_calls: calls(1) }, "arguments is 1; valid is the JSON text", undefined],
      [{ role: "a", tool_calls: calls("[".repeat(1e6)) }, "nests deeper than 200", undefined],
      [{ role: "a", tool_calls: calls("{") }, "arguments is not valid JSON", undefined],
      [{ role: "a", content: null }, "messages[0].content is null", "messages[0].content"],
      [{ role: "", content: "" }, 'messages[0].role is ""', "messages[0].role"],
    ] as const
  ) {
    const error = assertThrows(() => readMessages([message as JsonValue]), RequestError);
    assertStringIncludes(error.message, text);
    if (key !== undefined) assertEquals(error.key, key);
  }
});

Deno.test("requests: each list and number may have its limit, and no more", () => {
  const list = (count: number) => Array.from({ length: count }, (_, i) => `s${i}`);
  const limits: readonly (readonly [key: string, most: JsonValue, more: JsonValue, JsonObject])[] =
    [
      ["stop", list(64), list(65), {}],
      ["dry_sequence_breakers", list(64), list(65), {}],
      ["n", 128, 129, {}],
      ["logprobs", 20, 21, {}],
      ["top_logprobs", 20, 21, { logprobs: true }],
      ["top_p", 1, 1.001, {}],
      ["stop", "s".repeat(1000), "s".repeat(1001), {}],
      ["max_tokens", 0, -2, {}],
      ["n", 1, 0, {}],
      ["logprobs", 0, -1, {}],
      ["top_logprobs", 0, -1, { logprobs: true }],
      ["lora", [{ id: 0, scale: -1e6 }], [{ id: 0, scale: -1.1e6 }], {}],
      ["lora", [{ id: 0, scale: 1e6 }], [{ id: 0, scale: 1.1e6 }], {}],
    ];
  for (const [key, most, more, rest] of limits) {
    readOptions({ ...rest, [key]: most }, {});
    assertThrows(() => readOptions({ ...rest, [key]: more }, {}), RequestError, key);
  }
});

Deno.test("requests: nesting is limited before parsing", () => {
  const nested = (depth: number) => `{"a": ${"[".repeat(depth)}${"]".repeat(depth)}}`;
  assertEquals(Object.keys(parseRequest(nested(199), "it")), ["a"]);
  assertEquals(Object.keys(parseRequest(`{"a": "${"[".repeat(999)}\\"["}`, "it")), ["a"]);
  // Values next to each other do not nest.
  assertEquals(Object.keys(parseRequest(`{"a": [${"[{}],".repeat(999)}[]]}`, "it")), ["a"]);
  for (const text of [nested(200), nested(1e6), `{"a": "\\"", "b": ${"[".repeat(1e6)}`]) {
    assertThrows(() => parseRequest(text, "it"), RequestError, "it nests deeper than 200 levels");
  }
  assertThrows(() => parseRequest('{"a', "it"), RequestError, "it is not valid JSON");
});

Deno.test("requests: keys set the options of the engine, and null leaves the default", () => {
  const cases: readonly (readonly [JsonObject, GenerateOptions, expected: object])[] = [
    [{}, { maxTokens: 5 }, { maxTokens: 5 }],
    [{ max_tokens: null, temperature: null }, { maxTokens: 5, temperature: 1 }, {
      maxTokens: 5,
      temperature: 1,
    }],
    [{ max_tokens: -1 }, { maxTokens: 5 }, { maxTokens: undefined }],
    [{ max_completion_tokens: 7, max_tokens: null }, { maxTokens: 5 }, { maxTokens: 7 }],
    [{ logprobs: 0 }, {}, { logprobs: 0 }],
    [{ logprobs: true }, {}, { logprobs: 0 }],
    [{ logprobs: true, top_logprobs: 3 }, {}, { logprobs: 3 }],
    [{ logprobs: false }, { logprobs: 2 }, { logprobs: undefined }],
    [{ stop: "a", dry_sequence_breakers: ["b", "c"] }, {}, {
      stop: ["a"],
      drySequenceBreakers: ["b", "c"],
    }],
    [{ logit_bias: { "5": -1, "6": 3.4e38 } }, {}, { logitBias: { "5": -1, "6": 3.4e38 } }],
    [{ system: "s", raw: true, chat_template_kwargs: { a: 1 } }, {}, {
      system: "s",
      raw: true,
      templateVariables: { a: 1 },
    }],
    [{ lora: "a" }, { lora: "b" }, { lora: "a" }],
    [{ lora: [{ id: 0 }, { id: null, name: "b", scale: -0.5 }, { name: "c", scale: null }] }, {}, {
      lora: [
        { name: 0, scale: undefined },
        { name: "b", scale: -0.5 },
        { name: "c", scale: undefined },
      ],
    }],
  ];
  for (const [request, defaults, expected] of cases) {
    assertEquals(readOptions(request, defaults), expected, JSON.stringify(request));
  }
  const wrong: readonly (readonly [JsonObject, message: string])[] = [
    [{ top_logprobs: 1 }, 'needs "logprobs": true'],
    [{ top_logprobs: 1, logprobs: 1 }, 'needs "logprobs": true'],
    [{ dry_sequence_breakers: "b" }, "valid is a list of texts"],
    [{ logit_bias: { "5": 1e39 } }, 'logit_bias["5"] is 1e+39'],
    [{ lora: [{ id: 0, name: "a" }] }, "lora[0] is an object; valid is the name of an adapter"],
    [{ lora: [{ name: "a" }, {}] }, "lora[1] is an object; valid is the name of an adapter"],
    [{ lora: [{ id: 0, weight: 1 }] }, 'unknown key "weight"'],
    [{ response_format: { type: "xml" } }, 'response_format.type is "xml"'],
    [{ response_format: { type: "json_schema" } }, "response_format.json_schema is missing"],
    [
      { response_format: { type: "json_schema", json_schema: {} } },
      "response_format.json_schema.schema is missing",
    ],
  ];
  for (const [request, message] of wrong) {
    assertThrows(() => readOptions(request, {}), RequestError, message);
  }
});

Deno.test("requests: a constraint replaces the default one, and there is at most one", () => {
  const schema = { type: "integer" };
  const cases: readonly (readonly [key: string, JsonValue, expected: object])[] = [
    ["json_schema", schema, { jsonSchema: schema }],
    ["json_schema", false, { jsonSchema: false }],
    ["json_object", true, { jsonObject: true }],
    ["regex", "a", { regex: "a" }],
    ["grammar", "g", { grammar: "g" }],
    ["response_format", { type: "text" }, {}],
    ["response_format", { type: "json_object" }, { jsonObject: true }],
    ["response_format", { type: "json_schema", json_schema: { schema } }, { jsonSchema: schema }],
  ];
  const given: GenerateOptions = {
    seed: 1,
    jsonSchema: true,
    jsonObject: true,
    regex: "b",
    grammar: "h",
    constraintScope: { after: 3 },
  };
  const none = {
    jsonSchema: undefined,
    jsonObject: undefined,
    regex: undefined,
    grammar: undefined,
    constraintScope: undefined,
  };
  for (const [key, value, expected] of cases) {
    assertEquals(readOptions({ [key]: value }, given), { seed: 1, ...none, ...expected }, key);
    assertEquals(readOptions({ [key]: null }, given), given);
    for (const [other, more] of cases) {
      if (other === key) continue;
      const error = assertThrows(
        () => readOptions({ [key]: value, [other]: more }, {}),
        RequestError,
        "not both",
      );
      assertStringIncludes(error.message, key);
      assertStringIncludes(error.message, other);
    }
  }
});

Deno.test("requests: a prompt is a text, token ids, or a list of either", () => {
  const largest = 2 ** 31 - 1;
  const valid: readonly (readonly [JsonValue, expected: unknown[]])[] = [
    ["a", ["a"]],
    [["a", ""], ["a", ""]],
    [[0, largest], [Int32Array.of(0, largest)]],
    [[[1], [2, 3]], [Int32Array.of(1), Int32Array.of(2, 3)]],
  ];
  for (const [value, expected] of valid) assertEquals(readTexts(value, "prompt"), expected);
  for (const value of [[], null, {}, 5, ["a", 1], [[1], "a"], [["a"]], [-1], [1.5], [2 ** 31]]) {
    assertThrows(() => readTexts(value as JsonValue, "prompt"), RequestError, "prompt is ");
  }
});

Deno.test("requests: the digits of an embedding distinguish neighbouring floats", () => {
  const random = new Random("floats");
  const bits = Uint32Array.from({ length: 2000 }, () => random.int(0x30000000, 0x4effffff));
  const floats = new Float32Array(bits.buffer);
  assertEquals(Float32Array.from(floatsOf(floats)), floats);
});

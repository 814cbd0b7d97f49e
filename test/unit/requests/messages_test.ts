/** Tests reading messages in the formats of clients. */
import { assertEquals, assertStringIncludes, assertThrows } from "@std/assert";
import type { JsonObject, JsonValue } from "../../../src/formats/json.ts";
import { readMessages } from "../../../src/requests/messages.ts";
import { readOptions } from "../../../src/requests/options.ts";
import { parseRequest } from "../../../src/requests/parse.ts";
import { RequestError } from "../../../src/requests/values.ts";

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
  for (const text of [nested(200), nested(1e6), `{"a": "\\"", "b": ${"[".repeat(1e6)}`]) {
    assertThrows(() => parseRequest(text, "it"), RequestError, "it nests deeper than 200 levels");
  }
  assertThrows(() => parseRequest('{"a', "it"), RequestError, "it is not valid JSON");
});

import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import {
  findDuplicateKey,
  parseJsonObject,
  readJsonList,
  readJsonObject,
} from "../../../src/formats/json.ts";
import { TempFolder } from "../../support/temp_folder.ts";

Deno.test("a JSON object is read from a file, with or without a byte-order mark", () => {
  using folder = new TempFolder();
  assertEquals(readJsonObject(folder.write("a.json", '{"a": [1, null, "é"]}')), {
    a: [1, null, "é"],
  });
  assertEquals(readJsonObject(folder.write("b.json", '\ufeff{"a": 1}')), { a: 1 });
});

Deno.test("other JSON values are rejected, naming the file and the kind of value", () => {
  using folder = new TempFolder();
  const refused = (content: string | Uint8Array, reason: string) => {
    const path = folder.write("some.json", content);
    const error = assertThrows(() => readJsonObject(path), ForgeError, reason);
    assertEquals(error.code, "bad_model");
    assert(error.message.includes("some.json"));
    assert(!error.message.includes("\n"));
  };
  refused("", "is empty");
  refused('{\n"a": 1,\n}', "line 3");
  refused("{'a': 1}\n\n", "is not valid JSON");
  refused('{"a": x\n}', "is not valid JSON");
  refused("[1]", "holds an array, not a JSON object");
  refused("null", "holds null");
  refused('"text"', "holds a string");
  refused("5", "holds a number");
  refused(Uint8Array.of(0x7b, 0xff, 0x7d), "is not UTF-8");
});

Deno.test("a JSON array is read from a file, and nothing else", () => {
  using folder = new TempFolder();
  assertEquals(readJsonList(folder.write("a.json", "[1, {}]")), [1, {}]);
  const object = () => readJsonList(folder.write("b.json", "{}"));
  assertThrows(object, ForgeError, 'b.json" holds an object, not a JSON array');
});

Deno.test("a file larger than the limit is not read", () => {
  using folder = new TempFolder();
  const path = folder.write("large.json", `{"a": "${"x".repeat(100)}"}`);
  assertEquals(Object.keys(readJsonObject(path, 109)), ["a"]);
  assertThrows(() => readJsonObject(path, 108), ForgeError, "has 109 bytes; at most 108");
});

Deno.test("a missing file is not found", () => {
  using folder = new TempFolder();
  const error = assertThrows(() => readJsonObject(folder.at("none.json")), ForgeError, "none.json");
  assertEquals(error.code, "not_found");
});

Deno.test("a duplicate key is found in the outermost object only", () => {
  const find = (text: string) => {
    parseJsonObject(text, "the test");
    return findDuplicateKey(text);
  };
  assertEquals(find('{"a": 1, "b": 2, "a": 3}'), "a");
  assertEquals(find('{"a": {"x": 1, "x": 2}, "b": [{"a": 1, "a": 2}]}'), undefined);
  assertEquals(find('{"a": "a", "b": "\\"a\\": }{"}'), undefined);
  assertEquals(find('{"a\\"": 1, "\\u0061\\"": 2}'), 'a"');
  assertEquals(find('{"\\\\": 1, "x": {"y": "\\\\"}, "\\\\": 2}'), "\\");
  assertEquals(find("{}"), undefined);
});

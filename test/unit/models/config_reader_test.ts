import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import type { ConfigReader, Key } from "../../../src/models/config/config_reader.ts";
import { ggufConfig, jsonConfig } from "./fakes.ts";

const KEY: Key = ["hidden_size", "embedding_length"];

function assertRefused(read: () => unknown, code: string, message: string): void {
  const error = assertThrows(read, ForgeError);
  assertEquals([error.code, error.message], [code, message]);
}

Deno.test("a setting is found under the name of its format", () => {
  assertEquals(jsonConfig({ hidden_size: 64, embedding_length: 1 }).int(KEY), 64);
  assertEquals(ggufConfig({ embedding_length: 64, hidden_size: 1 }).int(KEY), 64);
  assertEquals(ggufConfig({ embedding_length: 64 }, "qwen2").int(KEY), 64);
});

Deno.test("a setting without a name in the format is absent", () => {
  assertEquals(jsonConfig({ a: 1 }).raw([undefined, "a"]), undefined);
  assertEquals(ggufConfig({ a: 1 }).raw(["a", undefined]), undefined);
  assertEquals(ggufConfig({}).boolean(["attention_bias", undefined], true), true);
});

Deno.test("null and absent settings take the fallback", () => {
  for (const config of [jsonConfig({ x: null }), jsonConfig({})]) {
    assertEquals(config.int(["x", "x"], { fallback: 3 }), 3);
    assertEquals(config.number(["x", "x"], 0.5), 0.5);
    assertEquals(config.boolean(["x", "x"], false), false);
    assertEquals(config.string(["x", "x"], "text"), "text");
    assertEquals(config.perLayer(["x", "x"], 2), undefined);
    assertRefused(
      () => config.int(["x", "x"]),
      "bad_model",
      `"model": x is missing; expected a whole number from 1 to 67108864`,
    );
  }
});

Deno.test("a setting of the wrong type is rejected with its value", () => {
  const x: Key = ["x", "x"];
  const bad: [unknown, (config: ConfigReader) => unknown, string][] = [
    [0, (c) => c.int(x), `x is "0"; expected a whole number from 1 to 67108864`],
    [1.5, (c) => c.int(x), `x is "1.5"; expected a whole number from 1 to 67108864`],
    ["64", (c) => c.int(x), `x is "64"; expected a whole number from 1 to 67108864`],
    [1e9, (c) => c.int(x), `x is "1000000000"; expected a whole number from 1 to 67108864`],
    [9, (c) => c.int(x, { min: 0, max: 8 }), `x is "9"; expected a whole number from 0 to 8`],
    [[], (c) => c.int(x), `x is "[]"; expected a whole number from 1 to 67108864`],
    ["1", (c) => c.number(x), `x is "1"; expected a finite number, of at most 3.4e38`],
    [1e300, (c) => c.positive(x), `x is "1e+300"; expected a finite number, of at most 3.4e38`],
    [1e-300, (c) => c.positive(x), `x is "1e-300"; expected a number above 0`],
    [-1, (c) => c.positive(x), `x is "-1"; expected a number above 0`],
    [1, (c) => c.boolean(x, false), `x is "1"; expected true or false`],
    [true, (c) => c.string(x), `x is "true"; expected text`],
    [{ a: 1 }, (c) => c.string(x), `x is "{\\"a\\":1}"; expected text`],
    [
      [1],
      (c) => c.perLayer(x, 2),
      `x is "[1]"; expected a list with an entry for each of 2 layers`,
    ],
    [7, (c) => c.perLayer(x, 2), `x is "7"; expected a list with an entry for each of 2 layers`],
  ];
  for (const [value, read, message] of bad) {
    const config = jsonConfig({ x: JSON.parse(JSON.stringify(value)) });
    assertRefused(() => read(config), "bad_model", `"model": ${message}`);
  }
});

Deno.test("an invalid GGUF setting is reported by its full key, whatever its type", () => {
  const range = "expected a whole number from 1 to 67108864";
  for (
    const [value, shown] of [
      [2n ** 64n - 1n, "18446744073709551615"],
      [NaN, "NaN"],
      [-Infinity, "-Infinity"],
      [Int32Array.of(), "[]"],
    ] as const
  ) {
    assertRefused(
      () => ggufConfig({ embedding_length: value }).int(KEY),
      "bad_model",
      `"model.gguf": llama.embedding_length is "${shown}"; ${range}`,
    );
  }
});

Deno.test("a list with the same number for every layer is that number", () => {
  assertEquals(ggufConfig({ x: Int32Array.of(4, 4, 4) }).int([undefined, "x"]), 4);
  assertEquals(jsonConfig({ x: [4, 4] }).int(["x", undefined]), 4);
  assertRefused(
    () => ggufConfig({ x: Int32Array.of(4, 4, 8) }).int([undefined, "x"]),
    "unsupported",
    `"model.gguf": llama.x differs between layers: "[4, 4, 8]"`,
  );
  assertRefused(
    () => ggufConfig({ x: BigInt64Array.of(1n, 2n) }).int([undefined, "x"]),
    "unsupported",
    `"model.gguf": llama.x differs between layers: "[1, 2]"`,
  );
});

Deno.test("a message stays short for a long value", () => {
  const config = ggufConfig({ x: new Uint32Array(100000).map((_, i) => i) });
  const error = assertThrows(() => config.int([undefined, "x"]), ForgeError);
  assert(error.message.length < 300, `${error.message.length} characters`);
});

Deno.test("a GGUF list of layers may be a typed array and have surplus entries", () => {
  const key: Key = ["x", "x"];
  assertEquals(ggufConfig({ x: Uint8Array.of(1, 0, 1) }).perLayer(key, 2), [1, 0, 1]);
  assertEquals(ggufConfig({ x: [true, false] }).perLayer(key, 2), [true, false]);
  assertEquals(jsonConfig({ x: ["a", "b"] }).perLayer(key, 2), ["a", "b"]);
});

Deno.test("object settings exist in config.json alone", () => {
  assertEquals(jsonConfig({ x: { a: 1 } }).object("x"), { a: 1 });
  assertEquals(jsonConfig({ x: null }).object("x"), undefined);
  assertEquals(jsonConfig({}).object("x"), undefined);
  assertRefused(
    () => jsonConfig({ x: [1] }).object("x"),
    "bad_model",
    `"model": x is "[1]"; expected an object`,
  );
  assertEquals(ggufConfig({ x: 1 }).object("x"), undefined);
});

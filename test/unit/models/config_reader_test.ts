import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import type { GgufField } from "../../../src/formats/gguf/writer.ts";
import type { JsonObject } from "../../../src/formats/json.ts";
import { ConfigReader, type Key } from "../../../src/models/config/config_reader.ts";
import type { GgufSink } from "../../../src/models/gguf_rules.ts";
import { fakeCheckpoint, ggufConfig, jsonConfig } from "./fakes.ts";

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

Deno.test("bounds of a whole number are included", () => {
  for (const value of [0, 8]) {
    assertEquals(jsonConfig({ x: value }).int(["x", "x"], { min: 0, max: 8 }), value);
  }
  for (const value of [1, 2 ** 26]) {
    assertEquals(ggufConfig({ x: value }).int(["x", "x"]), value);
  }
});

Deno.test("the second name of a setting counts if config.json has both", () => {
  const key: Key = ["num_local_experts", undefined];
  const read = (settings: JsonObject) =>
    jsonConfig({ model_type: "mixtral", ...settings }).int(key);
  assertEquals(read({ num_experts: 4 }), 4);
  assertEquals(read({ num_local_experts: 6 }), 6);
  assertEquals(read({ num_experts: 4, num_local_experts: 6 }), 4);
  assertEquals(read({}), 8);
  assertEquals(jsonConfig({ num_experts: 4, num_local_experts: 6 }).int(key), 6);
});

Deno.test("a layer has its own settings, or those of all layers", () => {
  const config = jsonConfig({ x: 4, y: [5, 6], per_layer_config: { "1": { x: 8 }, "2": 3 } });
  const read = (layer: number) => {
    const own = config.ofLayer(layer);
    return [own.int(["x", "x"]), own.raw(["y", "y"]), own.raw(["z", "z"])];
  };
  assertEquals([0, 1, 2].map(read), [[4, [5, 6], undefined], [8, [5, 6], undefined], [
    4,
    [5, 6],
    undefined,
  ]]);
  assertEquals(config.int(["x", "x"]), 4);
  for (const many of [config, ggufConfig({ y: Int32Array.of(5, 6) })]) {
    assertEquals([0, 1].map((layer) => many.ofLayer(layer).int(["y", "y"])), [5, 6]);
  }
  const without = jsonConfig({ x: 4, per_layer_config: null });
  assertEquals(without.ofLayer(1).int(["x", "x"]), 4);
});

Deno.test("a sink receives the settings of a folder that GGUF files have", () => {
  const collected: [string, GgufField][] = [];
  const sink: GgufSink = {
    setting: (key, field) => collected.push([key, field]),
    tensor: () => {},
    numbers: () => {},
  };
  const read = (config: ConfigReader) => {
    config.int(["a", "size"]);
    config.ofLayer(0).positive(["b", "scale"]);
    config.boolean(["c", "is_on"], true);
    config.int(["d", undefined], { fallback: 1 });
    config.int([undefined, "e"], { fallback: 1 });
  };
  const config = { model_type: "llama", a: 3, b: 0.5 };
  read(new ConfigReader(fakeCheckpoint({ config }), undefined, sink));
  assertEquals(collected, [["size", ["u32", 3]], ["scale", ["f32", 0.5]], ["is_on", [
    "bool",
    true,
  ]]]);
  const metadata = { "general.architecture": "llama", "llama.size": 3, "llama.scale": 0.5 };
  read(new ConfigReader(fakeCheckpoint({ metadata }), undefined, sink));
  assertEquals(collected.length, 3);
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
    [
      [1, 2, 3],
      (c) => c.perLayer(x, 2),
      `x is "[1, 2, 3]"; expected a list with an entry for each of 2 layers`,
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
  assertRefused(
    () => ggufConfig({ x: Uint8Array.of(1) }).perLayer(key, 2),
    "bad_model",
    `"model.gguf": llama.x is "[1]"; expected a list with an entry for each of 2 layers`,
  );
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

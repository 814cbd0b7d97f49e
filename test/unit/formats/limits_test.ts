/** Files of a few megabytes that would become gigabytes are rejected, each by its own budget. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { openCheckpoint } from "../../../src/formats/checkpoint.ts";
import { readGguf } from "../../../src/formats/gguf/gguf.ts";
import type { GgufField } from "../../../src/formats/gguf/writer.ts";
import { parseJson, readJsonObject } from "../../../src/formats/json.ts";
import { LIMITS } from "../../../src/formats/limits.ts";
import { readSafetensors } from "../../../src/formats/safetensors.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import { tokenizerFromJson } from "../../../src/tokenizer/from_json.ts";
import { withLength, writeModelFolder } from "../../support/safetensors_writer.ts";
import { TempFolder } from "../../support/temp_folder.ts";
import { encodeGguf, joinParts } from "../../support/parts.ts";

function assertRefused(read: () => unknown, reason: string): void {
  const { code, message } = assertThrows(read, ForgeError, reason);
  assertEquals(code, "bad_model");
  assert(message.length < 500 && !message.includes("\n"), message);
}

const nested = (depth: number) => `{"a":${"[".repeat(depth - 1)}${"]".repeat(depth - 1)}}`;
const many = (count: number) => `{"a":[${"[],".repeat(count - 3)}[]]}`;

Deno.test("a JSON text has a budget of depth, of arrays and objects, and of values", () => {
  const { jsonDepth, jsonContainers, jsonValues } = LIMITS;
  parseJson(nested(jsonDepth), "it");
  assertRefused(() => parseJson(nested(jsonDepth + 1), "it"), `at most ${jsonDepth} are read`);
  assertRefused(
    () => parseJson(many(jsonContainers + 1), "it"),
    `has ${jsonContainers + 1} arrays and objects`,
  );
  const values = `[${"0,".repeat(jsonValues)}0]`;
  assertRefused(() => parseJson(values, "it"), `has ${jsonValues + 1} values`);
  // Brackets and commas in strings do not count.
  parseJson(JSON.stringify(`"\\${"[{,".repeat(jsonDepth)}\\"`), "it");
});

Deno.test("config.json and the header of a safetensors file have the same budget", () => {
  using folder = new TempFolder();
  const bomb = many(LIMITS.jsonContainers + 1);
  const header = joinParts([withLength(bomb), new Uint8Array(16)]);
  const path = folder.write("model.safetensors", header);
  assertRefused(() => readSafetensors(path), "the header of");
  assertRefused(() => readJsonObject(folder.write("a.json", bomb)), "a.json");

  writeModelFolder(folder.path, { "config.json": { model_type: "llama" } }, [
    float32Tensor("a", [1], new Float32Array(1)),
  ]);
  openCheckpoint(folder.path);
  folder.write("config.json", `{"a":"${"x".repeat(LIMITS.configBytes)}"}`);
  assertRefused(() => openCheckpoint(folder.path), `at most ${LIMITS.configBytes} are read`);
});

Deno.test("a GGUF header has a budget of keys, tensors, and items of arrays", () => {
  using folder = new TempFolder();
  const read = (metadata: Record<string, GgufField>) =>
    readGguf(folder.write("a.gguf", encodeGguf({ metadata, tensors: [] })));
  // An array of as many zeros as there may be items, and one more: false, or empty arrays of u8.
  const zeros = (items: number) => {
    const header = encodeGguf({ metadata: { a: ["array", "bool", []] }, tensors: [] });
    const key = header.subarray(0, 24 + 8 + 1 + 4 + 4 + 8);
    const bytes = joinParts([key, new Uint8Array(items + 64)]);
    new DataView(bytes.buffer).setBigUint64(key.length - 8, BigInt(items), true);
    return () => readGguf(folder.write("a.gguf", bytes));
  };
  zeros(1000)();
  assertRefused(zeros(LIMITS.ggufArrayItems + 1), "strings, booleans and arrays in arrays");
  const nested: GgufField = ["array", "array", new Array(1000).fill(["array", "u8", []])];
  read({ a: nested });
  const keys = Array.from({ length: LIMITS.ggufKeys + 1 }, (_, i) => [`k${i}`, ["u8", 1]]);
  assertRefused(() => read(Object.fromEntries(keys)), `at most ${LIMITS.ggufKeys} are read`);
  const claims = encodeGguf({ metadata: {}, tensors: [] });
  new DataView(claims.buffer).setBigUint64(8, BigInt(LIMITS.ggufTensors + 1), true);
  const long = joinParts([claims, new Uint8Array(40 * LIMITS.ggufTensors)]);
  assertRefused(
    () => readGguf(folder.write("b.gguf", long)),
    `at most ${LIMITS.ggufTensors} are read`,
  );
});

Deno.test("a tokenizer's steps may lengthen a text only by a bounded factor", () => {
  const replace = (String: string, content: string) => ({
    type: "Replace",
    pattern: { String },
    content,
  });
  const make = (steps: readonly unknown[], decoders: readonly unknown[]) =>
    tokenizerFromJson(
      {
        model: { type: "BPE", vocab: { a: 0, b: 1, x: 2 }, merges: [], unk_token: "x" },
        normalizer: { type: "Sequence", normalizers: steps },
        decoder: { type: "Sequence", decoders },
      },
      undefined,
      "tokenizer.json",
    );
  const once = replace("a", "a".repeat(31));
  assertEquals(make([once], []).encode("a".repeat(500)).length, 31 * 500);
  const growing = Array.from({ length: 5 }, () => replace("a", "a".repeat(60)));
  assertRefused(() => make(growing, []).encode("aa"), "more than 1088 characters");
  assertRefused(() => make([], growing).decode([0]), "more than 1056 characters");
});

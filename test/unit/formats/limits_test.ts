/** Files of a few megabytes that would become gigabytes are rejected, each by its own budget. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { openAdapter } from "../../../src/formats/adapter.ts";
import { openCheckpoint } from "../../../src/formats/checkpoint.ts";
import { readGguf } from "../../../src/formats/gguf/gguf.ts";
import type { GgufField } from "../../../src/formats/gguf/writer.ts";
import { parseJson, readJsonObject } from "../../../src/formats/json.ts";
import { LIMITS } from "../../../src/formats/limits.ts";
import { readSafetensors } from "../../../src/formats/safetensors.ts";
import { float32Tensor } from "../../../src/formats/tensor_data.ts";
import { ChatTemplate } from "../../../src/tokenizer/chat_template.ts";
import { tokenizerFromJson } from "../../../src/tokenizer/from_json.ts";
import {
  encodeSafetensors,
  withLength,
  writeModelFolder,
} from "../../support/safetensors_writer.ts";
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
  for (const name of ["generation_config.json", "config.json"]) {
    folder.write(name, `{"a":"${"x".repeat(LIMITS.configBytes)}"}`);
    const reason = `${name}" has ${LIMITS.configBytes + 8} bytes; at most ${LIMITS.configBytes}`;
    assertRefused(() => openCheckpoint(folder.path), reason);
  }
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
  zeros(LIMITS.ggufArrayItems)();
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

/** Opens an adapter of one module. */
function adapterWith(config: object, r = 1): () => unknown {
  return () => {
    using folder = new TempFolder();
    const tensors = ["A", "B"].map((side) =>
      float32Tensor(
        `base_model.model.m.lora_${side}.weight`,
        side === "A" ? [r, 1] : [1, r],
        new Float32Array(r),
      )
    );
    folder.write("adapter_model.safetensors", encodeSafetensors({ tensors }));
    folder.write("adapter_config.json", { peft_type: "LORA", r, lora_alpha: 1, ...config });
    return openAdapter(folder.path).pairs[0]!.factor;
  };
}

const tokenizerWith = (steps: object, vocab: Record<string, number> = { a: 0, b: 1, x: 2 }) => () =>
  tokenizerFromJson(
    { model: { type: "BPE", vocab, merges: [], unk_token: "x" }, ...steps },
    undefined,
    "tokenizer.json",
  );
const splitBy = (Regex: string) =>
  tokenizerWith({ pre_tokenizer: { type: "Split", pattern: { Regex }, behavior: "Isolated" } });
const rendered = (source: string) => () =>
  new ChatTemplate(source).render([], { addGenerationPrompt: false, bosToken: "", eosToken: "" });
const normalizers = (levels: number): object =>
  levels === 1
    ? { type: "Lowercase" }
    : { type: "Sequence", normalizers: [normalizers(levels - 1)] };

Deno.test("a limit takes its number, and one more is refused", () => {
  using folder = new TempFolder();
  const limits: Record<string, readonly [most: number, make: (n: number) => () => unknown]> = {
    "regular expressions of an adapter": [32, (n) => {
      const patterns = Array.from({ length: n }, (_, i) => [`m[${i}]+`, 2]);
      return adapterWith({ alpha_pattern: Object.fromEntries(patterns) });
    }],
    "repetitions of an adapter's pattern": [
      2,
      (n) => adapterWith({ alpha_pattern: { ["m+".repeat(n)]: 2 } }),
    ],
    "rank of an adapter": [4096, (n) => adapterWith({}, n)],
    "dimensions of safetensors": [8, (n) => {
      const tensor = float32Tensor("a", Array(n).fill(1), new Float32Array(1));
      const path = folder.write("a.safetensors", encodeSafetensors({ tensors: [tensor] }));
      return () => readSafetensors(path);
    }],
    "levels of arrays in GGUF": [4, (n) => {
      const inner = (depth: number): Extract<GgufField, readonly ["array", ...unknown[]]> =>
        depth === 1 ? ["array", "u8", []] : ["array", "array", [inner(depth - 1)]];
      const bytes = encodeGguf({ metadata: { a: inner(n) }, tensors: [] });
      return () => readGguf(folder.write("b.gguf", bytes));
    }],
    "bytes of a key of GGUF": [65_535, (n) => {
      const bytes = encodeGguf({ metadata: { ["a".repeat(n)]: ["u8", 1] }, tensors: [] });
      return () => readGguf(folder.write("d.gguf", bytes));
    }],
    "bytes of a name of GGUF": [65_535, (n) => {
      const tensor = float32Tensor("a".repeat(n), [1], [1]);
      const bytes = encodeGguf({ metadata: {}, tensors: [tensor] });
      return () => readGguf(folder.write("e.gguf", bytes));
    }],
    "log2 of the alignment": [20, (n) => {
      const bytes = encodeGguf({ metadata: { "general.alignment": ["u32", 2 ** n] }, tensors: [] });
      return () => readGguf(folder.write("c.gguf", bytes));
    }],
    "inserted characters": [
      64,
      (n) => tokenizerWith({ normalizer: { type: "Prepend", prepend: "a".repeat(n) } }),
    ],
    "levels of normalizers": [
      16,
      (n) => tokenizerWith({ normalizer: normalizers(n) }),
    ],
    "steps of pre-tokenizers": [64, (n) => {
      const pretokenizers = Array.from({ length: n }, () => ({ type: "Whitespace" }));
      return tokenizerWith({ pre_tokenizer: { type: "Sequence", pretokenizers } });
    }],
    "characters of a pattern": [20_000, (n) => splitBy("a".repeat(n))],
    "count of a pattern": [100_000, (n) => splitBy(`a{${n}}`)],
    "levels of a pattern": [100, (n) => splitBy("(".repeat(n) + "a" + ")".repeat(n))],
    "choices of a pattern": [12, (n) => splitBy("a?".repeat(n))],
    "characters of a template": [262_144, (n) => rendered("a".repeat(n))],
    "items of a range": [100_000, (n) => rendered(`{{ range(${n}) | length }}`)],
    "digits of a format": [2000, (n) => rendered(`{{ '%.${n}f' % 1.5 }}`)],
    "digits of an int": [4300, (n) => rendered(`{{ 10 ** ${n - 1} }}`)],
    "bits of a power": [16_384, (n) => rendered(`{{ 8 ** ${n} > 1 }}`)],
  };
  for (const [name, [most, make]] of Object.entries(limits)) {
    try {
      make(most)();
    } catch (error) {
      throw new Error(`${name}: ${most} are refused`, { cause: error });
    }
    const error = assertThrows(make(most + 1), ForgeError);
    assert(["bad_model", "unsupported"].includes(error.code), `${name}: ${error}`);
  }
});

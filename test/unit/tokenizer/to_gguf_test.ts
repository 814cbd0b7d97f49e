import { assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { ggufTokenizer } from "../../../src/tokenizer/to_gguf.ts";
import { addedToken, build, byteFallbackJson, byteLevelJson, type Json } from "./support.ts";

/** Returns the metadata of a tokenizer without the prefix of the keys and the types of values. */
function written(json: Json, more = 0, rest: Json = {}): Record<string, unknown> {
  const tokenizer = build(json, { bos_token: null });
  const rows = tokenizer.vocabSize + more;
  const fields = ggufTokenizer({ json, tokenizer, path: "folder", rows, endIds: [], ...rest });
  return Object.fromEntries(
    Object.entries(fields).map(([key, field]) => [
      key.replace("tokenizer.ggml.", ""),
      field.at(-1),
    ]),
  );
}

/** Returns the last entries of the tokens and of their types. */
function last(fields: Record<string, unknown>, count: number): unknown[] {
  const types = fields["token_type"] as Int32Array;
  return [(fields["tokens"] as string[]).slice(-count), [...types.slice(-count)]];
}

Deno.test("byte-level BPE is written with its tokens, merges and ends of an answer", () => {
  const json = {
    ...byteLevelJson(["ab", "abc"], ["#version: 0.2", "a b", ["ab", "c"]]),
    added_tokens: [addedToken(259, "<s>"), addedToken(260, "<t>", { special: false })],
  };
  const fields = written(json, 1, { endIds: [259, 257, 256, 255], chatTemplate: "{{ x }}" });
  assertEquals([fields["model"], fields["pre"]], ["gpt2", "gpt-2"]);
  assertEquals(last(fields, 6), [
    ["ab", "abc", "[PAD258]", "<s>", "<t>", "[PAD261]"],
    [1, 1, 5, 3, 4, 5],
  ]);
  assertEquals(fields["merges"], ["a b", "ab c"]);
  const keys = ["eos_token_id", "eot_token_id", "eom_token_id", "tokenizer.chat_template"];
  assertEquals(keys.map((key) => fields[key]), [259, 257, 256, "{{ x }}"]);
  const flags = ["add_bos_token", "add_eos_token", "bos_token_id", "unknown_token_id"];
  assertEquals(flags.map((key) => fields[key]), [false, false, undefined, undefined]);
  assertThrows(
    () => written(json, -1),
    ForgeError,
    "has 261 tokens for an embedding of 260 rows",
  );
});

Deno.test("BPE of characters is written with scores in the order of its merges", () => {
  const json = byteFallbackJson(["<unk>", "▁", "a", "b", "ab", "▁ab"], ["a b", "▁ ab"]);
  Object.assign(json["model"] as Json, { unk_token: "<unk>", fuse_unk: true });
  const fields = written(json, 1);
  assertEquals([fields["model"], fields["add_space_prefix"]], ["llama", true]);
  assertEquals(last(fields, 8), [
    ["<0xFF>", "<unk>", "▁", "a", "b", "ab", "▁ab", "[PAD262]"],
    [6, 2, 1, 1, 1, 1, 1, 5],
  ]);
  const scores = fields["scores"] as Float32Array;
  assertEquals(Array.from(scores.slice(-7), (score) => score + 0), [-2, -2, -2, -2, 0, -1, -2]);
  assertEquals(fields["unknown_token_id"], 256);
  assertEquals("tokenizer.chat_template" in fields, false);
});

Deno.test("tokenizers that GGUF cannot express are rejected with the reason", () => {
  const { model, ...steps } = byteFallbackJson(["a", "b", "c", "ab", "bc", "abc"], []);
  const merging = (...merges: string[]) => ({ ...steps, model: { ...(model as Json), merges } });
  const bytes = byteLevelJson([], []);
  const cases: [Json, string][] = [
    [{ model: { type: "Unigram", vocab: [["a", 0]] } }, 'is of the type "Unigram", not BPE'],
    [merging("a b", "ab c", "b c", "a bc"), 'joins "abc" at several ranks'],
    [merging("a b", "b c", "ab c"), 'does not join "a" and "bc"'],
    // SentencePiece joins all neighbours that are a piece.
    [byteFallbackJson(["▁", "x", "▁x"], []), "treats spaces or characters differently"],
    [
      { ...bytes, model: { ...bytes["model"] as Json, ignore_merges: true } },
      "cuts text in a way that has no name",
    ],
    [
      {
        ...bytes,
        pre_tokenizer: {
          type: "Sequence",
          pretokenizers: [
            { type: "Split", pattern: { Regex: "[^\\n]+|\\n+" }, behavior: "Isolated" },
            { type: "ByteLevel", add_prefix_space: false, use_regex: false },
          ],
        },
      },
      "cuts text in a way that has no name",
    ],
    [
      { ...bytes, pre_tokenizer: { type: "Digits" } },
      "treats spaces or characters differently",
    ],
  ];
  for (const [json, reason] of cases) {
    assertEquals(assertThrows(() => written(json), ForgeError, reason).code, "unsupported");
  }
});

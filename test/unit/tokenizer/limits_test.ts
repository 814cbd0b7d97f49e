/** Encoding fails if and only if a text has more tokens than the limit. */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { encodeTextInSlices } from "../../../src/engine/request/prompt.ts";
import { ForgeError } from "../../../src/errors.ts";
import { finish, type Tokenizer, TokenLimitError } from "../../../src/tokenizer/tokenizer.ts";
import { openCheckpoint, openTokenizer } from "../../../src/mod.ts";
import { Random } from "../../support/random.ts";
import { join } from "@std/path";
import { ROOT } from "../../support/checkout.ts";
import { sharedAvailable, sharedPath } from "../../support/shared.ts";
import { tokenizerFromJson } from "../../../src/tokenizer/from_json.ts";
import {
  addedToken,
  bpeModel,
  build,
  byteFallbackJson,
  byteLevelJson,
  randomText,
} from "./support.ts";

const MERGES = [["a", "b"], ["ab", "ab"], ["abab", "abab"], ["Ġ", "Ġ"], ["ĠĠ", "ĠĠ"]] as const;

function tokenizers(): [string, Tokenizer][] {
  const joined = MERGES.map((pair) => pair.join(""));
  const spaces = joined.map((piece) => piece.replaceAll("Ġ", "▁"));
  const spaced = MERGES.map((pair) => pair.map((piece) => piece.replaceAll("Ġ", "▁")));
  const made: [string, Tokenizer][] = [
    ["bytes", build(byteLevelJson(joined, MERGES))],
    ["characters", build(byteFallbackJson(["▁", "a", "b", ...spaces], spaced))],
    ["demo", openTokenizer(openCheckpoint(join(ROOT, "models", "demo")))],
  ];
  for (const name of ["qwen2", "llama-spm", "phi-3"]) {
    const path = ["tokenizers", `ggml-vocab-${name}.gguf`] as const;
    if (!sharedAvailable(...path)) continue;
    made.push([name, openTokenizer(openCheckpoint(sharedPath(...path)))]);
  }
  return made;
}

/** Returns a text with long words of few characters, which are checked before they are merged. */
function longWords(random: Random): string {
  const word = () => {
    const letters = ["ab", " ", "a", "é", "😀", "\n", "1", "=", "abcdefgh", "<0x0A>"];
    const letter = letters[random.int(0, letters.length - 1)]!;
    return letter.repeat(random.int(1, 400));
  };
  return Array.from({ length: random.int(1, 4) }, word).join("");
}

Deno.test("encode: a limit rejects exactly the texts with more tokens", () => {
  const random = new Random("tokenizer/limits");
  for (const [name, tokenizer] of tokenizers()) {
    for (let round = 0; round < 60; round++) {
      const text = round % 2 === 0 ? longWords(random) : randomText(() => random.uniform(), 300);
      const ids = tokenizer.encode(text, { addSpecial: false });
      const encode = (maxTokens: number, truncate = false) =>
        tokenizer.encode(text, { addSpecial: false, maxTokens, truncate });
      assertEquals(encode(ids.length), ids, `${name}: ${JSON.stringify(text)}`);
      if (ids.length === 0) continue;
      const less = random.int(0, ids.length - 1);
      const { limit } = assertThrows(() => encode(less), TokenLimitError);
      assertEquals(limit, less);
      const cut = encode(less, true);
      assertEquals(cut.length, less);
      assertEquals(cut, ids.slice(0, cut.length));
    }
  }
});

Deno.test("encode: texts far beyond the context are rejected with a bounded count", () => {
  for (const [name, tokenizer] of tokenizers()) {
    for (const letter of ["ab", "é", "x1"]) {
      const text = letter.repeat(500_000);
      const encode = () => finish(encodeTextInSlices(text, tokenizer, 64, "the text"));
      const error = assertThrows(encode, ForgeError);
      assertEquals(
        error.message,
        "the text has more than 16384 tokens; the context holds 64",
        `${name}: ${letter}`,
      );
    }
  }
});

const UNIGRAM = [["<unk>", 0], ["a", -2], ["b", -2.5], ["ab", -3], ["aba", -3.25], [
  "bb",
  -4,
]] as const;

function unigram(): Tokenizer {
  return build({ model: { type: "Unigram", unk_id: 0, vocab: UNIGRAM } });
}

Deno.test("encode: slices of long words give the tokens of the whole text", () => {
  const random = new Random("tokenizer/slices");
  for (const [name, tokenizer] of [...tokenizers(), ["unigram", unigram()] as const]) {
    const word = (letters: string, length: number) =>
      Array.from({ length }, () => letters[random.int(0, letters.length - 1)]).join("");
    const texts = Array.from({ length: 3 }, () =>
      [
        longWords(random),
        word("ab", random.int(40_000, 60_000)),
        longWords(random),
        word("a é😀", random.int(40_000, 60_000)),
        " ".repeat(random.int(40_000, 60_000)),
      ].join("."));
    const whole = texts.map((text) => tokenizer.encode(text));
    // The texts take turns.
    const sliced = texts.map((text) => tokenizer.encodeInSlices(text));
    const results: Int32Array[] = [];
    let pauses = 0;
    while (results.filter(Boolean).length < texts.length) {
      for (const [i, slices] of sliced.entries()) {
        if (results[i] !== undefined) continue;
        const { done, value } = slices.next();
        if (done) results[i] = value;
        else pauses++;
      }
    }
    assertEquals(results, whole, name);
    assert(pauses >= 3 * 5, `${name}: ${pauses} pauses`);
    const { length } = whole[0]!;
    assertEquals(finish(tokenizer.encodeInSlices(texts[0]!, { maxTokens: length })), whole[0]);
    assertThrows(
      () => finish(tokenizer.encodeInSlices(texts[0]!, { maxTokens: length - 8 })),
      TokenLimitError,
    );
  }
});

Deno.test("encode: a long word of a unigram model is cut into the pieces of the best sum", () => {
  const random = new Random("tokenizer/unigram");
  const text = Array.from({ length: 40_000 }, () => "ab"[random.int(0, 1)]).join("");
  const sums = [0];
  for (let end = 1; end <= text.length; end++) {
    const ways = UNIGRAM.filter(([piece]) => text.endsWith(piece, end) && piece.length <= end);
    sums.push(Math.max(...ways.map(([piece, score]) => sums[end - piece.length]! + score)));
  }
  const ids = unigram().encode(text);
  assertEquals(Array.from(ids, (id) => UNIGRAM[id]![0]).join(""), text);
  const sum = ids.reduce((total, id) => total + UNIGRAM[id]![1], 0);
  assert(Math.abs(sum - sums.at(-1)!) < 1e-6 * text.length, `${sum}, not ${sums.at(-1)}`);
});

Deno.test("encode: a long word of a unigram model is counted before it is cut into pieces", () => {
  const slices = unigram().encodeInSlices("ab".repeat(2e6), { maxTokens: 8000 });
  let pauses = 0;
  const error = assertThrows(() => {
    while (!slices.next().done) pauses++;
  }, TokenLimitError);
  assertEquals(error.limit, 8000);
  // No piece has more than three characters, so 8,000 tokens have at most three slices of 8,192.
  assert(pauses <= 5, `${pauses} pauses`);
});

Deno.test("encode: a limit that the tokens keep is no reason to refuse their characters", () => {
  const pieces = ["a", "aa", "aaaa", "aaaaaaaa"];
  const tokenizer = tokenizerFromJson(
    {
      model: {
        type: "BPE",
        vocab: Object.fromEntries(pieces.map((piece, id) => [piece, id])),
        merges: pieces.slice(0, -1).map((piece) => `${piece} ${piece}`),
      },
    },
    undefined,
    "tokenizer.json",
  );
  const word = "a".repeat(8 * 400);
  assertEquals(tokenizer.encode(word, { maxTokens: 400 }).length, 400);
  assertThrows(() => tokenizer.encode(word, { maxTokens: 399 }), TokenLimitError);
});

Deno.test("encode: tokens of every length are counted exactly", () => {
  for (let length = 2; length <= 26; length++) {
    const letters = "abcdefghijklmnopqrstuvwxyz".slice(0, length);
    const prefixes = Array.from(letters, (_, i) => letters.slice(0, i + 1));
    const model = bpeModel(
      [...prefixes, ...letters.slice(1)],
      prefixes.slice(1).map((piece) => `${piece.slice(0, -1)} ${piece.at(-1)}`),
    );
    const word = letters.repeat(100);
    assertEquals(build({ model }).encode(word, { maxTokens: 100 }).length, 100, letters);
  }
});

Deno.test("encode: unknown characters that share a token count once", () => {
  const model = bpeModel(["<unk>", "a", "<0xC3>"], [], {
    unk_token: "<unk>",
    fuse_unk: true,
    byte_fallback: true,
  });
  assertEquals([...build({ model }).encode("é".repeat(500), { maxTokens: 1 })], [0]);
});

Deno.test("encode: added tokens and the text after a long word count", () => {
  const tokenizer = build({ ...byteLevelJson([], []), added_tokens: [addedToken(256, "<s>")] });
  assertEquals([...tokenizer.encode("<s><s>", { maxTokens: 2 })], [256, 256]);
  assertThrows(() => tokenizer.encode("<s><s>", { maxTokens: 1 }), TokenLimitError);
  assertEquals([...tokenizer.encode("<s><s>", { maxTokens: 1, truncate: true })], [256]);
  const text = "a".repeat(40_000) + " bc<s>";
  const slices = (maxTokens: number) => finish(tokenizer.encodeInSlices(text, { maxTokens }));
  assertEquals(slices(40_004).length, 40_004);
  assertThrows(() => slices(40_003), TokenLimitError);
});

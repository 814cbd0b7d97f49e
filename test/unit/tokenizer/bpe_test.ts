import { assert, assertEquals } from "@std/assert";
import type { Alphabet } from "../../../src/tokenizer/models/alphabet.ts";
import { BpeEncoder } from "../../../src/tokenizer/models/bpe.ts";
import { IdBuffer } from "../../../src/tokenizer/models/word_encoder.ts";
import { MergeTable } from "../../../src/tokenizer/models/merges.ts";
import { bpeModel, build, byteFallbackJson, byteLevelJson, pieces, random } from "./support.ts";

Deno.test("the lowest rank joins first, leftmost on ties", () => {
  const tokenizer = build(byteLevelJson(["bc", "ab", "aa", "abc"], ["b c", "a b", "a a", "ab c"]));
  assertEquals(pieces(tokenizer, "abc"), ["a", "bc"]);
  assertEquals(pieces(tokenizer, "abab"), ["ab", "ab"]);
  assertEquals(pieces(tokenizer, "aaaaa"), ["aa", "aa", "a"]);
});

Deno.test("long words merge like short ones", () => {
  // Every word is also encoded by a plain search for the lowest pair.
  const letters = 4, ids = 40;
  const next = random(21);
  const table = new MergeTable(200);
  for (let rank = 0; rank < 200; rank++) {
    const [left, right] = [Math.floor(next() * ids), Math.floor(next() * ids)];
    table.add(left, right, rank, letters + Math.floor(next() * (ids - letters)));
  }
  const alphabet: Alphabet = {
    split: (word, symbols) => {
      for (const letter of word) symbols.push(Number(letter));
    },
    fewestTokens: () => 0,
    emit: (symbols, count, out) => out.pushRange(symbols, 0, count),
  };
  const encoder = new BpeEncoder(alphabet, table);
  for (let i = 0; i < 300; i++) {
    const length = 1 + Math.floor(next() * 400);
    const word = Array.from({ length }, () => Math.floor(next() * letters)).join("");
    const out = new IdBuffer();
    encoder.encode(word, out);
    assertEquals([...out.toArray()], lowestPairFirst([...word].map(Number), table));
  }
});

function lowestPairFirst(symbols: number[], table: MergeTable): number[] {
  for (;;) {
    let best = -1, at = -1;
    for (let i = 0; i + 1 < symbols.length; i++) {
      const handle = table.find(symbols[i] ?? 0, symbols[i + 1] ?? 0);
      if (handle >= 0 && (best < 0 || table.rank(handle) < table.rank(best))) {
        [best, at] = [handle, i];
      }
    }
    if (best < 0) return symbols;
    symbols.splice(at, 2, table.merged(best));
  }
}

Deno.test("a word that is a token skips merging only with ignore_merges", () => {
  const json = byteLevelJson(["ab", "abc"], ["a b"]);
  assertEquals(pieces(build(json), "abc abc"), ["ab", "c", "Ġ", "ab", "c"]);
  const model = Object.assign({}, json["model"], { ignore_merges: true });
  assertEquals(pieces(build({ ...json, model }), "abc"), ["abc"]);
  // The first token is a word as well.
  const { vocab } = json["model"] as { vocab: Record<string, number> };
  const [first = ""] = Object.keys(vocab).filter((piece) => vocab[piece] === 0);
  const swapped = { ...vocab, [first]: vocab["abc"]!, abc: 0 };
  const tokenizer = build({ ...json, model: { ...model, vocab: swapped } });
  assertEquals([...tokenizer.encode("abc")], [0]);
});

Deno.test("characters that are not pieces become bytes, in order", () => {
  const tokenizer = build(byteFallbackJson(["▁", "a", "▁a"], ["▁ a"]));
  assertEquals(pieces(tokenizer, "aé a"), ["▁a", "<0xC3>", "<0xA9>", "▁a"]);
  assertEquals(tokenizer.decode(tokenizer.encode("aé a😀")), "aé a😀");
});

Deno.test("characters without a byte become the unknown token, fused or not", () => {
  const model = (rest: Record<string, unknown>) => ({
    model: bpeModel(["<unk>", "a", "b"], [], { unk_token: "<unk>", ...rest }),
  });
  assertEquals(pieces(build(model({})), "axyb"), ["a", "<unk>", "<unk>", "b"]);
  assertEquals(pieces(build(model({ fuse_unk: true })), "axyb"), ["a", "<unk>", "b"]);
});

Deno.test("a character or byte without a token is dropped, and its neighbours may join", () => {
  assertEquals(pieces(build({ model: bpeModel(["a", "b", "ab"], ["a b"]) }), "aéb"), ["ab"]);
  const bytes = byteLevelJson([], []);
  const model = bpeModel(["a", "b", "ab"], ["a b"]);
  assertEquals(pieces(build({ ...bytes, model }), "a\u0001b é"), ["a", "b"]);
});

Deno.test("a lone surrogate is U+FFFD", () => {
  const tokenizer = build(byteLevelJson([], []));
  assertEquals([...tokenizer.encode("a\ud83d")], [...tokenizer.encode("a\ufffd")]);
  assertEquals(tokenizer.decode(tokenizer.encode("\ude00x")), "\ufffdx");
});

Deno.test("a megabyte without a cut is encoded", () => {
  const doublings = ["aa", "aaaa", "aaaaaaaa"];
  const bytes = build(byteLevelJson(doublings, ["a a", "aa aa", "aaaa aaaa"]));
  const ids = bytes.encode("a".repeat(1_000_001));
  assertEquals(ids.length, 125_001);
  assertEquals(bytes.tokenText(ids[0] ?? 0), "aaaaaaaa");
  assertEquals(bytes.encode(" ".repeat(1_000_000)).length, 1_000_000);
  assertEquals(bytes.encode("é".repeat(500_000)).length, 1_000_000);

  const characters = build(byteFallbackJson(["▁", "a", ...doublings], ["a a", "aa aa"]));
  assertEquals(characters.encode("a".repeat(1_000_000)).length, 250_001);
  assertEquals(characters.encode(" ".repeat(1_000_000)).length, 1_000_001);
});

Deno.test("words keep their tokens when the cache of words is cleared", () => {
  const tokenizer = build(byteLevelJson([], []));
  // 30,000 words of 9 tokens are more than the cache holds.
  const text = Array.from({ length: 30_000 }, (_, i) => ` ${10_000_000 + i}`).join("");
  const bytes = [...new TextEncoder().encode(text)];
  for (let round = 0; round < 2; round++) {
    const ids = tokenizer.encode(text);
    assertEquals(ids.length, bytes.length);
    assert(ids.every((id, i) => id === bytes[i]));
  }
});

Deno.test("an encoder releases the buffers of a huge word", () => {
  const tokenizer = build(byteLevelJson(["ab"], ["a b"]));
  const before = tokenizer.encode("ab abab");
  tokenizer.encode("ab".repeat(200_000));
  assertEquals([...tokenizer.encode("ab abab")], [...before]);
  assert(before.length === 4);
});

import { assert, assertEquals } from "@std/assert";
import { AddedTokenFinder, endOfGenerationIds } from "../../../src/tokenizer/special_tokens.ts";
import { Random } from "../../support/random.ts";
import {
  addedToken,
  build,
  byteFallbackJson,
  byteLevelJson,
  characterJson,
  pieces,
} from "./support.ts";

/** A tokenizer of characters with added tokens from id 100 on. */
function withTokens(...tokens: [string, Record<string, unknown>?][]) {
  const added_tokens = tokens.map(([content, rest], i) => addedToken(100 + i, content, rest));
  return build(characterJson("abcdefgh <>|_", { added_tokens }));
}

Deno.test("the leftmost token is cut out, the longest where several begin", () => {
  const tokenizer = withTokens(["<a>"], ["<a"], ["<a><b>"]);
  assertEquals(pieces(tokenizer, "c<a><b><a<a>"), ["c", "<a><b>", "<a", "<a>"]);
  assertEquals(pieces(tokenizer, "<<a"), ["<", "<a"]);
});

Deno.test("the finder agrees with a search through all tokens, empty ones included", () => {
  const random = new Random("added tokens");
  const word = (longest: number) =>
    Array.from({ length: random.int(0, longest) }, () => random.pick(["a", "b", "😀"])).join("");
  for (let round = 0; round < 200; round++) {
    const contents = [...new Set(Array.from({ length: random.int(0, 6) }, () => word(3)))];
    const tokens = contents.map((content, id) => ({ id, content, special: false }));
    const text = word(20);
    const expected: string[] = [];
    for (let at = 0, done = 0; at < text.length;) {
      const [content = ""] = contents.filter((one) => text.startsWith(one, at))
        .sort((a, b) => b.length - a.length);
      at += content.length || 1;
      if (content === "" && at < text.length) continue;
      const begin = at - content.length;
      if (done < begin) expected.push(`${done}: ${text.slice(done, begin)}`);
      if (content !== "") expected.push(`token ${content}`);
      done = at;
    }
    const found: string[] = [];
    new AddedTokenFinder(tokens).split(
      text,
      ({ content }) => found.push(`token ${content}`),
      (piece, start) => found.push(`${start}: ${piece}`),
    );
    assertEquals(found, expected, `${JSON.stringify(contents)} in ${JSON.stringify(text)}`);
  }
});

Deno.test("lstrip and rstrip absorb the whitespace next to a token", () => {
  const tokenizer = withTokens(["<l>", { lstrip: true }], ["<r>", { rstrip: true }], ["<n>"]);
  assertEquals(pieces(tokenizer, "a  <l> b"), ["a", "<l>", " ", "b"]);
  assertEquals(pieces(tokenizer, "a <r>  b"), ["a", " ", "<r>", "b"]);
  assertEquals(pieces(tokenizer, "a <n> b"), ["a", " ", "<n>", " ", "b"]);
  assertEquals(pieces(tokenizer, "<r>  <l>"), ["<r>", "<l>"]);
  assertEquals(pieces(tokenizer, "  <l>"), ["<l>"]);
  assertEquals(pieces(tokenizer, "a <l>b <l>"), ["a", "<l>", "b", "<l>"]);
});

Deno.test("single_word tokens match only without word characters next to them", () => {
  const tokenizer = withTokens(["ab", { single_word: true }]);
  assertEquals(pieces(tokenizer, "ab"), ["ab"]);
  assertEquals(pieces(tokenizer, "<ab> ab"), ["<", "ab", ">", " ", "ab"]);
  assertEquals(pieces(tokenizer, "cab abc ab_"), [..."cab abc ab_"]);
  // No other token is found inside of one that is not alone.
  const inner = withTokens(["abc", { single_word: true }], ["bc"]);
  assertEquals(pieces(inner, "dabc bc"), [..."dabc ", "bc"]);
});

Deno.test("single_word sees letters beyond the basic plane, and the joiners of Rust's words", () => {
  const tokenizer = build(
    characterJson("abc 𐐀\u200d", { added_tokens: [addedToken(100, "ab", { single_word: true })] }),
  );
  assertEquals(pieces(tokenizer, "𐐀ab"), ["𐐀", "a", "b"]);
  assertEquals(pieces(tokenizer, "ab𐐀"), ["a", "b", "𐐀"]);
  assertEquals(pieces(tokenizer, "\u200dab"), ["\u200d", "a", "b"]);
});

Deno.test("normalized tokens are found after normalization, others before it", () => {
  const json = characterJson("abcd", {
    normalizer: { type: "Lowercase" },
    added_tokens: [
      addedToken(10, "AB", { normalized: true, special: false }),
      addedToken(11, "CD", { normalized: false, special: false }),
    ],
  });
  const tokenizer = build(json);
  assertEquals([...tokenizer.encode("aBcd")], [10, 3, 4]);
  assertEquals([...tokenizer.encode("abCDcd")], [10, 11, 3, 4]);
});

Deno.test("normalized control tokens are control tokens", () => {
  const tokenizer = build(characterJson("ab", {
    added_tokens: [addedToken(10, "ab", { normalized: true })],
  }));
  assertEquals([...tokenizer.encode("ab")], [10]);
  assertEquals([...tokenizer.encode("ab", { parseSpecial: false })], [1, 2]);
  assertEquals(tokenizer.isSpecial(10), true);
});

Deno.test("only the text before all added tokens begins a text", () => {
  const tokenizer = build(characterJson("▁ab", {
    pre_tokenizer: { type: "Metaspace", replacement: "▁", prepend_scheme: "first" },
    added_tokens: [addedToken(10, "<r>"), addedToken(11, "<n>", { normalized: true })],
  }));
  assertEquals(pieces(tokenizer, "a"), ["▁", "a"]);
  assertEquals(pieces(tokenizer, "<r>a"), ["<r>", "a"]);
  assertEquals(pieces(tokenizer, "<n>a"), ["<n>", "a"]);
  assertEquals(pieces(tokenizer, "a<r>b<n>a"), ["▁", "a", "<r>", "b", "<n>", "a"]);
});

Deno.test("an added token is text, and normalized, unless the file says otherwise", () => {
  const tokenizer = build(characterJson("ab", {
    normalizer: { type: "Lowercase" },
    added_tokens: [{ id: 10, content: "AB" }, { id: 11, content: "<S>", special: true }],
  }));
  assertEquals([tokenizer.isSpecial(10), tokenizer.isSpecial(11)], [false, true]);
  assertEquals([...tokenizer.encode(" ab <S>")], [0, 10, 0, 11]);
  assertEquals(pieces(tokenizer, "<s>"), ["<unk>", "<unk>", "<unk>"]);
});

Deno.test("control tokens are recognised only with parseSpecial; text tokens always", () => {
  const json = byteLevelJson([], []);
  const tokenizer = build({
    ...json,
    added_tokens: [addedToken(256, "<s>"), addedToken(257, "<t>", { special: false })],
  });
  assertEquals([...tokenizer.encode("<s><t>")], [256, 257]);
  const ids = tokenizer.encode("<s><t>", { parseSpecial: false });
  assertEquals(Array.from(ids, (id) => tokenizer.tokenText(id)), ["<", "s", ">", "<t>"]);
  assertEquals([tokenizer.isSpecial(256), tokenizer.isSpecial(257)], [true, false]);
  assertEquals(tokenizer.isSpecial(100_000), false);
});

Deno.test("no text becomes a control token by merging", () => {
  const json = byteLevelJson(["ab", "abc"], ["a b", "ab c"]);
  assertEquals(pieces(build(json), "abc"), ["abc"]);
  const tokenizer = build({ ...json, added_tokens: [addedToken(257, "abc")] });
  assertEquals([...tokenizer.encode("abc")], [257]);
  assertEquals([...tokenizer.encode("abc", { parseSpecial: false })], [256, 0x63]);
  const model = Object.assign({}, json["model"], { ignore_merges: true });
  const whole = build({ ...json, model, added_tokens: [addedToken(257, "abc")] });
  assertEquals([...whole.encode("abc", { parseSpecial: false })], [256, 0x63]);
});

Deno.test("control tokens are omitted from text unless skipSpecial is false", () => {
  const tokenizer = build({
    ...byteLevelJson([], []),
    added_tokens: [addedToken(256, "<s>"), addedToken(257, "ö ", { special: false })],
  });
  const ids = [256, ...tokenizer.encode("é"), 257];
  assertEquals(tokenizer.decode(ids), "éö ");
  assertEquals(tokenizer.decode(ids, { skipSpecial: false }), "<s>éö ");
  assertEquals(tokenizer.tokenBytes(256).length, 0);
  assertEquals(new TextDecoder().decode(tokenizer.tokenBytes(257)), "ö ");
});

Deno.test("text is prefixed again after each control token, and decoded once", () => {
  const json = byteFallbackJson(["▁", "a", "▁a"], ["▁ a"]);
  const tokenizer = build({ ...json, added_tokens: [addedToken(259, "<s>")] });
  assertEquals(pieces(tokenizer, "a<s>a a"), ["▁a", "<s>", "▁a", "▁a"]);
  assertEquals(tokenizer.decode(tokenizer.encode("a a")), "a a");
  assertEquals(tokenizer.decode(tokenizer.encode("  a")), "  a");
});

Deno.test("a finder reports texts with where they begin", () => {
  const finder = new AddedTokenFinder([{ id: 0, content: "--", special: true }]);
  const found: unknown[] = [];
  finder.split("a--bc--", (token) => found.push(token.content), (text, start) => {
    found.push([text, start]);
  });
  assertEquals(found, [["a", 0], "--", ["bc", 3], "--"]);
});

Deno.test("tokens that end an answer are recognised by name if they are control tokens", () => {
  const ids = (contents: string[], special = true) =>
    endOfGenerationIds(contents.map((content, id) => ({ id, content, special })));
  assertEquals(ids(["<s>", "<|eot_id|>", "x", "<|im_end|>"]), [1, 3]);
  assertEquals(ids(["<|end|>"]), [0]);
  // In o200k_harmony it closes a message, not the answer.
  assertEquals(ids(["<|end|>", "<|return|>", "<|call|>"]), [1, 2]);
  assertEquals(ids(["<|end|>", "<|return|>"]), [0, 1]);
  assertEquals(ids(["<|end|>", "<|call|>"]), [0, 1]);
  assertEquals(ids(["<|im_end|>"], false), []);
  assert(ids(["</s>"]).length === 0);
});

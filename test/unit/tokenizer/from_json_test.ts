import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import {
  addedToken,
  bpeModel,
  build,
  byteFallbackJson,
  byteLevelJson,
  characterJson,
  type Json,
  pieces,
  random,
  randomText,
} from "./support.ts";

const BOS = addedToken(10, "<s>"), EOS = addedToken(11, "</s>");

/** Returns a post-processor with a template of BOS, the text and EOS. */
function template(...pieces: ("<s>" | "text" | "</s>")[]): Json {
  return {
    type: "TemplateProcessing",
    single: pieces.map((piece) =>
      piece === "text"
        ? { Sequence: { id: "A", type_id: 0 } }
        : { SpecialToken: { id: piece, type_id: 0 } }
    ),
    special_tokens: {
      "<s>": { id: "<s>", ids: [10], tokens: ["<s>"] },
      "</s>": { id: "</s>", ids: [11], tokens: ["</s>"] },
    },
  };
}

function withTemplate(post_processor: Json): Json {
  return characterJson("ab", { added_tokens: [BOS, EOS], post_processor });
}

Deno.test("the template adds tokens around a text unless addSpecial is false", () => {
  const tokenizer = build(withTemplate(template("<s>", "text", "</s>")));
  assertEquals([...tokenizer.encode("ab")], [10, 1, 2, 11]);
  assertEquals([...tokenizer.encode("")], [10, 11]);
  assertEquals([...tokenizer.encode("ab", { addSpecial: false })], [1, 2]);
  assertEquals([tokenizer.bosId, tokenizer.eosIds], [10, [11]]);
  assertEquals([tokenizer.addBos, tokenizer.addEos], [true, true]);
});

Deno.test("BOS with the id 0 is added to an empty text", () => {
  const json = { ...template("<s>", "text"), special_tokens: { "<s>": { id: "<s>", ids: [0] } } };
  const tokenizer = build({ model: bpeModel(["<s>", "a"], []), post_processor: json });
  assertEquals([...tokenizer.encode("")], [0]);
  assertEquals([...tokenizer.encode("a")], [0, 1]);
  assertEquals(build({ model: bpeModel(["<s>"], []) }, { bos_token: "<s>" }).bosId, 0);
});

Deno.test("a word of any length has the same ids when it occurs again", () => {
  const tokenizer = build(byteLevelJson(["aa"], ["a a"]));
  for (const unit of ["a", "ab", "é", "😀"]) {
    for (let count = 1; count < 80; count++) {
      const word = unit.repeat(count);
      const ids = [...tokenizer.encode(word)];
      assertEquals([...tokenizer.encode(word)], ids);
      assertEquals(tokenizer.decode(ids), word);
    }
  }
});

Deno.test("no BOS is added to a text that begins with BOS", () => {
  const tokenizer = build(withTemplate(template("<s>", "text")));
  assertEquals([...tokenizer.encode("<s>")], [10]);
  assertEquals([...tokenizer.encode("<s>a")], [10, 1]);
  assertEquals([...tokenizer.encode("<s><s>a")], [10, 10, 1]);
  assertEquals([...tokenizer.encode("a<s>")], [10, 1, 10]);
  const both = build(withTemplate(template("<s>", "</s>", "text")));
  assertEquals([...both.encode("<s>a")], [11, 10, 1]);
});

Deno.test("processors of a sequence nest; ByteLevel adds nothing", () => {
  const processors = [{ type: "ByteLevel" }, template("<s>", "text"), template("text", "</s>")];
  const tokenizer = build(withTemplate({ type: "Sequence", processors }));
  assertEquals([...tokenizer.encode("a")], [10, 1, 11]);
  const nested = (...processors: Json[]) => [
    ...build(withTemplate({ type: "Sequence", processors })).encode("a"),
  ];
  assertEquals(nested(template("<s>", "text"), template("</s>", "text")), [11, 10, 1]);
  assertEquals(nested(template("text", "<s>"), template("text", "</s>")), [1, 10, 11]);
});

Deno.test("without a config, the first token before a text is BOS, the first after it EOS", () => {
  const before = build(withTemplate(template("<s>", "</s>", "text")));
  assertEquals([before.bosId, before.eosIds], [10, []]);
  const after = build(withTemplate(template("text", "</s>", "<s>")));
  assertEquals([after.bosId, after.eosIds, after.addEos], [undefined, [11], true]);
  const named = build(withTemplate(template("<s>", "text", "</s>")), { bos_token: "<s>" });
  assertEquals([named.eosIds, named.addBos, named.addEos], [[], true, false]);
});

Deno.test("EOS of the config comes before the other tokens that end an answer", () => {
  const json = characterJson("ab", { added_tokens: [addedToken(9, "<|im_end|>"), BOS, EOS] });
  assertEquals(build(json, { eos_token: "</s>" }).eosIds, [11, 9]);
  assertEquals(build(json, { eos_token: "<|im_end|>" }).eosIds, [9]);
  assertEquals(build(json).eosIds, [9]);
});

Deno.test("pairs of texts are joined as BERT and RoBERTa do", () => {
  const pair = (type: string) => {
    const json = withTemplate({ type, cls: ["<s>", 10], sep: ["</s>", 11] });
    return build(json).pair.map(({ ids, type }) => [ids, type]);
  };
  assertEquals(pair("BertProcessing"), [
    [[10], 0],
    ["first", 0],
    [[11], 0],
    ["second", 1],
    [[11], 1],
  ]);
  assertEquals(pair("RobertaProcessing"), [
    [[10], 0],
    ["first", 0],
    [[11, 11], 0],
    ["second", 0],
    [[11], 0],
  ]);
});

Deno.test("a template joins pairs of texts, unless it lacks one or swaps them", () => {
  const special = (id: string, type_id?: number) => ({ SpecialToken: { id, type_id } });
  const text = (id: string, type_id?: number) => ({ Sequence: { id, type_id } });
  const pair = (pieces: unknown, inSequence = false) => {
    const processor = { ...template("<s>", "text"), pair: pieces };
    const sequence = { type: "Sequence", processors: [{ type: "ByteLevel" }, processor] };
    return build(withTemplate(inSequence ? sequence : processor)).pair
      .map(({ ids, type }): unknown[] => [ids, type]);
  };
  const pieces = [special("<s>"), text("A"), special("</s>", 2), text("B", 1), special("</s>", 3)];
  const expected = [[[10], 0], ["first", 0], [[11], 2], ["second", 1], [[11], 3]];
  assertEquals(pair(pieces), expected);
  assertEquals(pair(pieces, true), expected);
  const plain = [[[10], 0], ["first", 0], [[], 0], ["second", 0], [[], 0]];
  assertEquals(pair(undefined), plain);
  assertEquals(pair([text("B"), text("A")]), plain);
  assertEquals(pair([text("A"), special("</s>")]), plain);
});

Deno.test("of equal sums of unigram scores, the longest first piece wins", () => {
  const vocab = [["<unk>", 0], ["a", -1], ["b", -1], ["ab", -2], ["bb", -2]];
  const tokenizer = build({ model: { type: "Unigram", unk_id: 0, vocab } });
  assertEquals(pieces(tokenizer, "abb"), ["a", "bb"]);
  assertEquals(pieces(tokenizer, "ab"), ["ab"]);
});

Deno.test("a unigram model prefers pieces of any score to unknown characters", () => {
  const unigram = (vocab: [string, number][], rest: Json = {}, added_tokens: Json[] = []) =>
    build({ model: { type: "Unigram", vocab, ...rest }, added_tokens });
  const encode = (tokenizer: ReturnType<typeof build>, text: string) => [
    ...tokenizer.encode(text, { parseSpecial: false }),
  ];
  const low = unigram([["a", -1], ["ab", -15], ["?", -2]], { unk_id: 2 });
  assertEquals(encode(low, "ab"), [1]);
  assertEquals(encode(low, "abxyaz"), [1, 2, 0, 2]);
  // Without an unknown token, unknown characters are dropped, longer ones than any piece too.
  assertEquals(encode(unigram([["a", -1]]), "a😀ba😀"), [0, 0]);
  // A control token is no piece: its character is unknown.
  const control = unigram([["?", 0], ["a", -1], ["b", -1]], { unk_id: 0 }, [addedToken(1, "a")]);
  assertEquals(encode(control, "ab"), [0, 2]);
});

Deno.test("WordPiece spells words up to a length by the longest pieces", () => {
  const wordPiece = (pieces: string[], rest: Json = {}, added_tokens: Json[] = []) =>
    build({
      model: { type: "WordPiece", vocab: bpeModel(pieces, []).vocab, unk_token: "?", ...rest },
      added_tokens,
    });
  const ids = (tokenizer: ReturnType<typeof build>, text: string) => [
    ...tokenizer.encode(text, { parseSpecial: false }),
  ];
  const pieces = ["a", "##a", "##aa", "😀", "##😀", "?"];
  const tokenizer = wordPiece(pieces);
  assertEquals(ids(tokenizer, "aaaa"), [0, 2, 1]);
  assertEquals(ids(tokenizer, "ab"), [5]);
  assertEquals(ids(tokenizer, "a".repeat(100)).length, 51);
  assertEquals(ids(tokenizer, "a".repeat(101)), [5]);
  const short = wordPiece(pieces, { max_input_chars_per_word: 3 });
  assertEquals(ids(short, "aaa"), [0, 2]);
  assertEquals(ids(short, "aaaa"), [5]);
  assertEquals(ids(short, "😀😀😀"), [3, 4, 4]);
  assertEquals(ids(short, "😀😀😀😀"), [5]);
  const prefixed = wordPiece(["?", "a", "@b"], { continuing_subword_prefix: "@" });
  assertEquals(ids(prefixed, "ab"), [1, 2]);
  assertEquals(ids(wordPiece(["?", "abcd", "a"]), "abcd"), [1]);
  const control = wordPiece(["?", "a", "##b", "ab"], {}, [addedToken(3, "ab")]);
  assertEquals(ids(control, "ab"), [1, 2]);
  assertEquals([...wordPiece(["[UNK]", "a"], { unk_token: null }).encode("b")], [0]);
});

Deno.test("pieces that are searched at every character have at most 1024", () => {
  const models = (piece: string): Json[] => [
    { type: "Unigram", vocab: [[piece, 0]] },
    { type: "WordPiece", vocab: { [piece]: 0 }, unk_token: piece },
  ];
  for (const model of models("x".repeat(1024))) {
    assertEquals([...build({ model }).encode("x".repeat(1024))].length, 1);
  }
  for (const model of models("x".repeat(1025))) {
    const error = assertThrows(
      () => build({ model }),
      ForgeError,
      "model.vocab has a token of 1025 characters; at most 1024 are supported",
    );
    assertEquals(error.code, "unsupported");
  }
});

Deno.test("tokenizer_config.json names BOS and EOS and sets if they are added", () => {
  const json = withTemplate(template("<s>", "text"));
  const names = { bos_token: "<s>", eos_token: { content: "</s>" } };
  const ids = (config: Json) => [...build(json, config).encode("a")];
  assertEquals(ids(names), [10, 1]);
  assertEquals(ids({ ...names, add_bos_token: true }), [10, 1]);
  assertEquals(ids({ ...names, add_bos_token: false }), [1]);
  assertEquals(ids({ ...names, add_eos_token: true }), [10, 1, 11]);
  assertEquals(ids({ ...names, bos_token: null }), [10, 1]);
  const other = withTemplate(template("</s>", "text", "<s>"));
  const added = { ...names, add_bos_token: true, add_eos_token: true };
  assertEquals([...build(other, added).encode("a")], [10, 11, 1, 10, 11]);
  const none = { ...names, add_bos_token: false, add_eos_token: false };
  assertEquals([...build(withTemplate(template("<s>", "text", "</s>")), none).encode("a")], [1]);
  const tokenizer = build(json, { ...names, add_bos_token: false });
  assertEquals([tokenizer.bosId, tokenizer.addBos, tokenizer.eosIds], [10, false, [11]]);
  const without = build(characterJson("ab"), { bos_token: null, add_bos_token: true });
  assertEquals([without.bosId, without.addBos, without.eosIds], [undefined, false, []]);
});

Deno.test("a model without a type is recognised by its fields", () => {
  const description = (model: Json) => build({ model }).description;
  assertEquals(description({ vocab: [["a", 0]] }), "Unigram, 1 tokens");
  const wordPiece = { vocab: { "[UNK]": 0 }, unk_token: "[UNK]", max_input_chars_per_word: 9 };
  assertEquals(description(wordPiece), "WordPiece, 1 tokens");
});

Deno.test("descriptions name the kind and the size", () => {
  assertEquals(build(byteLevelJson(["ab"], [])).description, "byte-level BPE, 257 tokens");
  assertEquals(build(byteFallbackJson([], [])).description, "BPE with byte fallback, 256 tokens");
  assertEquals(build(characterJson("ab")).description, "BPE, 3 tokens");
});

Deno.test("decoding gives back every text of a byte-level tokenizer", () => {
  const tokenizer = build(byteLevelJson(["th", "the", "Ġt", "Ġthe"], ["t h", "th e", "Ġ t"]));
  const next = random(31);
  for (let i = 0; i < 1000; i++) {
    const text = randomText(next, 100);
    assertEquals(tokenizer.decode(tokenizer.encode(text)), text);
  }
});

Deno.test("the bytes of a text are those of UTF-8", () => {
  const bytes = build(byteLevelJson([], [])), fallback = build(byteFallbackJson([], []));
  const { vocab } = byteLevelJson([], []).model as { vocab: Record<string, number> };
  const next = Object.entries(vocab).map(([text, id]) => [text, id + 1]);
  const others = build({
    ...byteLevelJson([], []),
    model: bpeModel([], [], { vocab: { x1: 0, ...Object.fromEntries(next) } }),
  });
  assertEquals([...others.encode("\0a\xff")], [1, 0x62, 0xc4, 0xc0]);
  const bounds = [0, 0x7f, 0x80, 0x7ff, 0x800, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x3ffff, 0x10ffff];
  for (const code of bounds) {
    const character = String.fromCodePoint(code), expected = new TextEncoder().encode(character);
    assertEquals([...bytes.encode(character)], [...expected], code.toString(16));
    assertEquals([...fallback.encode(character)].slice("▁".length * 3), [...expected]);
  }
});

Deno.test("cutting at words changes nothing if no merge crosses them", () => {
  const next = random(33);
  const tokens = ["▁", "a", "b", "ab", "▁a", "▁ab", "▁▁", "ba"];
  const merges = ["a b", "▁ a", "▁a b", "▁ ▁", "b a"];
  const cut = build(byteFallbackJson(tokens, merges));
  // A merge across words disables cutting, even if its characters are not in the texts.
  const whole = build(byteFallbackJson([...tokens, "x", "x▁"], [...merges, "x ▁"]));
  for (let i = 0; i < 500; i++) {
    const length = Math.floor(next() * 40);
    const text = Array.from({ length }, () => "ab é "[Math.floor(next() * 5)]).join("");
    assertEquals([...cut.encode(text)], [...whole.encode(text)], JSON.stringify(text));
  }
  assertEquals(pieces(whole, "ax b"), ["▁a", "x▁", "b"]);
});

Deno.test("text is not cut at words if pieces or unknown characters may cross them", () => {
  const { model, ...rest } = byteFallbackJson(["▁", "a", "b", "▁a▁b"], []);
  const whole = { ...rest, model: Object.assign({}, model, { ignore_merges: true }) };
  assertEquals(pieces(build(whole), "a b"), ["▁a▁b"]);
  const unknown = bpeModel(["<unk>", "a"], [], { unk_token: "<unk>", fuse_unk: true });
  assertEquals(pieces(build({ ...rest, model: unknown }), "é é"), ["<unk>"]);
  // "âĸģ" is "▁" in the byte alphabet, in which a piece "▁" has no meaning.
  const json = byteLevelJson(["aâ", "▁"], ["a â"]);
  const bytes = {
    ...json,
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, use_regex: false },
  };
  assertEquals(pieces(build(bytes), "a▁"), ["aâ", "ĸ", "ģ"]);
});

Deno.test("unknown characters share a token only if nothing stands between them", () => {
  const model = bpeModel(["<unk>", "a", "<0xC3>", "<0xA9>"], [], {
    unk_token: "<unk>",
    fuse_unk: true,
    byte_fallback: true,
  });
  assertEquals([...build({ model }).encode("ßßéßaßß")], [0, 2, 3, 0, 1, 0]);
});

Deno.test("vocabularies may skip ids, and added tokens may repeat pieces", () => {
  const json = { model: bpeModel(["a", "b"], []) };
  const tokenizer = build({
    ...json,
    added_tokens: [addedToken(5, "<x>"), addedToken(1, "b", { special: false }), addedToken(9, "")],
  });
  assertEquals(tokenizer.vocabSize, 6);
  assertEquals(tokenizer.tokenText(3), "");
  assertEquals(tokenizer.decode([0, 3, 1]), "a b");
  assertEquals([...tokenizer.encode("a<x>b")], [0, 5, 1]);
  // At most 65536 ids may be unused, and three for each token.
  const sparse = (id: number) => build({ model: bpeModel([], [], { vocab: { a: id } }) });
  assertEquals(sparse(65540).vocabSize, 65541);
  assertThrows(() => sparse(65541), ForgeError, `the id of "a" is 65541; expected a number from 0`);
  const dropout = build({ model: bpeModel(["a"], [], { dropout: 0 }) });
  assertEquals([...dropout.encode("a")], [0]);
  // A token of the model keeps its id, and an added token may be listed twice.
  const added_tokens = [addedToken(7, "b"), addedToken(5, "<x>"), addedToken(5, "<x>")];
  assertEquals([...build(characterJson("ab", { added_tokens })).encode("b<x>")], [2, 5]);
});

Deno.test("a piece without an id in front does not begin a text", () => {
  const tokenizer = build(characterJson("▁a", {
    decoder: { type: "Metaspace", replacement: "▁" },
    added_tokens: [addedToken(5, "<x>")],
  }));
  assertEquals(tokenizer.decode([4, 1, 2]), "a");
  assertEquals(tokenizer.decode([5, 1, 2]), "a");
});

Deno.test("unsupported models are rejected by name", () => {
  for (const type of ["WordLevel", "Other"]) {
    const error = assertThrows(
      () => build({ model: { type, vocab: {} } }),
      ForgeError,
      `tokenizer.json: model.type "${type}" is not supported; supported are BPE, Unigram, WordPiece`,
    );
    assertEquals(error.code, "unsupported");
  }
  const unsupported: [Json, string][] = [
    [{ dropout: 0.1 }, "model.dropout is 0.1; supported is null or 0"],
    [{ end_of_word_suffix: "</w>" }, `model.end_of_word_suffix is "</w>"`],
    [{ continuing_subword_prefix: "##" }, `model.continuing_subword_prefix is "##"`],
  ];
  for (const [rest, message] of unsupported) {
    const json = { model: bpeModel(["a"], [], rest) };
    assertEquals(assertThrows(() => build(json), ForgeError, message).code, "unsupported");
  }
});

Deno.test("a template with the text twice is not supported", () => {
  const json = withTemplate(template("<s>", "text", "text"));
  assertEquals(assertThrows(() => build(json), ForgeError, "text twice").code, "unsupported");
});

Deno.test("inconsistent files are bad models", () => {
  const cases: [Json, string][] = [
    [{}, "tokenizer.json: model is missing"],
    [{ model: { type: "BPE", merges: [] } }, "tokenizer.json: model.vocab is missing"],
    [{ model: { type: "BPE", vocab: {} } }, "tokenizer.json: model.merges is missing"],
    [{ model: bpeModel(["a"], ["a b"]) }, `merges[0] names the token "b"`],
    [{ model: bpeModel(["a", "ab"], ["a b"]) }, `merges[0] names the token "b"`],
    [{ model: bpeModel(["b", "ab"], ["a b"]) }, `merges[0] names the token "a"`],
    [{ model: bpeModel(["a", "b"], ["a b"]) }, `merges[0] names the token "ab"`],
    [{ model: { type: "Unigram", vocab: {} } }, "model.vocab is an object; expected an array"],
    [{ model: { type: "Unigram", vocab: [["a", "x"]] } }, "vocab[0] is not a piece and its score"],
    [{ model: { type: "Unigram", vocab: [["a", 0]], unk_id: 1 } }, "unk_id is 1; expected an id"],
    [{ model: { type: "WordPiece", vocab: { a: 0 } } }, "unk_token is missing"],
    [{ model: bpeModel([], [], { vocab: { a: 0, b: 0 } }) }, `"a" and "b" have the same id 0`],
    [{ model: bpeModel([], [], { vocab: { a: -1 } }) }, `the id of "a" is -1`],
    [{ model: bpeModel([], [], { vocab: { a: 0.5 } }) }, `the id of "a" is 0.5`],
    [{ model: bpeModel([], [], { vocab: { a: "x" } }) }, `the id of "a" is x`],
    [{ model: bpeModel([], [], { vocab: { a: 1e7 } }) }, `the id of "a" is 10000000`],
    [{ model: bpeModel([], [], { vocab: { a: null } }) }, `the id of "a" is not a number`],
    [{ model: bpeModel(["a"], [], { unk_token: "?" }) }, `model.unk_token is "?"`],
    [{ ...characterJson("a"), added_tokens: [addedToken(1, "x")] }, "have the same id 1"],
    [{ ...characterJson("a"), added_tokens: [addedToken(1e9, "x")] }, "the id of"],
    [{ ...characterJson("a"), added_tokens: {} }, "added_tokens is an object"],
    [{ ...characterJson("a"), post_processor: template("<s>", "text") }, "adds the id 10"],
    [
      {
        ...characterJson("ab"),
        post_processor: { type: "BertProcessing", cls: ["a", 2], sep: ["x", 3] },
      },
      "adds the id 3; the vocabulary ends at 2",
    ],
    [
      withTemplate({
        ...template("text"),
        special_tokens: { x: { ids: [12] } },
        pair: [{ Sequence: { id: "A" } }, { Sequence: { id: "B" } }, { SpecialToken: { id: "x" } }],
      }),
      "adds the id 12; the vocabulary ends at 11",
    ],
    [withTemplate({ type: "TemplateProcessing", single: [] }), "leaves out the text"],
    ...[-1, 0.5, "1"].flatMap((id): [Json, string][] => [
      [
        withTemplate({ ...template("<s>", "text"), special_tokens: { "<s>": { ids: [id] } } }),
        `"<s>" has an id that is not a whole number`,
      ],
      [
        withTemplate({ type: "BertProcessing", cls: ["<s>", 10], sep: ["</s>", id] }),
        "expected a token and its id",
      ],
    ]),
    [withTemplate({ ...template("<s>", "text"), special_tokens: {} }), `has no "<s>"`],
  ];
  for (const [json, message] of cases) {
    const error = assertThrows(() => build(json), ForgeError, message);
    assertEquals(error.code, "bad_model");
    assert(!error.message.includes("\n"));
  }
  assertThrows(
    () => build(characterJson("a"), { bos_token: "<s>" }),
    ForgeError,
    `tokenizer_config.json next to tokenizer.json: bos_token is "<s>", which is not in the vocabulary`,
  );
  for (const json of [null, 1, "x", [], undefined]) {
    assertThrows(() => build(json as unknown as Json), ForgeError, "expected an object");
  }
});

Deno.test("a tokenizer.json with any value replaced loads or throws a ForgeError", () => {
  const next = random(41);
  const junk = [null, -1, 1e9, 0.5, "", "x", true, [], {}, [[]], ["a b c"], { a: 1 }, "\ud800"];
  let loaded = 0;
  for (let i = 0; i < 2000; i++) {
    const json = structuredClone(
      next() < 0.5 ? withTemplate(template("<s>", "text")) : {
        ...byteFallbackJson(["▁", "a", "▁a"], ["▁ a"]),
        pre_tokenizer: {
          type: "Sequence",
          pretokenizers: [
            { type: "Split", pattern: { Regex: "\\s+|a" }, behavior: "Isolated", invert: false },
            { type: "Metaspace", replacement: "▁", prepend_scheme: "first", split: true },
          ],
        },
        added_tokens: [addedToken(300, "<s>")],
      },
    );
    replaceSomewhere(json, junk[Math.floor(next() * junk.length)], next);
    try {
      const tokenizer = build(json);
      loaded++;
      tokenizer.decode(tokenizer.encode("a <s>b é\ud800"));
    } catch (error) {
      if (!(error instanceof ForgeError)) throw error;
      assert(!error.message.includes("\n"), error.message);
    }
  }
  assert(loaded > 100 && loaded < 1900, `${loaded} of 2000 loaded`);
});

/** Replaces a value at a random place in an object. */
function replaceSomewhere(json: Json, value: unknown, next: () => number): void {
  let at: Record<string, unknown> = json;
  for (;;) {
    const keys = Object.keys(at);
    const key = keys[Math.floor(next() * keys.length)];
    if (key === undefined) return;
    const child = at[key];
    if (typeof child === "object" && child !== null && next() < 0.8) {
      at = child as Record<string, unknown>;
    } else {
      at[key] = value;
      return;
    }
  }
}

import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { byteTokenText } from "../../../src/tokenizer/models/alphabet.ts";
import { byteToChar } from "../../../src/tokenizer/byte_level.ts";
import {
  buildPreTokenizer,
  ggufPreTokenizer,
  ggufPreTokenizers,
  PATTERNS,
} from "../../../src/tokenizer/gguf/pre_tokenizers.ts";
import { translateRegex } from "../../../src/tokenizer/regex/translate.ts";
import { tokenizerFromGguf } from "../../../src/tokenizer/tokenizer.ts";
import { pieces, random, randomText } from "./support.ts";

const NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, BYTE = 6;

type Metadata = Record<string, unknown>;

function build(entries: Metadata, warn?: (message: string) => void) {
  const keyed = Object.entries(entries).map(([key, value]): [string, unknown] => [
    key.includes(".") ? key : `tokenizer.ggml.${key}`,
    value,
  ]);
  return tokenizerFromGguf(new Map(keyed), "x.gguf", warn);
}

/** Returns byte-level BPE: ids 0 to 255 are the bytes, followed by `tokens` of the given types. */
function bytePair(tokens: [string, number][], merges: string[], rest: Metadata = {}): Metadata {
  const bytes = Array.from({ length: 256 }, (_, byte) => byteToChar(byte));
  return {
    model: "gpt2",
    pre: "gpt-2",
    tokens: [...bytes, ...tokens.map(([text]) => text)],
    token_type: Int32Array.from([...bytes.map(() => NORMAL), ...tokens.map(([, type]) => type)]),
    merges,
    ...rest,
  };
}

/** Returns SentencePiece BPE: <unk>, <s>, </s>, bytes (ids 3 to 258), `tokens` with scores. */
function sentencePiece(tokens: [string, number, number?][], rest: Metadata = {}): Metadata {
  const start: [string, number, number?][] = [
    ["<unk>", 0, UNKNOWN],
    ["<s>", 0, CONTROL],
    ["</s>", 0, CONTROL],
    ...Array.from(
      { length: 256 },
      (_, byte): [string, number, number] => [byteTokenText(byte), 0, BYTE],
    ),
  ];
  const all = [...start, ...tokens];
  return {
    model: "llama",
    tokens: all.map(([text]) => text),
    scores: Float32Array.from(all, ([, score]) => score),
    token_type: Int32Array.from(all, ([, , type]) => type ?? NORMAL),
    ...rest,
  };
}

const WORDS: [string, number, number?][] = [["▁", -9], ["a", -9], ["b", -9], ["▁a", -1], ["ab", 0]];

Deno.test("SentencePiece joins the neighbours of the highest score first", () => {
  const tokenizer = build(sentencePiece(WORDS));
  assertEquals(tokenizer.description, "SentencePiece BPE, 264 tokens");
  assertEquals(pieces(tokenizer, "ab"), ["▁", "ab"]);
  assertEquals(pieces(tokenizer, "aab"), ["▁a", "ab"]);
  assertEquals(pieces(tokenizer, "a a"), ["▁a", "▁a"]);
  assertEquals([...tokenizer.encode("a")], [1, 262]);
  assertEquals([tokenizer.bosId, tokenizer.eosIds], [1, [2]]);
  assertEquals([0, 1, 3].map((id) => tokenizer.isSpecial(id)), [true, true, false]);
  assertEquals(tokenizer.decode(tokenizer.encode(" a b")), " a b");
});

Deno.test("SentencePiece falls back to bytes, and then to the unknown token", () => {
  assertEquals(pieces(build(sentencePiece(WORDS)), "aé"), ["▁a", "<0xC3>", "<0xA9>"]);
  const tokens: [string, number, number?][] = [["<unk>", 0, UNKNOWN], ["▁", -1], ["a", -1]];
  const bare = build({
    model: "llama",
    tokens: tokens.map(([text]) => text),
    scores: new Float32Array(3),
    token_type: Int32Array.from(tokens, ([, , type]) => type ?? NORMAL),
    add_bos_token: false,
  });
  assertEquals([...bare.encode("aéßa")], [1, 2, 0, 2]);
  // Without a piece "▁", spaces are unknown too, and share the token of their neighbours.
  const unmarked = build({
    model: "llama",
    tokens: ["<unk>", "a"],
    scores: new Float32Array(2),
    token_type: Int32Array.of(UNKNOWN, NORMAL),
    add_bos_token: false,
  });
  assertEquals([...unmarked.encode("é éa")], [0, 1]);
  // The default id of EOS is 2, which this file lacks.
  assertEquals([unmarked.bosId, unmarked.eosIds], [1, []]);
  const first = build({
    model: "llama",
    tokens: ["ab", "a", "b", "aba"],
    scores: new Float32Array(4),
    add_bos_token: false,
    add_space_prefix: false,
  });
  assertEquals([...first.encode("abab")], [3, 2]);
});

Deno.test("SentencePiece joins characters that are no pieces themselves", () => {
  const tokenizer = build(sentencePiece([["▁", -1], ["éé", 0]]));
  assertEquals(pieces(tokenizer, "ééé"), ["▁", "éé", "<0xC3>", "<0xA9>"]);
  const long = "é".repeat(400);
  assertEquals(tokenizer.encode(long, { addSpecial: false, maxTokens: 201 }).length, 201);
});

Deno.test("arrays of a GGUF file may have any type of numbers, and more entries than tokens", () => {
  const file = sentencePiece(WORDS);
  const scores = [...file["scores"] as Float32Array, 9];
  const types = [...file["token_type"] as Int32Array, CONTROL];
  const expected = [...build(file).encode("aab é")];
  for (const type of [Float32Array, Float64Array, Int8Array, Int16Array, Int32Array]) {
    const tokenizer = build({
      ...file,
      scores: type.from(scores),
      token_type: type.from(types),
    });
    assertEquals([...tokenizer.encode("aab é")], expected, type.name);
  }
  for (const type of [Uint8Array, Uint16Array, Uint32Array]) {
    assertEquals([...build({ ...file, token_type: type.from(types) }).encode("aab é")], expected);
  }
});

Deno.test("a file without types of tokens has byte tokens by their names", () => {
  const typed = sentencePiece(
    ["▁", "<", "0", "x", "4", "1", ">", "<0", "<0x", "<0x4", "<0x41"].map((piece) => [piece, 0]),
  );
  const { token_type: _, ...file } = typed;
  for (const tokenizer of [build(file), build(typed)]) {
    const ids = tokenizer.encode("<0x41>é", { addSpecial: false });
    assertEquals(tokenizer.decode(ids), "<0x41>é");
    assertEquals(ids.includes(3 + 0x41), false);
  }
});

/** Returns a unigram model: <pad>, </s>, <unk>, "▁", "a", "▁x" (user-defined), "x", "xa". */
function unigram(rest: Metadata = {}): Metadata {
  return {
    model: "t5",
    tokens: ["<pad>", "</s>", "<unk>", "▁", "a", "▁x", "x", "xa"],
    scores: Float32Array.of(0, 0, 0, -2, -3, -50, -3, -60),
    token_type: Int32Array.of(
      CONTROL,
      CONTROL,
      UNKNOWN,
      NORMAL,
      NORMAL,
      USER_DEFINED,
      NORMAL,
      NORMAL,
    ),
    ...rest,
  };
}

Deno.test("a unigram model adds EOS, and spaces as the file says", () => {
  const ids = (text: string, rest: Metadata = {}) => [...build(unigram(rest)).encode(text)];
  assertEquals(ids("a éß  a"), [4, 3, 2, 3, 3, 4, 1]);
  assertEquals(ids("a", { add_eos_token: false }), [4]);
  assertEquals(ids("a", { precompiled_charsmap: new Uint8Array(0) }), [4, 1]);
  const adds = { add_space_prefix: true }, merges = { remove_extra_whitespaces: true };
  assertEquals(ids(" a  a", adds), [3, 3, 4, 3, 3, 4, 1]);
  assertEquals(ids("   ", adds), [3, 3, 3, 1]);
  assertEquals(ids(" a  a ", merges), [3, 4, 3, 4, 1]);
  assertEquals(ids("  ", merges), [1]);
  // The user-defined token has a score of 0 in text that gets a space.
  assertEquals(ids("x", adds), [5, 1]);
  assertEquals(ids("xa"), [6, 4, 1]);
  for (const [rest, text] of [[{}, " a a"], [adds, "a a"], [merges, "a a"]] as const) {
    assertEquals(build(unigram(rest)).decode([3, 4, 3, 4, 1]), text);
  }
  assertEquals(build(unigram()).eosIds, [1]);
  // An unknown character costs 10 more than the worst piece; the token of a control is no piece.
  const worst = unigram({
    tokens: ["<pad>", "</s>", "<unk>", "▁", "ab", "cd", "bcd", "x"],
    scores: Float32Array.of(-99, 0, 0, -2, -15, -15, -1, -1),
    token_type: Int32Array.of(CONTROL, CONTROL, UNKNOWN, ...Array(5).fill(NORMAL)),
  });
  assertEquals([...build(worst).encode("abcd")], [2, 6, 1]);
  const long = unigram({
    tokens: ["<pad>", "</s>", "<unk>", "▁", "a", "b", "c", "d".repeat(1025)],
  });
  assertThrows(() => build(long), ForgeError, "tokens has a token of 1025 characters");
});

/** Returns a WordPiece model with [UNK], [CLS] and [SEP] at the ids 100 to 102. */
function wordPiece(rest: Metadata = {}): Metadata {
  const words = ["[UNK]", "[CLS]", "[SEP]", "▁a", "a", "▁e", "▁É", "▁A"];
  const unused = Array.from({ length: 100 }, (_, id) => `[unused${id}]`);
  return {
    model: "bert",
    tokens: [...unused, ...words],
    token_type: Int32Array.from([
      ...unused.map(() => NORMAL),
      ...words.map((word) => word.startsWith("[") ? CONTROL : NORMAL),
    ]),
    ...rest,
  };
}

Deno.test("a WordPiece model lowercases, and puts [CLS] and [SEP] around, unless the file forbids", () => {
  const ids = (text: string, rest: Metadata = {}) => [...build(wordPiece(rest)).encode(text)];
  assertEquals(ids("É a中"), [101, 105, 103, 100, 102]);
  assertEquals(ids("É A", { "tokenizer.ggml.normalizer.lowercase": false }), [101, 106, 107, 102]);
  assertEquals(
    ids("É", {
      "tokenizer.ggml.normalizer.lowercase": false,
      "tokenizer.ggml.normalizer.strip_accents": true,
    }),
    [101, 100, 102],
  );
  assertEquals(ids("a".repeat(100)).length, 102);
  assertEquals(ids("a".repeat(101)), [101, 100, 102]);
  assertEquals(ids("a", { add_bos_token: false, add_sep_token: false }), [103]);
  assertEquals(ids("a", { add_sep_token: false, eos_token_id: 3, add_eos_token: true }), [
    101,
    103,
    3,
  ]);
  assertEquals(ids("a", { eos_token_id: 102, add_eos_token: true }), [101, 103, 102]);
  const small = { model: "bert", tokens: ["[UNK]", "▁a"], unknown_token_id: 0 };
  assertEquals([...build({ ...small, add_sep_token: false }).encode("ab a")], [0, 1]);
});

Deno.test("pairs of texts have the types and separators of their model", () => {
  const pair = (metadata: Metadata) =>
    build(metadata).pair.map(({ ids, type }): unknown[] => [ids, type]);
  assertEquals(pair(wordPiece({ "general.architecture": "bert" })), [
    [[101], 0],
    ["first", 0],
    [[102], 0],
    ["second", 1],
    [[102], 1],
  ]);
  for (const [architecture, middle] of [["bert", [1, 1]], ["jina-bert-v3", [1, 1]], ["t5", [1]]]) {
    assertEquals(pair(unigram({ "general.architecture": architecture })), [
      [[], 0],
      ["first", 0],
      [middle, 0],
      ["second", 0],
      [[1], 0],
    ]);
  }
});

Deno.test("control tokens of Phi-3 take the spaces after them", () => {
  const tokens: [string, number][] = [["<|user|>", CONTROL], ["<s>", CONTROL]];
  const ids = (name: string, text: string) => [
    ...build(bytePair(tokens, [], { "general.name": name })).encode(text),
  ];
  for (const name of ["Phi3 mini", "phi-3-mini"]) {
    assertEquals(ids(name, "<|user|> \na"), [256, 0x61]);
    assertEquals(ids(name, "<s> a"), [257, 0x20, 0x61]);
  }
  assertEquals(ids("Phi-2", "<|user|> a"), [256, 0x20, 0x61]);
});

Deno.test("SentencePiece pieces may reach across words", () => {
  const across = build(sentencePiece([...WORDS, ["a▁", 5]]));
  assertEquals(pieces(across, "a b"), ["▁", "a▁", "b"]);
});

Deno.test("SentencePiece adds a space at the start unless the file disables it", () => {
  const tokenizer = build(sentencePiece(WORDS, { add_space_prefix: false }));
  assertEquals(pieces(tokenizer, "a a"), ["a", "▁a"]);
  assertEquals(tokenizer.decode(tokenizer.encode("a a")), "a a");
  assertEquals(tokenizer.decode(tokenizer.encode(" a")), " a");
});

Deno.test("text never becomes a control or byte token", () => {
  const tokenizer = build(
    sentencePiece([["▁", 0], ["<", 0], ["s", 0], [">", 0], ["s>", 0], ["<0", 0]]),
  );
  const ids = tokenizer.encode("<s><0x41>", { addSpecial: false, parseSpecial: false });
  assert(ids.every((id) => !tokenizer.isSpecial(id)));
  assertEquals(tokenizer.decode(ids), "<s><0x41>");
});

Deno.test("user-defined tokens are always cut out of text", () => {
  const tokenizer = build(bytePair([["<t> ", USER_DEFINED], ["<s>", CONTROL]], []));
  const ids = [...tokenizer.encode("a<t> <s>", { parseSpecial: false })];
  assertEquals(ids, [0x61, 256, 0x3c, 0x73, 0x3e]);
  assertEquals(tokenizer.decode([256, 257]), "<t> ");
  assertEquals([tokenizer.isSpecial(256), tokenizer.isSpecial(257)], [false, true]);
});

Deno.test("BOS and EOS are added as the file specifies, else by kind of model", () => {
  const specials: [string, number][] = [["<s>", CONTROL], ["</s>", CONTROL]];
  const ids = { bos_token_id: 256, eos_token_id: 257 };
  const encode = (rest: Metadata) => {
    const encoded = build(bytePair(specials, [], { ...ids, ...rest })).encode("");
    return [...encoded];
  };
  assertEquals(encode({}), []);
  assertEquals(encode({ pre: "llama-bpe" }), [256]);
  assertEquals(encode({ pre: "llama-bpe", add_bos_token: false }), []);
  assertEquals(encode({ add_bos_token: true, add_eos_token: true }), [256, 257]);
  assertEquals([...build(sentencePiece(WORDS)).encode("")], [1]);
  assertEquals([...build(sentencePiece(WORDS, { add_bos_token: false })).encode("")], []);
});

Deno.test("the file and well-known names determine the tokens that end an answer", () => {
  const tokens: [string, number][] = [
    ["</s>", CONTROL],
    ["<|eot_id|>", CONTROL],
    ["<|eom_id|>", CONTROL],
    ["<|im_end|>", NORMAL],
  ];
  const tokenizer = build(bytePair(tokens, [], {
    eos_token_id: 256,
    eot_token_id: 257n,
    eom_token_id: 258,
  }));
  assertEquals(tokenizer.eosIds, [256, 257, 258, 259]);
  assertEquals(tokenizer.isSpecial(259), true);
});

Deno.test("pre-tokenizers set the cuts and the look-up of whole words", () => {
  const digits = (pre: string) => pieces(build(bytePair([["12", 1]], ["1 2"], { pre })), "1212");
  assertEquals(digits("gpt-2"), ["12", "12"]);
  assertEquals(digits("qwen2"), ["1", "2", "1", "2"]);
  assertEquals(digits("llama-bpe"), ["12", "1", "2"]);
  const word = (pre: string) => pieces(build(bytePair([["ab", 1]], [], { pre })), "ab");
  assertEquals(word("dbrx"), ["a", "b"]);
  assertEquals(word("llama-bpe"), ["ab"]);
});

Deno.test("decoding gives back random texts with every pre-tokenizer of the table", () => {
  const names = assertThrows(() => build(bytePair([], [], { pre: "?" })), ForgeError).message
    .replace(/.*known are /, "").split(", ");
  assert(names.length > 50);
  const ofCharacters = new Set(["gemma4", "granite-embed-multi-311m", "sarvam-moe", "whitespace"]);
  const next = random(51);
  for (const name of names.filter((name) => !ofCharacters.has(name))) {
    const tokenizer = build(bytePair([], [], { pre: name }));
    for (let i = 0; i < 20; i++) {
      const text = randomText(next, 60);
      const back = tokenizer.decode(tokenizer.encode(text));
      assert([text, text.normalize("NFC"), text.normalize("NFKC")].includes(back), name);
    }
  }
});

Deno.test("pre-tokenizers take linear time for any text, and lose none", () => {
  // Quadratic time would take minutes.
  const length = 100_000;
  const texts = [
    ..."aA !\n7中é\u0301\u00a0",
    "\n ",
    "\r\n",
    "A ",
    "e\u0301",
    "IMG",
  ].flatMap((unit) => {
    const text = unit.repeat(length / unit.length);
    return [text, `${text}x`, `${text}_`];
  });
  for (const family of Object.keys(PATTERNS) as (keyof typeof PATTERNS)[]) {
    const run = buildPreTokenizer(family, "test");
    for (const text of texts) {
      let total = 0;
      run(text, true, (piece) => total += piece.length);
      assertEquals(total, text.length, `${family}: ${JSON.stringify(text.slice(0, 4))}…`);
    }
  }
});

Deno.test("a file without a pre-tokenizer is cut by default, with a warning", () => {
  const { pre: _, ...rest } = bytePair([], []);
  const warnings: string[] = [];
  const tokenizer = build(rest, (message) => warnings.push(message));
  assertEquals(warnings.length, 1);
  assert(warnings[0]?.startsWith("x.gguf: tokenizer.ggml.pre is missing; "), warnings[0]);
  assertEquals(tokenizer.description, "byte-level BPE, 256 tokens, pre-tokenizer default");
});

Deno.test("decomposed text is composed if the model's own tokenizer does so", () => {
  const encode = (pre: string, text: string) => {
    const tokenizer = build(bytePair([], [], { pre }));
    return tokenizer.decode(tokenizer.encode(text));
  };
  for (const pre of ["qwen2", "qwen35", "command-r", "mpt", "olmo", "tiny_aya", "modern-bert"]) {
    assertEquals(encode(pre, "e\u0301²"), "é²", pre);
  }
  assertEquals(encode("exaone4", "e\u0301²"), "é2");
  for (const pre of ["llama-bpe", "gpt-2", "starcoder"]) {
    assertEquals(encode(pre, "e\u0301"), "e\u0301");
  }
});

Deno.test("a byte without a token is dropped, even if the file names an unknown token", () => {
  const tokens = ["<|endoftext|>", "a", "b"];
  const tokenizer = build({
    model: "gpt2",
    pre: "starcoder",
    tokens,
    token_type: Int32Array.of(CONTROL, NORMAL, NORMAL),
    merges: [],
    unknown_token_id: 0,
  });
  assertEquals([...tokenizer.encode("a\u0001b")], [1, 2]);
});

Deno.test("newer pre-tokenizers cut as their models do", () => {
  const cut = (pre: string, text: string) => {
    const found: string[] = [];
    buildPreTokenizer(ggufPreTokenizer(pre, "test").patterns, "test")(
      text,
      true,
      (piece) => found.push(piece),
    );
    return found;
  };
  assertEquals(cut("spark2_5", "a1234b?\n\nc"), [..."a1234b", "?", "\n", "\n", "c"]);
  assertEquals(cut("youtu", "한글中ab12、、"), ["한글", "中", "ab", "1", "2", "、、"]);
  assertEquals(cut("laguna", "a?\n b"), ["a", "?", "\n", " b"]);
  assertEquals(cut("laguna", "a?\n\n\nb"), ["a", "?", "\n\n\n", "b"]);
  assertEquals(cut("ufakzeka", "Ali'nin it's"), ["Ali", "'nin", " it", "'s"]);
  assertEquals(cut("f2llmv2", "it's 12"), ["it", "'s", " ", "1", "2"]);
  assertEquals(cut("hy_v4", "1234中文"), ["123", "4", "中文"]);
  assertEquals(cut("roberta-bpe", "a 12"), ["a", " 12"]);
  assertEquals(cut("talkie", "ABc1234"), ["ABc", "123", "4"]);
  assertEquals(cut("whitespace", "a  b"), ["a", "  ", "b"]);
  assertEquals(cut("qwen35", "e\u0301 ए\u0301b1!\n it's"), [
    "e\u0301",
    " ए\u0301b",
    "1",
    "!\n",
    " it",
    "'s",
  ]);
  assertEquals(cut("kimi-k2", "中文ABcd's AB's 1234?\n x中"), [
    "中文",
    "ABcd's",
    " AB's",
    " ",
    "123",
    "4",
    "?\n",
    " x",
    "中",
  ]);
  for (const pre of ["qwen2", "qwen35", "kimi-k2", "llama-bpe", "gpt-4o", "tekken"]) {
    const pieces = ["中", " ??", " \n\n", " ", " b", " "];
    assertEquals(cut(pre, pieces.join("")), pieces, pre);
  }
  assertEquals(cut("deepseek-llm", "ÀÉ Привет中文 12\n\nＡ１"), [
    "ÀÉ",
    " Привет",
    "中文",
    " ",
    "1",
    "2",
    "\n",
    "\n",
    "Ａ",
    "１",
  ]);
});

Deno.test("the words of DeepSeek LLM have 2,729 letters, all of which have case", () => {
  const word = translateRegex(PATTERNS.deepseekLlm[1]!, "test");
  let count = 0;
  for (let code = 0; code < 0x20000; code++) {
    const character = String.fromCodePoint(code);
    if (character.search(word) !== 0) continue;
    assert(/^\p{LC}$/u.test(character), code.toString(16));
    count++;
  }
  assertEquals(count, 2729);
});

Deno.test("pre-tokenizers ignore merges, add BOS and compose text as those of llama.cpp", () => {
  const names = (key: "ignoreMerges" | "addBos" | "form", value: unknown) =>
    Array.from(ggufPreTokenizers()).filter(([, pre]) => pre[key] === value)
      .map(([name]) => name).join(" ");
  const llama3 = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano";
  assertEquals(
    names("ignoreMerges", true),
    `${llama3} youtu tekken granite-embed-multi-97m minicpm5`,
  );
  assertEquals(names("addBos", true), `${llama3} tekken chameleon`);
  assertEquals(names("addBos", "always"), "gemma4 granite-embed-multi-311m");
  assertEquals(
    names("form", "NFC"),
    "command-r mpt olmo modern-bert qwen2 deepseek-r1-qwen f2llmv2 stablelm2 qwen35 exaone-moe " +
      "tiny_aya cohere2moe",
  );
  assertEquals(names("form", "NFKC"), "exaone exaone4");
});

/** Patterns as the models' authors publish them, by the names of their pre-tokenizers. */
const PUBLISHED: Readonly<Record<string, string>> = {
  "gpt-2": String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
  "llama-bpe": String.raw`(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])` +
    String.raw`|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*` +
    String.raw`|\s*[\r\n]+|\s+(?!\S)|\s+`,
  qwen2: String.raw`(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])` +
    String.raw`|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*` +
    String.raw`|\s*[\r\n]+|\s+(?!\S)|\s+`,
  bailingmoe:
    String.raw`'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` +
    String.raw`| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`,
};

Deno.test("pre-tokenizers cut any text as JavaScript cuts it by the published patterns", () => {
  const next = random(77);
  const alphabet = [..."aBsdTlveR01234é中٣ \n\n\n   \t\r''.,!?-_"];
  for (const [name, pattern] of Object.entries(PUBLISHED)) {
    const run = buildPreTokenizer(ggufPreTokenizer(name, "test").patterns, "test");
    for (let i = 0; i < 400; i++) {
      const text = Array.from(
        { length: Math.floor(next() * 16) },
        () => alphabet[Math.floor(next() * alphabet.length)],
      ).join("");
      const found: string[] = [];
      run(text, true, (piece) => found.push(piece));
      const expected = Array.from(text.matchAll(new RegExp(pattern, "gu")), ([piece]) => piece);
      assertEquals(found, expected, `${name}: ${JSON.stringify(text)}`);
    }
  }
});

Deno.test("gemma4 is BPE of characters with spaces marked, and always adds BOS", () => {
  const bytes = Array.from({ length: 256 }, (_, byte) => byteTokenText(byte));
  const words = ["▁", "a", "▁a", "\n", "\n\n", "\n\n\n", "<bos>", "aa"];
  const tokenizer = build({
    model: "gemma4",
    tokens: [...bytes, ...words],
    token_type: Int32Array.from([
      ...bytes.map(() => BYTE),
      ...words.map((word) => word === "<bos>" ? CONTROL : NORMAL),
    ]),
    merges: ["▁ a", "\n \n"],
    bos_token_id: 262,
    add_bos_token: false,
  });
  assertEquals([...tokenizer.encode("")], [262]);
  // Only newlines become a token without merging.
  assertEquals(pieces(tokenizer, "aa"), ["a", "a"]);
  assertEquals(pieces(tokenizer, "a a é"), ["a", "▁a", "▁", "<0xC3>", "<0xA9>"]);
  assertEquals(pieces(tokenizer, "a\n\n\na\n\n"), ["a", "\n\n\n", "a", "\n\n"]);
  assertEquals(tokenizer.decode(tokenizer.encode(" a\n\né ")), " a\n\né ");
});

Deno.test("unsupported tokenizers are rejected with a list of the supported ones", () => {
  for (const model of ["rwkv", "plamo2", "none"]) {
    const error = assertThrows(
      () => build({ model }),
      ForgeError,
      `x.gguf: tokenizer.ggml.model "${model}" is not supported; supported are gpt2, llama, gemma4, t5, bert`,
    );
    assertEquals(error.code, "unsupported");
  }
  const error = assertThrows(
    () => build(bytePair([], [], { pre: "future-bpe" })),
    ForgeError,
    `x.gguf: tokenizer.ggml.pre is "future-bpe"; known are default, llama-bpe, llama3, `,
  );
  assertEquals(error.code, "unsupported");
});

Deno.test("inconsistent files are bad models", () => {
  const good = bytePair([["ab", NORMAL]], ["a b"]);
  const cases: [Metadata, string][] = [
    [{}, "x.gguf: tokenizer.ggml.model is missing"],
    [{ ...good, model: "t5" }, "scores is missing"],
    [
      { ...good, model: "t5", scores: new Float32Array(257), precompiled_charsmap: "x" },
      `precompiled_charsmap is "x"; expected an array of bytes`,
    ],
    [{ model: "bert", tokens: ["[UNK]"] }, "seperator_token_id is missing"],
    [{ ...good, tokens: undefined }, "tokenizer.ggml.tokens is missing"],
    [{ ...good, tokens: new Int32Array(3) }, "expected an array of strings"],
    [{ ...good, tokens: ["a", 1] }, "expected an array of strings"],
    [{ ...good, tokens: ["a", "b", "a"] }, `has the token "a" twice, as ids 0 and 2`],
    [{ ...good, merges: undefined }, "tokenizer.ggml.merges is missing"],
    [{ ...good, merges: ["a z!"] }, `merges[0] names the token "z!"`],
    [{ ...good, token_type: new Int32Array(3) }, "has 3 entries for 257 tokens"],
    [{ ...good, token_type: "x" }, "expected an array of numbers"],
    [{ ...good, token_type: ["x"] }, "token_type is an array; expected an array of numbers"],
    [{ ...good, token_type: [] }, "token_type has 0 entries for 257 tokens"],
    [{ ...good, bos_token_id: 257 }, "bos_token_id is 257; expected a token id from 0 to 256"],
    [{ ...good, eos_token_id: -1 }, "eos_token_id is -1"],
    [{ ...good, eos_token_id: 2n ** 63n }, "eos_token_id is"],
    [{ ...good, add_bos_token: 1 }, "add_bos_token is 1; expected true or false"],
    [{ ...good, add_bos_token: true }, "bos_token_id is missing"],
    [{ ...good, add_eos_token: true }, "eos_token_id is missing"],
    [sentencePiece(WORDS, { scores: undefined }), "scores is missing"],
    [sentencePiece(WORDS, { scores: new Float32Array(264).fill(NaN) }), "scores[0] is NaN"],
    [sentencePiece(WORDS, { scores: new Float32Array(2) }), "has 2 entries for 264 tokens"],
  ];
  for (const [metadata, message] of cases) {
    const error = assertThrows(() => build(metadata), ForgeError, message);
    assertEquals(error.code, "bad_model");
  }
});

Deno.test("empty tokens and odd token types are tolerated", () => {
  const tokenizer = build(bytePair([["", NORMAL], ["", 9], ["x1", 0]], []));
  assertEquals(tokenizer.vocabSize, 259);
  assertEquals(tokenizer.decode([256, 257, 258]), "x1");
});

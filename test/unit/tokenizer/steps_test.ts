import { assert, assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../src/errors.ts";
import { byteToChar, fromByteLevel } from "../../../src/tokenizer/byte_level.ts";
import { readDecoder } from "../../../src/tokenizer/steps/decoders.ts";
import { Fields } from "../../../src/tokenizer/steps/fields.ts";
import { readNormalizer } from "../../../src/tokenizer/steps/normalizers.ts";
import {
  readPreTokenizer,
  splitBeforeMarkers,
} from "../../../src/tokenizer/steps/pre_tokenizers.ts";
import { Charsmap } from "../../../src/tokenizer/steps/charsmap.ts";
import { type Json, random, randomText } from "./support.ts";

function normalize(json: Json, text: string): string {
  return readNormalizer(new Fields(json, "x: normalizer"))(text);
}

function preTokenize(json: Json, text: string, atStart = true): string[] {
  const pieces: string[] = [];
  const { run } = readPreTokenizer(new Fields(json, "x: pre_tokenizer"));
  run(text, atStart, (piece) => pieces.push(piece));
  return pieces;
}

function toText(json: Json, piece: string): string {
  const decoder = readDecoder(new Fields(json, "x: decoder"), false);
  return new TextDecoder().decode(decoder.toBytes(piece, false));
}

Deno.test("Unicode normal forms", () => {
  assertEquals(normalize({ type: "NFC" }, "e\u0301ﬁ"), "éﬁ");
  assertEquals(normalize({ type: "NFD" }, "éﬁ"), "e\u0301ﬁ");
  assertEquals(normalize({ type: "NFKC" }, "e\u0301ﬁ"), "éfi");
  assertEquals(normalize({ type: "NFKD" }, "éﬁ"), "e\u0301fi");
});

Deno.test("Lowercase works character by character", () => {
  assertEquals(normalize({ type: "Lowercase" }, "ÀΣΑΣ İ"), "àσασ i̇");
});

Deno.test("Prepend, Replace, Strip, Sequence and ByteLevel rewrite text", () => {
  assertEquals(normalize({ type: "Prepend", prepend: "▁" }, "a"), "▁a");
  assertEquals(normalize({ type: "Prepend", prepend: "▁" }, ""), "");
  const longest = "x".repeat(64);
  assertEquals(normalize({ type: "Prepend", prepend: longest }, "a"), `${longest}a`);
  const replace = (pattern: Json) => ({ type: "Replace", pattern, content: "-" });
  assertEquals(normalize(replace({ String: "." }), "a.b."), "a-b-");
  assertEquals(normalize(replace({ Regex: "\\s+" }), "a \u0085 b"), "a-b");
  assertEquals(normalize(replace({ Regex: "x*" }), "ab"), "-a-b-");
  assertEquals(normalize(replace({ String: "" }), "ab"), "ab");
  const strip = (left: boolean, right: boolean) => ({
    type: "Strip",
    strip_left: left,
    strip_right: right,
  });
  assertEquals(normalize(strip(true, true), "\u0085 a b \n"), "a b");
  assertEquals(normalize(strip(true, false), " a "), "a ");
  assertEquals(normalize(strip(false, true), " a "), " a");
  assertEquals(normalize({ type: "Strip" }, " a "), "a");
  const sequence = {
    type: "Sequence",
    normalizers: [{ type: "Lowercase" }, { type: "Prepend", prepend: "X" }],
  };
  assertEquals(normalize(sequence, "AB"), "Xab");
  assertEquals(normalize({ type: "ByteLevel" }, " é"), "ĠÃ©");
});

Deno.test("a normalizer may make 1024 characters and 32 for each of a text", () => {
  const replace = (content: string) => ({ type: "Replace", pattern: { String: "a" }, content });
  const content = "x".repeat(64);
  assertEquals(normalize(replace(content), "a".repeat(32)).length, 1024 + 32 * 32);
  assertThrows(
    () => normalize(replace(content), "a".repeat(33)),
    ForgeError,
    "makes more than 2080 characters",
  );
});

Deno.test("StripAccents removes all marks, BertNormalizer those without a width", () => {
  assertEquals(normalize({ type: "StripAccents" }, "e\u0301\u0903\u20dd"), "e");
  assertEquals(normalize({ type: "BertNormalizer" }, "e\u0301\u0903\u20dd"), "e\u0903\u20dd");
});

Deno.test("BertNormalizer cleans, separates, strips and lowercases unless told otherwise", () => {
  const text = "É\u0001中";
  const cases: [Json, string][] = [
    [{}, "e 中 "],
    [{ lowercase: false }, "É 中 "],
    [{ lowercase: false, strip_accents: true }, "E 中 "],
    [{ strip_accents: false }, "é 中 "],
    [{ clean_text: false }, "e\u0001 中 "],
    [{ handle_chinese_chars: false }, "e中"],
  ];
  for (const [rest, expected] of cases) {
    assertEquals(normalize({ type: "BertNormalizer", ...rest }, text), expected);
  }
  const kept = { type: "BertNormalizer", lowercase: false };
  assertEquals(normalize(kept, "a\tb\nc\rd\u00a0e\u3000f"), "a b c d e f");
  assertEquals(normalize(kept, "a\0\x7f\u0085\u00ad\u200d\ue000\u{f0000}\ufffdb"), "ab");
  // The first and last characters of each block, and their neighbours.
  const chinese = "\u3400\u4dbf\u4e00\u9fff\uf900\ufaff\u{20000}\u{2a6df}\u{2a700}\u{2b81f}" +
    "\u{2b920}\u{2ceaf}\u{2f800}\u{2fa1f}";
  const others = "\u33ff\u4dc0\u4dff\ua000\uf8ff\ufb00\u{1ffff}\u{2a6e0}\u{2b820}\u{2b91f}" +
    "\u{2ceb0}\u{2f7ff}\u{2fa20}あ한";
  const only = { ...kept, clean_text: false };
  for (const character of chinese) assertEquals(normalize(only, character), ` ${character} `);
  assertEquals(normalize(only, others), others);
});

Deno.test("Nmt removes control characters, and makes others spaces", () => {
  for (let code = 0; code <= 0xffff; code++) {
    if (code >= 0xd800 && code < 0xe000) continue;
    const isRemoved = code >= 1 && code <= 8 || code === 0xb || code >= 0xe && code <= 0x1f ||
      code === 0x7f || code === 0x8f || code === 0x9f;
    const isSpace = [9, 10, 12, 13, 0x1680, 0x2028, 0x2029, 0x2581, 0xfeff, 0xfffd]
      .includes(code) || code >= 0x200b && code <= 0x200f;
    const character = String.fromCharCode(code);
    const expected = isRemoved ? "" : isSpace ? " " : character;
    if (normalize({ type: "Nmt" }, character) !== expected) {
      assertEquals(normalize({ type: "Nmt" }, character), expected, code.toString(16));
    }
  }
});

Deno.test("ByteLevel cuts by GPT-2's pattern, and may add a space", () => {
  const json = { type: "ByteLevel", add_prefix_space: false };
  assertEquals(preTokenize(json, "Hello  world's 12"), ["Hello", " ", " world", "'s", " 12"]);
  assertEquals(preTokenize({ ...json, use_regex: false }, "a b"), ["a b"]);
  assertEquals(preTokenize({ ...json, add_prefix_space: true }, "a b"), [" a", " b"]);
  assertEquals(preTokenize({ ...json, add_prefix_space: true }, " a"), [" a"]);
  assertEquals(preTokenize({ type: "ByteLevel" }, "a b"), [" a", " b"]);
});

Deno.test("steps after ByteLevel see its alphabet", () => {
  const json = {
    type: "Sequence",
    pretokenizers: [
      { type: "ByteLevel", add_prefix_space: false },
      { type: "Split", pattern: { String: "Ġ" }, behavior: "Isolated", invert: false },
    ],
  };
  assertEquals(preTokenize(json, "a é"), ["a", "Ġ", "Ã©"]);
  const twice = { type: "ByteLevel", add_prefix_space: false, use_regex: false };
  assertEquals(preTokenize({ type: "Sequence", pretokenizers: [twice, twice] }, "é"), ["Ã©"]);
});

Deno.test("Digits, Punctuation and the two whitespace splits", () => {
  const digits = { type: "Digits", individual_digits: true };
  assertEquals(preTokenize(digits, "a12½b"), ["a", "1", "2", "½", "b"]);
  assertEquals(preTokenize({ type: "Digits" }, "a12½b"), ["a", "12½", "b"]);
  assertEquals(preTokenize({ type: "Punctuation" }, "a,$。b"), ["a", ",", "$", "。", "b"]);
  assertEquals(
    preTokenize({ type: "Punctuation", behavior: "Contiguous" }, "a,$b"),
    ["a", ",$", "b"],
  );
  for (const mark of "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") {
    assertEquals(preTokenize({ type: "Punctuation" }, `a${mark}b`), ["a", mark, "b"]);
  }
  assertEquals(preTokenize({ type: "Punctuation" }, "a€b"), ["a€b"]);
  assertEquals(preTokenize({ type: "Whitespace" }, "it's  ok\n"), ["it", "'", "s", "ok"]);
  assertEquals(preTokenize({ type: "WhitespaceSplit" }, " it's\u0085ok"), ["it's", "ok"]);
});

Deno.test("Split isolates matches unless the file says otherwise", () => {
  const json = { type: "Split", pattern: { String: "-" } };
  assertEquals(preTokenize(json, "a-b"), ["a", "-", "b"]);
  assertEquals(preTokenize(json, "-a-"), ["-", "a", "-"]);
  assertEquals(preTokenize({ ...json, behavior: "Removed" }, "a-b"), ["a", "b"]);
  assertEquals(preTokenize({ ...json, behavior: "Removed", invert: true }, "a-b"), ["-"]);
});

Deno.test("a pre-tokenizer has at most 64 steps, which nest at most 16 levels", () => {
  const step: Json = { type: "WhitespaceSplit" };
  const steps = (count: number) => ({
    type: "Sequence",
    pretokenizers: Array.from({ length: count }, () => step),
  });
  assertEquals(preTokenize(steps(64), "a b"), ["a", "b"]);
  const error = assertThrows(
    () => preTokenize(steps(65), "a b"),
    ForgeError,
    "x: pre_tokenizer has 65 steps",
  );
  assertEquals(error.code, "unsupported");
  const nested = (depth: number): Json =>
    depth === 0 ? step : { type: "Sequence", pretokenizers: [nested(depth - 1)] };
  assertEquals(preTokenize(nested(16), "a b"), ["a", "b"]);
  assertThrows(() => preTokenize(nested(17), "a b"), ForgeError, "nested deeper than 16");
});

Deno.test("a text of SentencePiece is cut before each run of markers", () => {
  const next = random(23);
  for (let i = 0; i < 300; i++) {
    const text = Array.from({ length: 1 + next() * 8 }, () => "▁▁ab"[Math.floor(next() * 4)]).join(
      "",
    );
    const found: [string, boolean][] = [];
    splitBeforeMarkers(text, i % 2 === 0, (piece, atStart) => found.push([piece, atStart]));
    const expected = text.split(/(?<=[^▁])(?=▁)/);
    assertEquals(found, expected.map((piece, at) => [piece, at === 0 && i % 2 === 0]), text);
  }
});

Deno.test("Metaspace marks spaces, and the start according to its scheme", () => {
  const json = { type: "Metaspace", replacement: "▁" };
  assertEquals(preTokenize(json, "a b"), ["▁a", "▁b"]);
  assertEquals(preTokenize(json, " a  b"), ["▁a", "▁", "▁b"]);
  assertEquals(preTokenize(json, "a b", false), ["▁a", "▁b"]);
  assertEquals(preTokenize({ ...json, prepend_scheme: "first" }, "a"), ["▁a"]);
  assertEquals(preTokenize({ ...json, prepend_scheme: "first" }, "a", false), ["a"]);
  const dashes = {
    type: "Sequence",
    pretokenizers: [
      { type: "Split", pattern: { String: "-" }, behavior: "Isolated" },
      { ...json, prepend_scheme: "first" },
    ],
  };
  assertEquals(preTokenize(dashes, "a-b"), ["▁a", "-", "b"]);
  assertEquals(preTokenize({ ...json, prepend_scheme: "never" }, "a b"), ["a", "▁b"]);
  assertEquals(preTokenize({ ...json, add_prefix_space: false }, "a b"), ["a", "▁b"]);
  assertEquals(preTokenize({ ...json, split: false }, "a b"), ["▁a▁b"]);
  assertThrows(
    () => preTokenize({ ...json, add_prefix_space: false, prepend_scheme: "first" }, "a"),
    ForgeError,
    `x: pre_tokenizer has "add_prefix_space": false and "prepend_scheme": "first"`,
  );
});

Deno.test("the byte alphabet is GPT-2's", () => {
  const printable = (byte: number) =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  let others = 0;
  for (let byte = 0; byte < 256; byte++) {
    const code = printable(byte) ? byte : 0x100 + others++;
    assertEquals(byteToChar(byte), String.fromCharCode(code), `byte ${byte}`);
    assertEquals(fromByteLevel(String.fromCharCode(code)), Uint8Array.of(byte));
  }
  // Outside of the alphabet, whose last character is U+0143.
  for (const piece of ["\u00ad", "\u0144", " ", "\x7f"]) {
    assertEquals(fromByteLevel(piece), undefined);
  }
});

Deno.test("decoders convert pieces to text", () => {
  assertEquals(toText({ type: "ByteLevel" }, "ĠÃ©"), " é");
  assertEquals(toText({ type: "ByteLevel" }, "▁x"), "▁x");
  assertEquals(toText({ type: "Metaspace", replacement: "▁" }, "▁a▁"), " a ");
  assertEquals(toText({ type: "Replace", pattern: { String: "_" }, content: " " }, "_a"), " a");
  assertEquals(toText({ type: "ByteFallback" }, "<0x41>"), "A");
  assertEquals(toText({ type: "ByteFallback" }, "<0x4a>"), "J");
  assertEquals(toText({ type: "ByteFallback" }, "<0x4G>"), "<0x4G>");
  for (const [start, stop, left] of [[2, 1, "xax"], [0, 2, "xxxa"], [3, 0, "axx"], [9, 9, "a"]]) {
    assertEquals(toText({ type: "Strip", content: "x", start, stop }, "xxxaxx"), left);
  }
  assertEquals(toText({ type: "Strip", content: "x", start: 2, stop: 2 }, "xxx"), "");
  assertEquals(toText({ type: "Strip", content: "x" }, "xax"), "xax");
  const decoders = [{ type: "Fuse" }, { type: "Strip", content: "x" }];
  const fused = readDecoder(new Fields({ type: "Sequence", decoders }, "x: decoder"), false);
  assertEquals(fused.strip, { character: "x", count: 0 });
  const bytes = readDecoder(undefined, true);
  assertEquals(new TextDecoder().decode(bytes.toBytes("Ġa", true)), " a");
});

Deno.test("WordPiece joins pieces with its prefix, and cleans the spaces before others", () => {
  const json = { type: "WordPiece" };
  assertEquals(toText(json, "##x##"), "x##");
  assertEquals(toText(json, "x"), " x");
  assertEquals(toText({ ...json, prefix: "@" }, "@x"), "x");
  assertEquals(toText({ ...json, prefix: "@" }, "##x"), " ##x");
  for (const piece of [".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"]) {
    assertEquals(toText(json, piece), piece);
    assertEquals(toText({ ...json, cleanup: false }, piece), ` ${piece}`);
  }
  assertEquals(toText(json, "do not"), " don't");
  assertEquals(toText(json, "' "), "'");
  assertEquals(toText(json, "a .b , c"), " a.b, c");
});

Deno.test("Rust's words include joiners but not the fractions of Latin-1", () => {
  assertEquals(preTokenize({ type: "Whitespace" }, "a\u200db a²"), ["a\u200db", "a", "²"]);
});

/** Returns a charsmap of texts and their replacements. */
function charsmapOf(map: Readonly<Record<string, string>>): Uint8Array {
  const encode = (text: string) => new TextEncoder().encode(text);
  // A place for each prefix of a text: the children of number k are at 256 k XOR their byte.
  const places: { prefix: string; value: number }[] = [{ prefix: "", value: -1 }];
  const numberOf = (bytes: Uint8Array) => {
    const prefix = bytes.join();
    const found = places.findIndex((place) => place.prefix === prefix);
    return found >= 0 ? found : places.push({ prefix, value: -1 }) - 1;
  };
  const children: (readonly [parent: number, byte: number, child: number])[] = [];
  let replacements = "";
  for (const [text, replacement] of Object.entries(map)) {
    const bytes = encode(text);
    for (let i = 1; i <= bytes.length; i++) {
      const parent = numberOf(bytes.subarray(0, i - 1));
      children.push([parent, bytes[i - 1]!, numberOf(bytes.subarray(0, i))]);
    }
    places[numberOf(bytes)]!.value = encode(replacements).length;
    replacements += `${replacement}\0`;
  }
  const units = new Uint32Array(256 * (places.length + 1));
  const base = (place: number) => 256 * (place + 1);
  // The offset of the root is 256 times 1.
  units[0] = 1 << 10 | 0x200;
  for (const [parent, byte, child] of children) {
    const at = base(parent) ^ byte, isEnd = places[child]!.value >= 0;
    units[at] = (at ^ base(child)) << 10 | (isEnd ? 0x100 : 0) | byte;
    if (isEnd) units[base(child)] = (0x80000000 | places[child]!.value) >>> 0;
  }
  const size = new Uint8Array(4);
  new DataView(size.buffer).setUint32(0, units.byteLength, true);
  return new Uint8Array([...size, ...new Uint8Array(units.buffer), ...encode(replacements)]);
}

Deno.test("a charsmap replaces shortest prefixes of graphemes, or longest ones of texts", () => {
  const map: Readonly<Record<string, string>> = {
    "ﬁ": "fi",
    "e\u0301": "é",
    "\u0300": "",
    "o": "0",
    "o\u0308": "ö",
    "①": "1",
    "👍": "ok",
    "ᄀ": "g",
    "ab": "X",
    "abc": "Y\u0301",
  };
  const charsmap = new Charsmap(charsmapOf(map), "x: map");
  const segmenter = new Intl.Segmenter(undefined, { granularity: "grapheme" });
  const keys = Object.keys(map).toSorted((a, b) => a.length - b.length);
  const prefix = (text: string, among: readonly string[]) =>
    among.find((key) => text.startsWith(key));
  const byGrapheme = (text: string) =>
    Array.from(segmenter.segment(text), ({ segment }) => {
      const isShort = new TextEncoder().encode(segment).length < 6;
      const whole = isShort ? prefix(segment, keys) : undefined;
      return whole === undefined
        ? Array.from(segment, (character) => map[character] ?? character).join("")
        : map[whole];
    }).join("");
  const byText = (text: string) => {
    let replaced = "";
    for (let rest = text; rest !== "";) {
      const key = prefix(rest, keys.toReversed());
      replaced += key === undefined ? String.fromCodePoint(rest.codePointAt(0)!) : map[key];
      rest = rest.slice(key?.length ?? String.fromCodePoint(rest.codePointAt(0)!).length);
    }
    return replaced;
  };
  const next = random(17);
  const alphabet = [..."abceo ", "\u0301", "\u0300", "\u0308", "ﬁ", "①", "👍", "🏽", "ᄀ", "ᅡ", "é"];
  for (let i = 0; i < 500; i++) {
    const length = Math.floor(12 * next());
    const characters = Array.from(
      { length },
      () => alphabet[Math.floor(next() * alphabet.length)]!,
    );
    const text = characters.join("");
    assertEquals(charsmap.replaceGraphemes(text, Infinity), byGrapheme(text), JSON.stringify(text));
    assertEquals(charsmap.replaceLongest(text, Infinity), byText(text), JSON.stringify(text));
  }
  // Both stop above a limit of characters.
  for (const limit of [0, 1, 7, 50]) {
    assertEquals(charsmap.replaceGraphemes("ﬁ".repeat(99), limit).length <= limit + 2, true);
    assertEquals(charsmap.replaceGraphemes("ﬁ".repeat(99), limit).length > limit, true);
  }
  const plain = new Charsmap(charsmapOf({ "ﬁ": "fi" }), "x: map");
  assertEquals(plain.replaceGraphemes("plain ~ ASCII", 0), "plain ~ ASCII");
  for (const replaced of [" ", "~"]) {
    const ascii = new Charsmap(charsmapOf({ [replaced]: "_" }), "x: map");
    assertEquals(ascii.replaceGraphemes(`a${replaced}b`, Infinity), "a_b");
    assertEquals(ascii.replaceLongest(`a${replaced}b`, Infinity), "a_b");
  }
});

Deno.test("a damaged charsmap is a bad model or has no effect, and never hangs", () => {
  const normalizeWith = (bytes: Uint8Array, text: string) =>
    normalize(
      { type: "Precompiled", precompiled_charsmap: btoa(String.fromCharCode(...bytes)) },
      text,
    );
  const sizes = [[], [1, 0, 0], [0, 0, 0, 0], [4, 0, 0, 0], [3, 0, 0, 0, 0, 0, 0], [
    6,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
  ], [
    8,
    0,
    0,
    0,
    0,
    0,
    0,
    0,
  ]];
  for (const bytes of sizes) {
    const error = assertThrows(
      () => new Charsmap(Uint8Array.from(bytes), "x: map"),
      ForgeError,
      `x: map has ${bytes.length} bytes`,
    );
    assertEquals(error.code, "bad_model");
  }
  assertThrows(
    () => normalize({ type: "Precompiled", precompiled_charsmap: "?" }, "a"),
    ForgeError,
    `precompiled_charsmap is "?"; expected bytes in base64`,
  );
  const next = random(61);
  let damaged = 0;
  for (let i = 0; i < 500; i++) {
    const bytes = Uint8Array.from({ length: 4 + 1024 + 16 }, () => Math.floor(next() * 256));
    bytes.set([0, 4, 0, 0]);
    // Small offsets, so that some of the links stay inside the trie.
    for (let at = 4; at < 1028; at += 4) {
      bytes.set([bytes[at + 1]! & 1, bytes[at + 2]! % 3, 0], at + 1);
    }
    try {
      normalizeWith(bytes, randomText(next, 100));
    } catch (error) {
      if (!(error instanceof ForgeError)) throw error;
      damaged++;
    }
  }
  assert(damaged > 0 && damaged < 500, `${damaged} of 500`);
});

Deno.test("unsupported steps are rejected with a list of the supported ones", () => {
  const cases: [() => unknown, string][] = [
    [() => normalize({ type: "Other" }, ""), `x: normalizer.type "Other" is not supported`],
    [
      () => preTokenize({ type: "UnicodeScripts" }, ""),
      `x: pre_tokenizer.type "UnicodeScripts" is not supported; supported are Sequence, ByteLevel`,
    ],
    [() => toText({ type: "CTC" }, ""), `x: decoder.type "CTC" is not supported`],
    [
      () => toText({ type: "Sequence", decoders: [{ type: "Fuse" }, { type: "ByteLevel" }] }, ""),
      `x: decoder.decoders[1].type "ByteLevel" is not supported`,
    ],
  ];
  for (const [fn, message] of cases) {
    assertEquals(assertThrows(fn, ForgeError, message).code, "unsupported");
  }
});

Deno.test("malformed steps are bad models and never crash", () => {
  const deep = () => {
    let json: Json = { type: "NFC" };
    for (let i = 0; i < 50; i++) json = { type: "Sequence", normalizers: [json] };
    return json;
  };
  const cases: [() => unknown, string][] = [
    [() => normalize({}, ""), "x: normalizer.type is missing; expected a string"],
    [() => normalize({ type: 3 }, ""), "x: normalizer.type is 3"],
    [() => normalize({ type: "Sequence", normalizers: 1 }, ""), "expected an array"],
    [() => normalize({ type: "Sequence", normalizers: [1] }, ""), "normalizers[0] is 1"],
    [() => normalize({ type: "Replace", content: "" }, ""), "pattern is missing"],
    [() => normalize({ type: "Replace", content: "", pattern: {} }, ""), `neither "String"`],
    [
      () => normalize({ type: "Prepend", prepend: "x".repeat(65) }, ""),
      'x: normalizer.prepend is "' + "x".repeat(65) + '"; expected a string of at most 64',
    ],
    [() => normalize(deep(), ""), "nested deeper than 16"],
    [() => preTokenize({ type: "Split", pattern: { String: " " }, behavior: "x" }, ""), "one of"],
    [() => preTokenize({ type: "Metaspace", replacement: "ab" }, ""), "one character"],
    [() => toText({ type: "Strip", content: "x", start: -1, stop: 0 }, ""), "whole number"],
    [() => toText({ type: "Strip", content: "x", start: 0.5, stop: 0 }, ""), "whole number"],
    [
      () =>
        toText({
          type: "Sequence",
          decoders: [{ type: "Fuse" }, { type: "Strip", content: "x", start: 0, stop: 1 }],
        }, ""),
      "stop is 1; expected 0 after Fuse",
    ],
  ];
  for (const [fn, message] of cases) {
    assertEquals(assertThrows(fn, ForgeError, message).code, "bad_model");
  }
});

import { tokenizerFromJson } from "../../../src/tokenizer/tokenizer.ts";
import type { Tokenizer } from "../../../src/tokenizer/tokenizer.ts";
import { byteToChar } from "../../../src/tokenizer/byte_level.ts";
import { byteTokenText } from "../../../src/tokenizer/models/alphabet.ts";

/** A tokenizer.json as an object that tests change. */
export type Json = Record<string, unknown>;

/** Returns a pseudo-random generator (mulberry32), so that a failure can be reproduced. */
export function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const CHARACTERS = [
  ..."abcdefghijklmnopqrstuvwxyzABCXYZ0123456789      \n\t.,!?'\"()[]{}<>|/\\-_",
  ..."éäöñßΣς中文字日本語русскийहिन्दीไทย한국어العربية",
  ..."😀🚀👩‍👩‍👧🏽𐐀𝟘½²٣ſ\u0085\u00a0\u2003\u3000\ufeff\u200b\u0301\u0000\r▁",
];

/** Returns a text of up to `length` characters: words, spaces, many scripts, emoji, controls. */
export function randomText(next: () => number, length: number): string {
  const pick = () => CHARACTERS[Math.floor(next() * CHARACTERS.length)] ?? "";
  const anyCharacter = () => {
    const code = Math.floor(next() * 0x20000);
    return code >= 0xd800 && code < 0xe000 ? "?" : String.fromCodePoint(code);
  };
  let text = "";
  for (let left = Math.floor(next() * length); left > 0; left--) {
    text += next() < 0.9 ? pick() : next() < 0.5 ? pick().repeat(5) : anyCharacter();
  }
  return text;
}

/** Returns a model section with ids in the order of `tokens`. */
export function bpeModel(tokens: readonly string[], merges: readonly unknown[], rest: Json = {}) {
  const vocab = Object.fromEntries(tokens.map((token, id) => [token, id]));
  return { type: "BPE", vocab, merges, ...rest };
}

/** Returns byte-level BPE: ids 0 to 255 are the bytes, followed by `tokens`. */
export function byteLevelJson(tokens: readonly string[], merges: readonly unknown[]): Json {
  const bytes = Array.from({ length: 256 }, (_, byte) => byteToChar(byte));
  return {
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, use_regex: true },
    decoder: { type: "ByteLevel" },
    model: bpeModel([...bytes, ...tokens], merges),
  };
}

/** Returns BPE of characters as in SentencePiece: ids 0 to 255 are "<0x00>" to "<0xFF>". */
export function byteFallbackJson(tokens: readonly string[], merges: readonly unknown[]): Json {
  const bytes = Array.from({ length: 256 }, (_, byte) => byteTokenText(byte));
  return {
    normalizer: {
      type: "Sequence",
      normalizers: [
        { type: "Prepend", prepend: "▁" },
        { type: "Replace", pattern: { String: " " }, content: "▁" },
      ],
    },
    decoder: {
      type: "Sequence",
      decoders: [
        { type: "Replace", pattern: { String: "▁" }, content: " " },
        { type: "ByteFallback" },
        { type: "Fuse" },
        { type: "Strip", content: " ", start: 1, stop: 0 },
      ],
    },
    model: bpeModel([...bytes, ...tokens], merges, { byte_fallback: true }),
  };
}

/** Returns a model of single characters without merges, to test the other steps. */
export function characterJson(characters: string, rest: Json = {}): Json {
  return { model: bpeModel(["<unk>", ...characters], [], { unk_token: "<unk>" }), ...rest };
}

/** Returns an entry of `added_tokens`. */
export function addedToken(id: number, content: string, rest: Json = {}): Json {
  return {
    id,
    content,
    special: true,
    normalized: false,
    lstrip: false,
    rstrip: false,
    single_word: false,
    ...rest,
  };
}

/** Builds a tokenizer from an object. */
export function build(json: Json, config?: Json): Tokenizer {
  return tokenizerFromJson(json, config, "tokenizer.json");
}

/** Returns the pieces of a text's ids, with control tokens, without BOS and EOS. */
export function pieces(tokenizer: Tokenizer, text: string): string[] {
  const ids = tokenizer.encode(text, { addSpecial: false });
  return Array.from(ids, (id) => tokenizer.tokenText(id));
}

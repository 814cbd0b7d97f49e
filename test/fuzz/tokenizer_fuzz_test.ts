import { assert } from "@std/assert";
import type { GgufValue } from "../../src/formats/gguf/gguf.ts";
import type { JsonObject } from "../../src/formats/json.ts";
import { byteToChar } from "../../src/tokenizer/byte_level.ts";
import {
  StreamDecoder,
  type Tokenizer,
  tokenizerFromGguf,
  tokenizerFromJson,
} from "../../src/tokenizer/tokenizer.ts";
import type { Random } from "../support/random.ts";
import { fuzz } from "./harness.ts";
import { changeCount, mutateJson, mutateText } from "./mutate.ts";

const SAMPLE = "Hello  wörld, it's 2024! <|end|>日本 😀\n\n\t<s>x\ud800" + "a".repeat(300);

const WORDS = ["He", "ll", "Hell", "Hello", "Ġw", "Ġ2", "20"];
const MERGES = ["H e", "l l", "He ll", "Hell o", "Ġ w", "Ġ 2", "2 0"];

function byteLevelTokens(): string[] {
  const letters = Array.from({ length: 256 }, (_, byte) => byteToChar(byte));
  return [...letters, ...WORDS, "<s>", "<|end|>"];
}

function pieceTokens(): string[] {
  const bytes = Array.from(
    { length: 256 },
    (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`,
  );
  return ["<unk>", "<s>", "</s>", ...bytes, "▁", "H", "e", "l", "o", "He", "ll", "▁w", "▁▁", "llo"];
}

function vocabOf(tokens: readonly string[]): JsonObject {
  return Object.fromEntries(tokens.map((token, id) => [token, id]));
}

function added(content: string, tokens: readonly string[], special: boolean): JsonObject {
  const flags = { lstrip: false, rstrip: true, single_word: false, normalized: !special };
  return { id: tokens.indexOf(content), content, special, ...flags };
}

const BYTE_TOKENS = byteLevelTokens();
const PIECE_TOKENS = pieceTokens();
const WORD_PATTERN =
  "(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

const BYTE_LEVEL_JSON: JsonObject = {
  version: "1.0",
  added_tokens: [added("<s>", BYTE_TOKENS, true), added("<|end|>", BYTE_TOKENS, false)],
  normalizer: { type: "NFC" },
  pre_tokenizer: {
    type: "Sequence",
    pretokenizers: [
      { type: "Digits", individual_digits: true },
      { type: "Split", pattern: { Regex: WORD_PATTERN }, behavior: "Isolated", invert: false },
      { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false },
    ],
  },
  post_processor: {
    type: "TemplateProcessing",
    single: [{ SpecialToken: { id: "<s>", type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
    pair: [],
    special_tokens: {
      "<s>": { id: "<s>", ids: [BYTE_TOKENS.indexOf("<s>")], tokens: ["<s>"] },
    },
  },
  decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
  model: {
    type: "BPE",
    dropout: null,
    unk_token: null,
    fuse_unk: false,
    byte_fallback: false,
    ignore_merges: true,
    vocab: vocabOf(BYTE_TOKENS),
    merges: MERGES.map((merge) => merge.split(" ")),
  },
};

const PIECE_JSON: JsonObject = {
  added_tokens: ["<unk>", "<s>", "</s>"].map((token) => added(token, PIECE_TOKENS, true)),
  normalizer: {
    type: "Sequence",
    normalizers: [
      { type: "Prepend", prepend: "▁" },
      { type: "Replace", pattern: { String: " " }, content: "▁" },
    ],
  },
  pre_tokenizer: null,
  post_processor: null,
  decoder: {
    type: "Sequence",
    decoders: [
      { type: "Replace", pattern: { String: "▁" }, content: " " },
      { type: "ByteFallback" },
      { type: "Fuse" },
      { type: "Strip", content: " ", start: 1, stop: 0 },
    ],
  },
  model: {
    type: "BPE",
    unk_token: "<unk>",
    fuse_unk: true,
    byte_fallback: true,
    vocab: vocabOf(PIECE_TOKENS),
    merges: ["H e", "l l", "ll o"],
  },
};

const CONFIG: JsonObject = {
  bos_token: "<s>",
  eos_token: { content: "<s>", lstrip: false },
  add_bos_token: true,
  add_eos_token: false,
};

/** Encodes and decodes a text in every way, and checks the types of the results. */
function exercise(tokenizer: Tokenizer): void {
  assert(Number.isSafeInteger(tokenizer.vocabSize) && tokenizer.vocabSize >= 0, "a size");
  for (const addSpecial of [true, false]) {
    const ids = tokenizer.encode(SAMPLE, { addSpecial, parseSpecial: addSpecial });
    for (const id of ids) assert(id >= 0 && id < tokenizer.vocabSize, "an id of the vocabulary");
    assert(typeof tokenizer.decode(ids, { skipSpecial: addSpecial }) === "string");
    const stream = new StreamDecoder(tokenizer);
    for (const id of ids) assert(typeof stream.push(id) === "string");
    assert(typeof stream.flush() === "string");
  }
}

for (const [name, json] of Object.entries({ "byte-level": BYTE_LEVEL_JSON, piece: PIECE_JSON })) {
  Deno.test(`a damaged ${name} tokenizer.json loads or throws a ForgeError`, () => {
    exercise(tokenizerFromJson(json, CONFIG, "tokenizer.json"));
  });

  fuzz(`a ${name} tokenizer.json`, 2000, (random) => {
    const config = random.chance(1 / 2) ? CONFIG : mutateJson(CONFIG, random);
    exercise(tokenizerFromJson(mutateJson(json, random), config, "tokenizer.json"));
  });
}

/** Unigram and WordPiece models, with normalizers and decoders of their own. */
const OTHER_MODELS: readonly { name: string; tokenizer: JsonObject }[] = JSON.parse(
  Deno.readTextFileSync(new URL("../unit/tokenizer/hugging_face.json", import.meta.url)),
);

for (const { name, tokenizer } of OTHER_MODELS) {
  if (name !== "XLM-RoBERTa" && name !== "BERT uncased") continue;
  fuzz(`a tokenizer.json of ${name}`, 500, (random) => {
    exercise(tokenizerFromJson(mutateJson(tokenizer, random), undefined, "tokenizer.json"));
  });
}

const BYTE_LEVEL_GGUF: Record<string, GgufValue> = {
  "tokenizer.ggml.model": "gpt2",
  "tokenizer.ggml.pre": "llama-bpe",
  "tokenizer.ggml.tokens": BYTE_TOKENS,
  "tokenizer.ggml.token_type": Int32Array.from(BYTE_TOKENS, (token) => token === "<s>" ? 3 : 1),
  "tokenizer.ggml.merges": MERGES,
  "tokenizer.ggml.bos_token_id": BYTE_TOKENS.indexOf("<s>"),
  "tokenizer.ggml.eos_token_id": BYTE_TOKENS.indexOf("<|end|>"),
  "tokenizer.ggml.add_bos_token": true,
};

const PIECE_GGUF: Record<string, GgufValue> = {
  "tokenizer.ggml.model": "llama",
  "tokenizer.ggml.tokens": PIECE_TOKENS,
  "tokenizer.ggml.scores": Float32Array.from(PIECE_TOKENS, (_, id) => -id),
  "tokenizer.ggml.token_type": Int32Array.from(
    PIECE_TOKENS,
    (token, id) => token === "<unk>" ? 2 : id < 3 ? 3 : token.startsWith("<0x") ? 6 : 1,
  ),
  "tokenizer.ggml.bos_token_id": 1,
  "tokenizer.ggml.eos_token_id": 2,
  "tokenizer.ggml.unknown_token_id": 0,
  "tokenizer.ggml.add_space_prefix": true,
};

const STRANGE: readonly GgufValue[] = [
  0,
  -1,
  1.5,
  2 ** 31,
  2n ** 63n,
  NaN,
  true,
  "",
  "gpt2",
  "default",
  "no such",
  [],
  ["a"],
  [[1]],
  new Float32Array(3).fill(NaN),
  new BigUint64Array(3),
  Int32Array.of(-1, 2 ** 31 - 1),
];

function mutateMetadata(
  metadata: Readonly<Record<string, GgufValue>>,
  random: Random,
): Map<string, GgufValue> {
  const mutant = new Map(Object.entries(structuredClone(metadata)));
  const keys = [...mutant.keys()];
  for (let left = changeCount(random); left > 0; left--) {
    const key = random.pick(keys);
    const value = mutant.get(key);
    switch (random.int(0, 4)) {
      case 0:
        mutant.delete(key);
        break;
      case 1:
        mutant.set(key, mutant.get(random.pick(keys)) ?? 0);
        break;
      case 2:
        mutant.set(key, random.pick(STRANGE));
        break;
      default:
        if (value !== undefined) mutant.set(key, mutateValue(value, random));
    }
  }
  return mutant;
}

function mutateValue(value: GgufValue, random: Random): GgufValue {
  if (typeof value === "string") return mutateText(value, random);
  if (typeof value === "number") return value + random.pick([-1, 1, 0.5, 1e6]);
  if (value instanceof Int32Array || value instanceof Float32Array) {
    if (random.chance(1 / 4)) return value.slice(random.int(0, 2));
    value[random.int(0, value.length - 1)] = random.pick([-1, 0, 2, 3, 6, 1e9]);
    return value;
  }
  if (!Array.isArray(value)) return random.pick(STRANGE);
  const list: GgufValue[] = [...value];
  const index = random.int(0, list.length - 1);
  const item = list[index];
  if (random.chance(1 / 3)) list.splice(index, 1);
  else if (random.chance(1 / 2)) list[index] = random.pick(list);
  else list[index] = typeof item === "string" ? mutateText(item, random) : 0;
  return list;
}

const UNIGRAM_GGUF: Record<string, GgufValue> = {
  ...PIECE_GGUF,
  "tokenizer.ggml.model": "t5",
  "tokenizer.ggml.remove_extra_whitespaces": true,
  // A trie of 256 units without any text.
  "tokenizer.ggml.precompiled_charsmap": Int8Array.from(
    { length: 1029 },
    (_, at) => at === 1 ? 4 : 0,
  ),
};

const WORD_PIECE_GGUF: Record<string, GgufValue> = {
  ...PIECE_GGUF,
  "tokenizer.ggml.model": "bert",
  "tokenizer.ggml.seperator_token_id": 2,
  "tokenizer.ggml.normalizer.lowercase": false,
};

const GGUF_KINDS = {
  gpt2: BYTE_LEVEL_GGUF,
  llama: PIECE_GGUF,
  t5: UNIGRAM_GGUF,
  bert: WORD_PIECE_GGUF,
};

for (const [name, metadata] of Object.entries(GGUF_KINDS)) {
  Deno.test(`a damaged ${name} tokenizer of GGUF loads or throws a ForgeError`, () => {
    exercise(tokenizerFromGguf(new Map(Object.entries(metadata)), "model.gguf"));
  });

  fuzz(`the ${name} tokenizer of a GGUF file`, 2000, (random) => {
    exercise(tokenizerFromGguf(mutateMetadata(metadata, random), "model.gguf"));
  });
}

/** Compares tokenizers of many kinds with Hugging Face's ids and texts; see hugging_face.py. */
import { assert, assertEquals } from "@std/assert";
import { StreamDecoder, tokenizerFromGguf } from "../../../src/tokenizer/tokenizer.ts";
import { build, type Json } from "./support.ts";

interface Case {
  readonly name: string;
  readonly tokenizer: Json & {
    model: { type: string; vocab: Record<string, number> | [string, number][] };
    added_tokens: { id: number; content: string; special: boolean }[];
    normalizer: Json;
  };
  /** A text, its ids, and the text decoded from them. */
  readonly encoded: readonly [string, number[], string][];
  /** Random ids, their text, and their text with control tokens. */
  readonly decoded: readonly [number[], string, string][];
}

const cases: readonly Case[] = JSON.parse(
  Deno.readTextFileSync(new URL("hugging_face.json", import.meta.url)),
);

for (const { name, tokenizer: json, encoded, decoded } of cases) {
  Deno.test(`${name}: ids and texts agree with Hugging Face`, () => {
    const tokenizer = build(json);
    for (const [text, ids, back] of encoded) {
      assertEquals([...tokenizer.encode(text)], ids, JSON.stringify(text));
      assertEquals(tokenizer.decode(ids), back);
    }
    for (const [ids, text, whole] of decoded) {
      // Hugging Face writes one U+FFFD for each invalid byte, forge one for an invalid sequence.
      if (whole.includes("\ufffd")) continue;
      assertEquals(tokenizer.decode(ids), text);
      assertEquals(tokenizer.decode(ids, { skipSpecial: false }), whole);
    }
  });

  Deno.test(`${name}: streaming and decoding give the same text`, () => {
    const tokenizer = build(json);
    for (const ids of [...encoded.map(([, ids]) => ids), ...decoded.map(([ids]) => ids)]) {
      const stream = new StreamDecoder(tokenizer, { startsText: true });
      assertEquals(
        ids.map((id) => stream.push(id)).join("") + stream.flush(),
        tokenizer.decode(ids),
      );
    }
  });
}

const NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5;

/** Converts a tokenizer.json of WordPiece or Unigram to metadata as llama.cpp's converter does. */
function converted({ model, added_tokens, normalizer }: Case["tokenizer"]): Map<string, unknown> {
  const pieces: [string, number, number][] = Array.isArray(model.vocab)
    ? model.vocab.map(([text, score], id) => [text, id, score])
    : Object.entries(model.vocab).map((
      [text, id],
    ) => [text.startsWith("##") ? text.slice(2) : `▁${text}`, id, 0]);
  const size = 1 + Math.max(...pieces.map(([, id]) => id), ...added_tokens.map(({ id }) => id));
  const tokens = Array.from({ length: size }, (_, id) => `[PAD${id}]`);
  const types = new Int32Array(size).fill(UNUSED), scores = new Float32Array(size);
  for (const [text, id, score] of pieces) {
    [tokens[id], types[id], scores[id]] = [text, NORMAL, score];
  }
  for (const { id, content, special } of added_tokens) {
    tokens[id] = content;
    types[id] = /unk/i.test(content) ? UNKNOWN : special ? CONTROL : USER_DEFINED;
  }
  const isBert = model.type === "WordPiece";
  const [bos, eos, unk] = isBert ? ["[CLS]", "[SEP]", "[UNK]"] : ["<s>", "</s>", "<unk>"];
  const steps = [normalizer, ...(normalizer["normalizers"] as Json[] | undefined ?? [])];
  const charsmap = steps.find(({ type }) => type === "Precompiled")?.["precompiled_charsmap"];
  const keys: Json = {
    model: isBert ? "bert" : "t5",
    tokens,
    token_type: types,
    scores,
    bos_token_id: tokens.indexOf(bos!),
    [isBert ? "seperator_token_id" : "eos_token_id"]: tokens.indexOf(eos!),
    unknown_token_id: tokens.indexOf(unk!),
    add_bos_token: true,
  };
  if (isBert) keys["normalizer.lowercase"] = normalizer["lowercase"];
  else {
    keys["add_space_prefix"] = true;
    keys["remove_extra_whitespaces"] = true;
    // A view of some bytes, as those of a file are.
    keys["precompiled_charsmap"] = Int8Array.from(
      `before${atob(String(charsmap))}`,
      (byte) => byte.charCodeAt(0),
    ).subarray("before".length);
  }
  return new Map(Object.entries(keys).map(([key, value]) => [`tokenizer.ggml.${key}`, value]));
}

Deno.test("unigram and WordPiece models of GGUF files give the ids of their tokenizer.json", () => {
  let compared = 0;
  for (const { name, tokenizer: json, encoded } of cases) {
    if (!["T5", "BERT uncased", "BERT cased"].includes(name)) continue;
    const tokenizer = tokenizerFromGguf(converted(json), "x.gguf");
    for (const text of ["ﬁne ① ½", "㎏ e\u0301 a\u3000b"]) {
      assertEquals([...tokenizer.encode(text)], [...build(json).encode(text)], `${name}: ${text}`);
    }
    for (const [text, ids] of encoded) {
      // GGUF files have no flags of added tokens, no limit of a word, and only the spaces of the
      // map.
      if (/ab|Fox|\S{13}|[\u0085\u2003]/u.test(text)) continue;
      assertEquals([...tokenizer.encode(text)], ids, `${name}: ${JSON.stringify(text)}`);
      compared++;
    }
  }
  assert(compared > 10, `${compared} texts`);
});

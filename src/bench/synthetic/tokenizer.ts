import type { GgufField } from "../../formats/gguf/writer.ts";
import { BYTE, CONTROL, NORMAL, UNKNOWN } from "../../tokenizer/gguf/tokens.ts";

const SPECIALS = ["<unk>", "<s>", "</s>"];
const BYTES = 256;

/**
 * Returns the metadata of a tokenizer that can encode any text: the three special tokens of Llama,
 * a token for every byte and for the space, and invented words for the rest of the vocabulary.
 */
export function syntheticTokenizer(vocabSize: number): Record<string, GgufField> {
  const tokens = Array.from({ length: vocabSize }, (_, id) => tokenText(id));
  const types = tokens.map((_, id) => tokenType(id));
  return {
    "tokenizer.ggml.model": ["string", "llama"],
    "tokenizer.ggml.pre": ["string", "default"],
    "tokenizer.ggml.tokens": ["array", "string", tokens],
    "tokenizer.ggml.scores": ["array", "f32", tokens.map((_, id) => -id)],
    "tokenizer.ggml.token_type": ["array", "i32", types],
    "tokenizer.ggml.unknown_token_id": ["u32", 0],
    "tokenizer.ggml.bos_token_id": ["u32", 1],
    "tokenizer.ggml.eos_token_id": ["u32", 2],
    "tokenizer.ggml.add_bos_token": ["bool", true],
  };
}

function tokenText(id: number): string {
  const special = SPECIALS[id];
  if (special !== undefined) return special;
  const byte = id - SPECIALS.length;
  if (byte < BYTES) return `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
  // The space has a token of its own, so that it is not spelled as a byte.
  return byte === BYTES ? "▁" : `▁w${id}`;
}

function tokenType(id: number): number {
  if (id === 0) return UNKNOWN;
  if (id < SPECIALS.length) return CONTROL;
  return id < SPECIALS.length + BYTES ? BYTE : NORMAL;
}

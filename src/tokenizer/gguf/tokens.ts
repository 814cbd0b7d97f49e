import { byteTokenIds } from "../models/alphabet.ts";
import type { GgufTokenizerFields } from "./fields.ts";
import { type AddedToken, END_OF_GENERATION, endOfGenerationIds } from "../special_tokens.ts";
import { Vocabulary } from "../vocabulary.ts";

/** The values of `tokenizer.ggml.token_type`. */
export const NORMAL = 1, UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5, BYTE = 6;

/** The vocabulary of a GGUF file. */
export interface GgufTokens {
  readonly vocabulary: Vocabulary;
  /** Tokens cut out of text before it is tokenized. */
  readonly added: readonly AddedToken[];
  readonly bosId: number | undefined;
  readonly eosId: number | undefined;
  readonly unknownId: number | undefined;
  readonly separatorId: number | undefined;
  /** All tokens that end generation. */
  readonly endIds: readonly number[];
  /** True for the id of a control token. */
  isSpecial(id: number): boolean;
  /** True if text can become the id: false for control tokens and byte tokens. */
  isPiece(id: number): boolean;
}

/** Ids of the special tokens that a file does not name. */
interface DefaultIds {
  readonly bosId?: number;
  readonly eosId?: number;
  readonly unknownId?: number;
  readonly separatorId?: number;
}

/**
 * Reads the vocabulary of a GGUF file.
 *
 * @throws ForgeError `bad_model`
 */
export function readGgufTokens(fields: GgufTokenizerFields, defaults: DefaultIds): GgufTokens {
  const texts = fields.strings("tokens");
  const vocabulary = new Vocabulary(texts, fields.where("tokens"));
  const size = vocabulary.size;
  const types = readTypes(fields, vocabulary);
  const read = (key: string, fallback?: number) =>
    fields.id(key, size) ?? (fallback !== undefined && fallback < size ? fallback : undefined);
  const bosId = read("bos_token_id", defaults.bosId);
  const eosId = read("eos_token_id", defaults.eosId);
  const unknownId = read("unknown_token_id", defaults.unknownId);
  // The format misspells this key.
  const separatorId = read("seperator_token_id", defaults.separatorId);

  const isSpecial = (id: number) => types[id] === CONTROL || types[id] === UNKNOWN;
  const rstrips = hasPhi3Spaces(fields);
  const added: AddedToken[] = [];
  for (let id = 0; id < size; id++) {
    const special = isSpecial(id);
    if (!special && types[id] !== USER_DEFINED) continue;
    const content = texts[id] ?? "";
    added.push({ id, content, special, rstrip: rstrips && !PHI3_PLAIN.has(content) });
  }
  const ends = [eosId, read("eot_token_id"), read("eom_token_id"), ...endOfGenerationIds(added)];
  return {
    vocabulary,
    added,
    bosId,
    eosId,
    unknownId,
    separatorId,
    endIds: [...new Set(ends.filter((id) => id !== undefined))],
    isSpecial,
    isPiece: (id) => !isSpecial(id) && types[id] !== BYTE,
  };
}

function readTypes(fields: GgufTokenizerFields, vocabulary: Vocabulary): Uint8Array {
  const types = new Uint8Array(vocabulary.size).fill(NORMAL);
  const declared = fields.numbers("token_type", vocabulary.size);
  if (declared) types.set(declared.subarray(0, types.length));
  else {
    // A token that is missing has the id -1, at which a typed array stores nothing.
    for (const id of byteTokenIds(vocabulary)) types[id] = BYTE;
  }
  // Some files declare these as normal tokens, which would never end an answer.
  for (const text of END_OF_GENERATION) types[vocabulary.idOf(text)] = CONTROL;
  return types;
}

/** True for Phi-3, whose control tokens absorb the whitespace after them. GGUF has no such flag. */
function hasPhi3Spaces(fields: GgufTokenizerFields): boolean {
  return /phi-?3/i.test(fields.modelName());
}

const PHI3_PLAIN: ReadonlySet<string> = new Set(["<unk>", "<s>", "<|endoftext|>"]);

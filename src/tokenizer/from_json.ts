import { ForgeError } from "../errors.ts";
import { ByteAlphabet, byteTokenIds, CharacterAlphabet } from "./alphabet.ts";
import { BpeEncoder, wholeWords, type WordEncoder } from "./bpe.ts";
import { readDecoder } from "./decoders.ts";
import { Fields } from "./fields.ts";
import { type Normalizer, readNormalizer } from "./normalizers.ts";
import { readMerges } from "./pair_table.ts";
import { PipelineTokenizer } from "./pipeline.ts";
import { readAffixes } from "./post_processor.ts";
import { chain, readPreTokenizer, splitBeforeMarkers } from "./pre_tokenizers.ts";
import { type AddedToken, endOfGenerationIds } from "./special_tokens.ts";
import type { Tokenizer } from "./tokenizer.ts";
import { MAX_TOKEN_ID, quote, Vocabulary } from "./vocabulary.ts";
import { WordCache } from "./word_cache.ts";

/** An added token and whether it is looked for in normalized text. */
interface DeclaredToken extends AddedToken {
  readonly normalized: boolean;
}

/**
 * The tokenizer of a Hugging Face folder.
 *
 * @param json the parsed tokenizer.json
 * @param config the parsed tokenizer_config.json, where there is one: names BOS and EOS, and says
 * whether they are added
 * @param source the file, for messages
 * @throws ForgeError `bad_model` when the file contradicts itself, `unsupported` when it asks for
 * what forge does not implement
 */
export function tokenizerFromJson(json: unknown, config: unknown, source: string): Tokenizer {
  const root = new Fields(json, `${source}:`);
  const settings = config === undefined || config === null
    ? undefined
    : new Fields(config, `${source} (tokenizer_config.json):`);
  const model = root.object("model");
  if (model === undefined) throw root.wrong("model", "an object");
  // Old files leave the type out, and are told apart by their fields.
  const type = model.string("type", model.get("merges") === undefined ? "unknown" : "BPE");
  if (type !== "BPE") throw model.unsupportedType(["BPE"]);

  const declared = root.objects("added_tokens").map(readAddedToken);
  const vocabulary = readVocabulary(model, declared);
  const added = declared.map((token) => ({ ...token, id: vocabulary.idOf(token.content) }));
  const special = new Set(added.filter((token) => token.special).map((token) => token.id));
  const normalize = readNormalizer(root.object("normalizer"));
  const preTokenizer = readPreTokenizer(root.object("pre_tokenizer"));
  const { words, keepsMarkersApart } = readModel(
    model,
    vocabulary,
    preTokenizer.bytes,
    (id) => special.has(id),
  );
  const { affixes, bosId, eosId } = readAffixes(root, settings, vocabulary);
  const byName = endOfGenerationIds(added);
  return new PipelineTokenizer({
    description: describe(vocabulary, preTokenizer.bytes, model),
    vocabulary,
    addedTokens: added.filter((token) => !token.normalized),
    normalizedTokens: added.filter((token) => token.normalized).map(normalizedWith(normalize)),
    normalize,
    preTokenize: keepsMarkersApart
      ? chain([preTokenizer.run, splitBeforeMarkers])
      : preTokenizer.run,
    words,
    decoder: readDecoder(root.object("decoder"), preTokenizer.bytes),
    affixes,
    bosId,
    eosIds: [...new Set(eosId === undefined ? byName : [eosId, ...byName])],
  });
}

function describe(vocabulary: Vocabulary, bytes: boolean, model: Fields): string {
  const fallback = model.boolean("byte_fallback", false) ? " with byte fallback" : "";
  return `${bytes ? "byte-level BPE" : `BPE${fallback}`}, ${vocabulary.size} tokens`;
}

function readAddedToken(json: Fields): DeclaredToken {
  const id = json.count("id");
  if (id > MAX_TOKEN_ID) throw json.wrong("id", `at most ${MAX_TOKEN_ID}`);
  const special = json.boolean("special", false);
  return {
    id,
    content: json.string("content"),
    special,
    lstrip: json.boolean("lstrip", false),
    rstrip: json.boolean("rstrip", false),
    singleWord: json.boolean("single_word", false),
    normalized: json.boolean("normalized", !special),
  };
}

function normalizedWith(normalize: Normalizer): (token: AddedToken) => AddedToken {
  return (token) => ({ ...token, content: normalize(token.content) });
}

function readVocabulary(model: Fields, added: readonly DeclaredToken[]): Vocabulary {
  const vocab = model.object("vocab");
  if (vocab === undefined) throw model.wrong("vocab", "an object");
  const texts: (string | undefined)[] = [];
  const place = (text: string, id: number, where: string) => {
    const other = texts[id];
    if (other !== undefined && other !== text) {
      throw new ForgeError(
        "bad_model",
        `${where} gives ${quote(other)} and ${quote(text)} the same id ${id}`,
      );
    }
    while (texts.length < id) texts.push(undefined);
    texts[id] = text;
  };
  for (const text of vocab.keys()) {
    const id = vocab.get(text);
    if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id > MAX_TOKEN_ID) {
      throw vocab.wrong(text, `an id from 0 to ${MAX_TOKEN_ID}`);
    }
    place(text, id, vocab.where);
  }
  for (const token of added) {
    // A token that the model has keeps the id it has there.
    if (vocab.get(token.content) === undefined) place(token.content, token.id, "added_tokens");
  }
  return new Vocabulary(texts, vocab.where);
}

/** Reads the BPE model, and whether text may be cut before each "▁" without changing the result. */
function readModel(
  model: Fields,
  vocabulary: Vocabulary,
  bytes: boolean,
  isSpecial: (id: number) => boolean,
): { words: WordEncoder; keepsMarkersApart: boolean } {
  for (const key of ["continuing_subword_prefix", "end_of_word_suffix"]) {
    if (model.string(key, "") !== "") throw unsupportedValue(model, key, `null or ""`);
  }
  if ((model.get("dropout") ?? 0) !== 0) throw unsupportedValue(model, "dropout", "null or 0");
  const unknownText = model.string("unk_token", "");
  const unknownId = unknownText === "" ? undefined : vocabulary.idOf(unknownText);
  if (unknownId !== undefined && unknownId < 0) {
    throw model.wrong("unk_token", "a token of the vocabulary");
  }
  const unknown = { unknownId, fuse: model.boolean("fuse_unk", false) };
  const list = model.array("merges");
  if (list === undefined) throw model.wrong("merges", "an array");
  const merges = readMerges(list, vocabulary, isSpecial, model.path("merges"));
  const fallback = model.boolean("byte_fallback", false) ? byteTokenIds(vocabulary) : undefined;
  const alphabet = bytes
    ? new ByteAlphabet(vocabulary, unknown)
    : new CharacterAlphabet(vocabulary, (id) => !isSpecial(id), fallback, unknown);
  const ignoresMerges = model.boolean("ignore_merges", false);
  const words = new BpeEncoder(
    alphabet,
    merges.table,
    ignoresMerges ? wholeWords(vocabulary, bytes, isSpecial) : undefined,
  );
  // Without "▁" as a piece, a run of unknown characters could reach across a cut.
  const canCut = merges.keepsMarkersApart && !ignoresMerges && vocabulary.idOf("▁") >= 0;
  return { words: new WordCache(words), keepsMarkersApart: canCut && !bytes };
}

function unsupportedValue(model: Fields, key: string, supported: string): ForgeError {
  const value = JSON.stringify(model.get(key));
  return new ForgeError("unsupported", `${model.path(key)} is ${value}; supported is ${supported}`);
}

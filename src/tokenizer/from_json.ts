import { ForgeError } from "../errors.ts";
import { quote } from "../formats/quote.ts";
import { ByteAlphabet, byteTokenIds, CharacterAlphabet } from "./models/alphabet.ts";
import { BpeEncoder, wholeWords } from "./models/bpe.ts";
import { WordCache, type WordEncoder } from "./models/word_encoder.ts";
import { readDecoder } from "./steps/decoders.ts";
import { Fields } from "./steps/fields.ts";
import { type Normalizer, readNormalizer } from "./steps/normalizers.ts";
import { readMerges } from "./models/merges.ts";
import { PipelineTokenizer } from "./pipeline.ts";
import { readAffixes } from "./steps/post_processor.ts";
import { chain, readPreTokenizer, splitBeforeMarkers } from "./steps/pre_tokenizers.ts";
import { type AddedToken, endOfGenerationIds } from "./special_tokens.ts";
import type { Tokenizer } from "./tokenizer.ts";
import { MAX_TOKEN_ID, Vocabulary } from "./vocabulary.ts";

/** Ids that may be left out beside those that the size of the vocabulary explains. */
const MOST_HOLES = 1 << 16;

/** An added token as tokenizer.json has it. */
interface DeclaredToken extends AddedToken {
  /** Whether it is looked for in normalized text. */
  readonly normalized: boolean;
  /** Where it is, for messages. */
  readonly where: string;
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
    : new Fields(config, `tokenizer_config.json beside ${source}:`);
  const model = root.object("model");
  if (model === undefined) throw root.wrong("model", "an object");
  // Old files leave the type out, and are told apart by their fields.
  const type = model.string("type", model.get("merges") === undefined ? "unknown" : "BPE");
  if (type !== "BPE") throw model.unsupportedType(["BPE"]);

  const declared = root.objects("added_tokens").map(readAddedToken)
    .filter((token) => token.content !== "");
  const vocabulary = readVocabulary(model, declared);
  const added = declared.map((token) => ({ ...token, id: vocabulary.idOf(token.content) }));
  const apart = tokensApart(model, added);
  const normalize = readNormalizer(root.object("normalizer"));
  const preTokenizer = readPreTokenizer(root.object("pre_tokenizer"));
  const { words, keepsMarkersApart } = readModel(
    model,
    vocabulary,
    preTokenizer.bytes,
    (id) => apart.has(id),
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
  const special = json.boolean("special", false);
  return {
    where: json.where,
    id: json.count("id"),
    content: json.string("content"),
    special,
    lstrip: json.boolean("lstrip", false),
    rstrip: json.boolean("rstrip", false),
    singleWord: json.boolean("single_word", false),
    normalized: json.boolean("normalized", !special),
  };
}

/** The ids of the added tokens that the model itself never makes of text. */
function tokensApart(model: Fields, added: readonly AddedToken[]): ReadonlySet<number> {
  const vocab = model.object("vocab");
  const apart = added.filter((token) => token.special || vocab?.get(token.content) === undefined);
  return new Set(apart.map((token) => token.id));
}

function normalizedWith(normalize: Normalizer): (token: AddedToken) => AddedToken {
  return (token) => ({ ...token, content: normalize(token.content) });
}

function readVocabulary(model: Fields, added: readonly DeclaredToken[]): Vocabulary {
  const vocab = model.object("vocab");
  if (vocab === undefined) throw model.wrong("vocab", "an object");
  const entries = vocab.entries();
  const texts: (string | undefined)[] = [];
  // A few tokens must not claim the memory of millions.
  const highest = Math.min(MAX_TOKEN_ID, MOST_HOLES + 4 * (entries.length + added.length));
  const place = (text: string, id: unknown, where: string) => {
    if (typeof id !== "number" || !Number.isInteger(id) || id < 0 || id > highest) {
      const shown = typeof id === "object" ? "not a number" : String(id);
      throw new ForgeError(
        "bad_model",
        `${where}: the id of ${quote(text)} is ${shown}; expected a number from 0 to ${highest}`,
      );
    }
    const other = texts[id];
    if (other !== undefined && other !== text) {
      throw new ForgeError(
        "bad_model",
        `${where}: ${quote(other)} and ${quote(text)} have the same id ${id}`,
      );
    }
    while (texts.length < id) texts.push(undefined);
    texts[id] = text;
  };
  for (const [text, id] of entries) place(text, id, vocab.where);
  for (const token of added) {
    // A token that the model has keeps the id it has there.
    if (vocab.get(token.content) === undefined) place(token.content, token.id, token.where);
  }
  return new Vocabulary(texts, vocab.where);
}

/** Reads the BPE model, and whether text may be cut before each "▁" without changing the result. */
function readModel(
  model: Fields,
  vocabulary: Vocabulary,
  bytes: boolean,
  isApart: (id: number) => boolean,
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
  const merges = readMerges(list, vocabulary, isApart, model.path("merges"));
  const fallback = model.boolean("byte_fallback", false) ? byteTokenIds(vocabulary) : undefined;
  const isPiece = (id: number) => !isApart(id);
  const alphabet = bytes
    ? new ByteAlphabet(vocabulary, isPiece, unknown)
    : new CharacterAlphabet(vocabulary, isPiece, fallback, unknown);
  const ignoresMerges = model.boolean("ignore_merges", false);
  const words = new BpeEncoder(
    alphabet,
    merges.table,
    ignoresMerges ? wholeWords(vocabulary, bytes, isApart) : undefined,
  );
  // Without "▁" as a piece, a run of unknown characters could reach across a cut.
  const canCut = merges.keepsMarkersApart && !ignoresMerges && vocabulary.idOf("▁") >= 0;
  return { words: new WordCache(words), keepsMarkersApart: canCut && !bytes };
}

function unsupportedValue(model: Fields, key: string, supported: string): ForgeError {
  const value = JSON.stringify(model.get(key));
  return new ForgeError("unsupported", `${model.path(key)} is ${value}; supported is ${supported}`);
}

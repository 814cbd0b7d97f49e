import { ForgeError } from "../errors.ts";
import { quote } from "../formats/quote.ts";
import { ByteAlphabet, byteTokenIds, CharacterAlphabet } from "./models/alphabet.ts";
import { BpeEncoder, wholeWords } from "./models/bpe.ts";
import { WordCache, type WordEncoder } from "./models/word_encoder.ts";
import { readDecoder } from "./steps/decoders.ts";
import { Fields } from "./steps/fields.ts";
import { type Normalizer, readNormalizer } from "./steps/normalizers.ts";
import { readMerges } from "./models/merges.ts";
import { checkPieceLengths, UnigramEncoder } from "./models/unigram.ts";
import { WordPieceEncoder } from "./models/wordpiece.ts";
import { PipelineTokenizer } from "./pipeline.ts";
import { readAffixes } from "./steps/post_processor.ts";
import { chain, readPreTokenizer, splitBeforeMarkers } from "./steps/pre_tokenizers.ts";
import { type AddedToken, endOfGenerationIds } from "./special_tokens.ts";
import type { Tokenizer } from "./tokenizer.ts";
import { MAX_TOKEN_ID, Vocabulary } from "./vocabulary.ts";

/** Maximum number of unused ids, in addition to 3 per token. */
const MOST_HOLES = 1 << 16;

/** An added token of tokenizer.json. */
interface DeclaredToken extends AddedToken {
  /** True if it is searched in normalized text. */
  readonly normalized: boolean;
  /** Its place in the file, for messages. */
  readonly where: string;
}

/**
 * Creates the tokenizer of a Hugging Face folder.
 *
 * @param json the parsed tokenizer.json
 * @param config the parsed tokenizer_config.json, if any: names BOS and EOS, and says if they are
 * added
 * @param source the file, for messages
 * @throws {ForgeError} `bad_model` if the file contradicts itself, `unsupported` if it requires
 * features that forge does not implement
 */
export function tokenizerFromJson(json: unknown, config: unknown, source: string): Tokenizer {
  const root = new Fields(json, `${source}:`);
  const settings = config === undefined || config === null
    ? undefined
    : new Fields(config, `tokenizer_config.json next to ${source}:`);
  const model = root.object("model");
  if (model === undefined) throw root.wrong("model", "an object");
  const type = model.string("type", guessType(model));
  const declared = root.objects("added_tokens").map(readAddedToken)
    .filter((token) => token.content !== "");
  const entries = readEntries(model, type);
  const vocabulary = readVocabulary(entries, declared, model.path("vocab"));
  const added = declared.map((token) => ({ ...token, id: vocabulary.idOf(token.content) }));
  const apart = tokensApart(entries, added);
  const isPiece = (id: number) => !apart.has(id);
  const normalize = readNormalizer(root.object("normalizer"));
  const preTokenizer = readPreTokenizer(root.object("pre_tokenizer"));
  const { bytes } = preTokenizer;
  const { words, canCutMarkers } = type === "BPE"
    ? readBpe(model, vocabulary, bytes, isPiece)
    : { words: readOtherModel(model, type, entries, vocabulary, isPiece), canCutMarkers: false };
  const { affixes, pair, bosId, eosId } = readAffixes(root, settings, vocabulary);
  const byName = endOfGenerationIds(added);
  return new PipelineTokenizer({
    description: describe(type, vocabulary, bytes, model),
    vocabulary,
    addedTokens: added.filter((token) => !token.normalized),
    normalizedTokens: added.filter((token) => token.normalized).map(normalizedWith(normalize)),
    normalize,
    preTokenize: canCutMarkers ? chain([preTokenizer.run, splitBeforeMarkers]) : preTokenizer.run,
    words: new WordCache(words),
    decoder: readDecoder(root.object("decoder"), bytes),
    affixes,
    pair,
    bosId,
    eosIds: [...new Set(eosId === undefined ? byName : [eosId, ...byName])],
  });
}

/** Returns the type of a model without the field `type`, which old files omit. */
function guessType(model: Fields): string {
  if (model.get("merges") !== undefined) return "BPE";
  if (Array.isArray(model.get("vocab"))) return "Unigram";
  return model.get("max_input_chars_per_word") !== undefined ? "WordPiece" : "unknown";
}

function describe(type: string, vocabulary: Vocabulary, bytes: boolean, model: Fields): string {
  const level = bytes ? "byte-level " : "";
  const fallback = !bytes && model.boolean("byte_fallback", false) ? " with byte fallback" : "";
  return `${level}${type}${fallback}, ${vocabulary.size} tokens`;
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

/** A piece of the model with its id, and its score if the model has scores. */
interface Entry {
  readonly text: string;
  readonly id: unknown;
  readonly score?: unknown;
}

const MODEL_TYPES = ["BPE", "Unigram", "WordPiece"];

/** Reads the vocabulary of the model: an object of ids, or a list of pieces with scores. */
function readEntries(model: Fields, type: string): readonly Entry[] {
  if (!MODEL_TYPES.includes(type)) throw model.unsupportedType(MODEL_TYPES);
  if (type !== "Unigram") {
    const vocab = model.object("vocab");
    if (vocab === undefined) throw model.wrong("vocab", "an object");
    return vocab.entries().map(([text, id]) => ({ text, id }));
  }
  const vocab = model.array("vocab");
  if (vocab === undefined) throw model.wrong("vocab", "an array");
  return vocab.map((entry, id) => {
    const [text, score] = Array.isArray(entry) ? entry : [];
    if (typeof text === "string" && Number.isFinite(score)) return { text, id, score };
    throw new ForgeError("bad_model", `${model.path("vocab")}[${id}] is not a piece and its score`);
  });
}

/** Returns the ids of the added tokens that the model never produces from text. */
function tokensApart(
  entries: readonly Entry[],
  added: readonly AddedToken[],
): ReadonlySet<number> {
  const texts = new Set(entries.map(({ text }) => text));
  const apart = added.filter((token) => token.special || !texts.has(token.content));
  return new Set(apart.map((token) => token.id));
}

function normalizedWith(normalize: Normalizer): (token: AddedToken) => AddedToken {
  return (token) => ({ ...token, content: normalize(token.content) });
}

function readVocabulary(
  entries: readonly Entry[],
  added: readonly DeclaredToken[],
  where: string,
): Vocabulary {
  const texts: (string | undefined)[] = [];
  // Ids are bounded, so that a small file with a huge id cannot exhaust memory.
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
  for (const { text, id } of entries) place(text, id, where);
  const known = new Set(entries.map(({ text }) => text));
  for (const token of added) {
    // A token of the model keeps its id.
    if (!known.has(token.content)) place(token.content, token.id, token.where);
  }
  return new Vocabulary(texts, where);
}

/** Reads a BPE model. `canCutMarkers`: text may be cut before each "▁" with the same result. */
function readBpe(
  model: Fields,
  vocabulary: Vocabulary,
  bytes: boolean,
  isPiece: (id: number) => boolean,
): { words: WordEncoder; canCutMarkers: boolean } {
  for (const key of ["continuing_subword_prefix", "end_of_word_suffix"]) {
    if (model.string(key, "") !== "") throw unsupportedValue(model, key, `null or ""`);
  }
  if ((model.get("dropout") ?? 0) !== 0) throw unsupportedValue(model, "dropout", "null or 0");
  const unknownId = unknownToken(model, vocabulary, "");
  const unknown = { unknownId, fuse: model.boolean("fuse_unk", false) };
  const list = model.array("merges");
  if (list === undefined) throw model.wrong("merges", "an array");
  const isApart = (id: number) => !isPiece(id);
  const merges = readMerges(list, vocabulary, isApart, model.path("merges"));
  const fallback = model.boolean("byte_fallback", false) ? byteTokenIds(vocabulary) : undefined;
  const alphabet = bytes
    ? new ByteAlphabet(vocabulary, isPiece, unknown)
    : new CharacterAlphabet(vocabulary, isPiece, fallback, unknown);
  const ignoresMerges = model.boolean("ignore_merges", false);
  const words = new BpeEncoder(
    alphabet,
    merges.table,
    ignoresMerges ? wholeWords(vocabulary, bytes, isApart) : undefined,
  );
  // Without "▁" as a piece, a run of unknown characters could join across a cut.
  const canCut = merges.keepsMarkersApart && !ignoresMerges && vocabulary.idOf("▁") >= 0;
  return { words, canCutMarkers: canCut && !bytes };
}

function readOtherModel(
  model: Fields,
  type: string,
  entries: readonly Entry[],
  vocabulary: Vocabulary,
  isPiece: (id: number) => boolean,
): WordEncoder {
  checkPieceLengths(vocabulary, model.path("vocab"));
  if (type === "WordPiece") {
    return new WordPieceEncoder(vocabulary, isPiece, {
      unknownId: unknownToken(model, vocabulary, "[UNK]"),
      wordPrefix: "",
      innerPrefix: model.insert("continuing_subword_prefix", "##"),
      longestWord: model.count("max_input_chars_per_word", 100),
    });
  }
  const scores = new Float64Array(vocabulary.size);
  let lowestScore = entries.length === 0 ? 0 : Infinity;
  for (const [id, { score }] of entries.entries()) {
    scores[id] = Number(score);
    lowestScore = Math.min(lowestScore, Number(score));
  }
  const unknownId = model.get("unk_id") === undefined ? undefined : model.count("unk_id");
  if (unknownId !== undefined && unknownId >= entries.length) {
    throw model.wrong("unk_id", `an id from 0 to ${entries.length - 1}`);
  }
  return new UnigramEncoder(vocabulary, scores, isPiece, {
    unknownId,
    lowestScore,
    byteFallback: model.boolean("byte_fallback", false),
  });
}

/** Returns the id of `unk_token`; `undefined` for a model without one. */
function unknownToken(
  model: Fields,
  vocabulary: Vocabulary,
  fallback: string,
): number | undefined {
  const text = model.string("unk_token", fallback);
  if (text === "") return undefined;
  const id = vocabulary.idOf(text);
  if (id < 0) throw model.wrong("unk_token", "a token of the vocabulary");
  return id;
}

function unsupportedValue(model: Fields, key: string, supported: string): ForgeError {
  const value = JSON.stringify(model.get(key));
  return new ForgeError("unsupported", `${model.path(key)} is ${value}; supported is ${supported}`);
}

import { ForgeError } from "../errors.ts";
import { quote } from "../formats/quote.ts";
import { ByteAlphabet, byteTokenIds, CharacterAlphabet } from "./models/alphabet.ts";
import { BpeEncoder, wholeWords } from "./models/bpe.ts";
import { byteLevelDecoder, sentencePieceDecoder } from "./steps/decoders.ts";
import { GgufTokenizerFields } from "./gguf/fields.ts";
import { buildPreTokenizer, ggufPreTokenizer } from "./gguf/pre_tokenizers.ts";
import { type GgufTokens, readGgufTokens } from "./gguf/tokens.ts";
import { readMerges, ScorePairs } from "./models/merges.ts";
import { checkPieceLengths, UnigramEncoder } from "./models/unigram.ts";
import { WordPieceEncoder } from "./models/wordpiece.ts";
import { Charsmap } from "./steps/charsmap.ts";
import { bertNormalizer, rewriteBy } from "./steps/normalizers.ts";
import { PipelineTokenizer } from "./pipeline.ts";
import { bertPair, plainPair } from "./steps/post_processor.ts";
import { bertPreTokenizer, chain, splitBeforeMarkers, wholeText } from "./steps/pre_tokenizers.ts";
import type { Tokenizer } from "./tokenizer.ts";
import { WordCache } from "./models/word_encoder.ts";

/** Architectures whose tokenizers, but for WordPiece, join pairs as RoBERTa does. */
const ROBERTA_PAIRS = ["bert", "jina-bert-v3"];

/** Supported values of `tokenizer.ggml.model`. */
const MODELS = ["gpt2", "llama", "gemma4", "t5", "bert"] as const;

/**
 * Creates the tokenizer of a GGUF file.
 *
 * @param metadata the file's key-value pairs; those under `tokenizer.ggml` are read
 * @param source the file, for messages
 * @param warn called with problems of a file that can still be used
 * @throws {ForgeError} `bad_model` if the file contradicts itself, `unsupported` if it requires
 * features that forge does not implement
 */
export function tokenizerFromGguf(
  metadata: ReadonlyMap<string, unknown>,
  source: string,
  warn: (message: string) => void = console.warn,
): Tokenizer {
  const fields = new GgufTokenizerFields(metadata, source);
  const model = fields.string("model");
  switch (model) {
    case "gpt2": {
      const name = fields.optionalString("pre");
      if (name === undefined) {
        warn(
          `${
            fields.where("pre")
          } is missing; text is cut as "default" says, which the model may not expect`,
        );
      }
      return bytePairTokenizer(fields, name ?? "default");
    }
    case "gemma4":
      return bytePairTokenizer(fields, "gemma4");
    case "llama":
      return sentencePieceTokenizer(fields);
    case "t5":
      return unigramTokenizer(fields);
    case "bert":
      return wordPieceTokenizer(fields);
  }
  throw new ForgeError(
    "unsupported",
    `${fields.where("model")} ${quote(model)} is not supported; ` +
      `supported are ${MODELS.join(", ")}`,
  );
}

/** Creates BPE over a list of merges. */
function bytePairTokenizer(fields: GgufTokenizerFields, name: string): Tokenizer {
  const pre = ggufPreTokenizer(name, fields.where("pre"));
  const tokens = readGgufTokens(fields, {});
  const { vocabulary, isSpecial } = tokens;
  const merges = readMerges(
    fields.strings("merges"),
    vocabulary,
    isSpecial,
    fields.where("merges"),
  );
  const cut = buildPreTokenizer(pre.patterns, fields.where("pre"));
  // Characters without a token are dropped, as in llama.cpp: the unknown token of these files is
  // often one that ends a text.
  const unknown = {};
  const { form } = pre;
  const shared = {
    ...identity(fields, tokens, pre.addBos ?? false),
    vocabulary,
    addedTokens: tokens.added,
    normalizedTokens: [],
  };
  if (!pre.characters) {
    const whole = pre.ignoreMerges ? wholeWords(vocabulary, true, isSpecial) : undefined;
    const alphabet = new ByteAlphabet(vocabulary, (id) => !isSpecial(id), unknown);
    return new PipelineTokenizer({
      ...shared,
      description: `byte-level BPE, ${vocabulary.size} tokens, pre-tokenizer ${name}`,
      normalize: (text) => form ? text.normalize(form) : text,
      preTokenize: cut,
      words: new WordCache(new BpeEncoder(alphabet, merges.table, whole)),
      decoder: byteLevelDecoder,
    });
  }
  const isMarked = pre.characters === "marked";
  const alphabet = new CharacterAlphabet(
    vocabulary,
    tokens.isPiece,
    byteTokenIds(vocabulary),
    unknown,
  );
  // Runs of newlines are tokens that merging does not always reach.
  const lookUp = wholeWords(vocabulary, false, isSpecial);
  const whole = (word: string) => word.startsWith("\n") ? lookUp(word) : -1;
  const canCut = merges.keepsMarkersApart && vocabulary.idOf("▁") >= 0;
  return new PipelineTokenizer({
    ...shared,
    description: `BPE with byte fallback, ${vocabulary.size} tokens, pre-tokenizer ${name}`,
    normalize: (text) => isMarked ? text.replaceAll(" ", "▁") : text,
    preTokenize: canCut ? chain([cut, splitBeforeMarkers]) : cut,
    words: new WordCache(new BpeEncoder(alphabet, merges.table, whole)),
    decoder: sentencePieceDecoder(false),
  });
}

/** Creates SentencePiece's BPE, which has a score for each piece instead of merges. */
function sentencePieceTokenizer(fields: GgufTokenizerFields): Tokenizer {
  const tokens = readGgufTokens(fields, { bosId: 1, eosId: 2, unknownId: 0 });
  const { vocabulary, isPiece } = tokens;
  const scores = fields.numbers("scores", vocabulary.size);
  if (scores === undefined) throw fields.wrong("scores", "an array of numbers");
  const alphabet = new CharacterAlphabet(vocabulary, isPiece, byteTokenIds(vocabulary), {
    unknownId: tokens.unknownId,
    fuse: true,
  });
  const addsSpace = fields.boolean("add_space_prefix") ?? true;
  const prefix = addsSpace ? "▁" : "";
  return new PipelineTokenizer({
    ...identity(fields, tokens, true),
    description: `SentencePiece BPE, ${vocabulary.size} tokens`,
    vocabulary,
    addedTokens: tokens.added,
    normalizedTokens: [],
    normalize: (text) => prefix + text.replaceAll(" ", "▁"),
    preTokenize: hasInnerMarker(tokens) ? wholeText : splitBeforeMarkers,
    words: new WordCache(new BpeEncoder(alphabet, new ScorePairs(vocabulary, scores, isPiece))),
    decoder: sentencePieceDecoder(addsSpace),
  });
}

/** Creates SentencePiece's unigram models, such as T5 and XLM-RoBERTa. */
function unigramTokenizer(fields: GgufTokenizerFields): Tokenizer {
  const tokens = readGgufTokens(fields, { eosId: 1, unknownId: 2 });
  const { vocabulary, isPiece } = tokens;
  checkPieceLengths(vocabulary, fields.where("tokens"));
  const declared = fields.numbers("scores", vocabulary.size);
  if (declared === undefined) throw fields.wrong("scores", "an array of numbers");
  const scores = Float64Array.from(declared.subarray(0, vocabulary.size));
  // User-defined tokens are cut out of the text beforehand. Elsewhere their score is 0.
  for (const { id, special } of tokens.added) if (!special) scores[id] = 0;
  const lowestScore = scores.reduce(
    (low, score, id) => isPiece(id) ? Math.min(low, score) : low,
    0,
  );
  const charsmapBytes = fields.bytes("precompiled_charsmap");
  const charsmap = charsmapBytes?.length
    ? new Charsmap(charsmapBytes, fields.where("precompiled_charsmap"))
    : undefined;
  const addsSpace = fields.boolean("add_space_prefix") ?? false;
  const mergesSpaces = fields.boolean("remove_extra_whitespaces") ?? false;
  return new PipelineTokenizer({
    ...identity(fields, tokens, false, true),
    description: `SentencePiece unigram, ${vocabulary.size} tokens`,
    vocabulary,
    addedTokens: tokens.added,
    normalizedTokens: [],
    normalize: rewriteBy([
      (text, limit) => charsmap?.replaceLongest(text, limit) ?? text,
      (text) => markSpaces(text, addsSpace, mergesSpaces),
    ], fields.where("precompiled_charsmap")),
    preTokenize: hasInnerMarker(tokens) ? wholeText : splitBeforeMarkers,
    words: new WordCache(
      new UnigramEncoder(vocabulary, scores, isPiece, {
        unknownId: tokens.unknownId,
        lowestScore,
      }),
    ),
    decoder: sentencePieceDecoder(addsSpace || mergesSpaces),
  });
}

/** Writes spaces as "▁", with one before the first word; merged, every word has exactly one. */
function markSpaces(text: string, addsSpace: boolean, mergesSpaces: boolean): string {
  if (mergesSpaces) {
    return text.split(" ").filter((word) => word !== "").map((word) => `▁${word}`).join("");
  }
  const start = text.search(/[^ ]/);
  const marked = text.replaceAll(" ", "▁");
  return addsSpace && start >= 0 ? `${marked.slice(0, start)}▁${marked.slice(start)}` : marked;
}

/** Creates BERT's WordPiece. The converter adds "▁" to pieces that begin a word and drops "##". */
function wordPieceTokenizer(fields: GgufTokenizerFields): Tokenizer {
  const tokens = readGgufTokens(fields, { bosId: 101, unknownId: 100, separatorId: 102 });
  const { vocabulary, isPiece } = tokens;
  checkPieceLengths(vocabulary, fields.where("tokens"));
  const lowercases = fields.boolean("normalizer.lowercase") ?? true;
  const addsSeparator = fields.boolean("add_sep_token") ?? true;
  if (addsSeparator && tokens.separatorId === undefined) {
    throw fields.wrong("seperator_token_id", "a token id");
  }
  const around = identity(fields, tokens, true);
  const suffix = addsSeparator ? [tokens.separatorId!] : around.affixes.suffix;
  return new PipelineTokenizer({
    ...around,
    affixes: { ...around.affixes, suffix },
    pair: bertPair({ ...around.affixes, suffix }),
    description: `WordPiece, ${vocabulary.size} tokens`,
    vocabulary,
    addedTokens: tokens.added,
    normalizedTokens: [],
    normalize: bertNormalizer({
      cleansText: true,
      separatesChinese: true,
      stripsAccents: fields.boolean("normalizer.strip_accents") ?? lowercases,
      lowercases,
    }),
    preTokenize: bertPreTokenizer(fields.where("model")),
    words: new WordCache(
      new WordPieceEncoder(vocabulary, isPiece, {
        unknownId: tokens.unknownId,
        wordPrefix: "▁",
        innerPrefix: "",
        longestWord: 100,
      }),
    ),
    decoder: sentencePieceDecoder(true),
  });
}

/** True if a piece has a "▁" after another character: text then cannot be cut before each "▁". */
function hasInnerMarker({ vocabulary, isPiece }: GgufTokens): boolean {
  if (vocabulary.idOf("▁") < 0) return true; // unknown characters could join across a cut
  const inner = /[^▁]▁/;
  for (let id = 0; id < vocabulary.size; id++) {
    if (isPiece(id) && inner.test(vocabulary.text(id) ?? "")) return true;
  }
  return false;
}

/** Returns the tokens around a text, and those that end generation. */
function identity(
  fields: GgufTokenizerFields,
  { bosId, eosId, endIds }: GgufTokens,
  addsBosByDefault: boolean | "always",
  addsEosByDefault = false,
) {
  const always = addsBosByDefault === "always";
  const declaredBos = always ? undefined : fields.boolean("add_bos_token");
  const declaredEos = fields.boolean("add_eos_token");
  const addEos = declaredEos ?? addsEosByDefault;
  if (declaredBos && bosId === undefined) throw fields.wrong("bos_token_id", "a token id");
  if (declaredEos && eosId === undefined) throw fields.wrong("eos_token_id", "a token id");
  const addBos = declaredBos ?? addsBosByDefault !== false;
  const affixes = {
    prefix: addBos && bosId !== undefined ? [bosId] : [],
    suffix: addEos && eosId !== undefined ? [eosId] : [],
  };
  return {
    bosId,
    eosIds: endIds,
    affixes,
    pair: plainPair(affixes, ROBERTA_PAIRS.includes(fields.architecture())),
  };
}

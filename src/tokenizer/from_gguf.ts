import { ForgeError } from "../errors.ts";
import { quote } from "../formats/quote.ts";
import { ByteAlphabet, byteTokenIds, CharacterAlphabet } from "./models/alphabet.ts";
import { BpeEncoder, wholeWords } from "./models/bpe.ts";
import { byteLevelDecoder, sentencePieceDecoder } from "./steps/decoders.ts";
import { GgufTokenizerFields } from "./gguf/fields.ts";
import { buildPreTokenizer, ggufPreTokenizer } from "./gguf/pre_tokenizers.ts";
import { type GgufTokens, readGgufTokens } from "./gguf/tokens.ts";
import { readMerges, ScorePairs } from "./models/merges.ts";
import { PipelineTokenizer } from "./pipeline.ts";
import { chain, splitBeforeMarkers, wholeText } from "./steps/pre_tokenizers.ts";
import type { Tokenizer } from "./tokenizer.ts";
import { WordCache } from "./models/word_encoder.ts";

/** The values of `tokenizer.ggml.model` that are implemented. */
const MODELS = ["gpt2", "llama", "gemma4"] as const;

/**
 * The tokenizer of a GGUF file.
 *
 * @param metadata the file's key-value pairs; those under `tokenizer.ggml` are read
 * @param source the file, for messages
 * @throws ForgeError `bad_model` when the file contradicts itself, `unsupported` when it asks for
 * what forge does not implement
 */
export function tokenizerFromGguf(
  metadata: ReadonlyMap<string, unknown>,
  source: string,
): Tokenizer {
  const fields = new GgufTokenizerFields(metadata, source);
  const model = fields.string("model");
  switch (model) {
    case "gpt2":
      return bytePairTokenizer(fields, fields.optionalString("pre"));
    case "gemma4":
      return bytePairTokenizer(fields, "gemma4");
    case "llama":
      return sentencePieceTokenizer(fields);
  }
  throw new ForgeError(
    "unsupported",
    `${fields.where("model")} ${quote(model)} is not supported; ` +
      `supported are ${MODELS.join(", ")}`,
  );
}

/** BPE over a list of merges. */
function bytePairTokenizer(fields: GgufTokenizerFields, name: string | undefined): Tokenizer {
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
  const unknown = { unknownId: tokens.unknownId };
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
      normalize: (text) => text,
      preTokenize: cut,
      words: new WordCache(new BpeEncoder(alphabet, merges.table, whole)),
      decoder: byteLevelDecoder,
    });
  }
  const alphabet = new CharacterAlphabet(
    vocabulary,
    tokens.isPiece,
    byteTokenIds(vocabulary),
    unknown,
  );
  // Runs of newlines are tokens that the merges do not always lead to.
  const lookUp = wholeWords(vocabulary, false, isSpecial);
  const whole = (word: string) => word.startsWith("\n") ? lookUp(word) : -1;
  const canCut = merges.keepsMarkersApart && vocabulary.idOf("▁") >= 0;
  return new PipelineTokenizer({
    ...shared,
    description: `BPE with byte fallback, ${vocabulary.size} tokens, pre-tokenizer ${name}`,
    normalize: (text) => text.replaceAll(" ", "▁"),
    preTokenize: canCut ? chain([cut, splitBeforeMarkers]) : cut,
    words: new WordCache(new BpeEncoder(alphabet, merges.table, whole)),
    decoder: sentencePieceDecoder(false),
  });
}

/** SentencePiece's BPE, which has a score for each piece instead of merges. */
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

/** Whether a piece has a "▁" behind another character, so that text cannot be cut before each. */
function hasInnerMarker({ vocabulary, isPiece }: GgufTokens): boolean {
  if (vocabulary.idOf("▁") < 0) return true; // unknown characters could reach across
  const inner = /[^▁]▁/;
  for (let id = 0; id < vocabulary.size; id++) {
    if (isPiece(id) && inner.test(vocabulary.text(id) ?? "")) return true;
  }
  return false;
}

/** What is put around a text, and what ends generation. */
function identity(
  fields: GgufTokenizerFields,
  { bosId, eosId, endIds }: GgufTokens,
  addsBosByDefault: boolean | "always",
) {
  const always = addsBosByDefault === "always";
  const declaredBos = always ? undefined : fields.boolean("add_bos_token");
  const addEos = fields.boolean("add_eos_token") ?? false;
  if (declaredBos && bosId === undefined) throw fields.wrong("bos_token_id", "a token id");
  if (addEos && eosId === undefined) throw fields.wrong("eos_token_id", "a token id");
  const addBos = declaredBos ?? addsBosByDefault !== false;
  return {
    bosId,
    eosIds: endIds,
    affixes: {
      prefix: addBos && bosId !== undefined ? [bosId] : [],
      suffix: addEos && eosId !== undefined ? [eosId] : [],
    },
  };
}

import { ForgeError } from "../errors.ts";
import { ByteAlphabet, byteTokenIds, byteTokenText, CharacterAlphabet } from "./alphabet.ts";
import { BpeEncoder, type WordEncoder, wholeWords } from "./bpe.ts";
import { byteLevelDecoder, type Decoder, sentencePieceDecoder } from "./decoders.ts";
import {
  buildPreTokenizer,
  ggufPreTokenizer,
  type GgufPreTokenizer,
} from "./gguf_pre_tokenizers.ts";
import { GgufTokenizerFields } from "./gguf_fields.ts";
import type { Normalizer } from "./normalizers.ts";
import { readMerges } from "./pair_table.ts";
import { PipelineTokenizer } from "./pipeline.ts";
import { chain, type PreTokenizer, splitBeforeMarkers, wholeText } from "./pre_tokenizers.ts";
import { ScorePairs } from "./score_pairs.ts";
import { type AddedToken, endOfGenerationIds } from "./special_tokens.ts";
import type { Tokenizer } from "./tokenizer.ts";
import { Vocabulary } from "./vocabulary.ts";
import { WordCache } from "./word_cache.ts";

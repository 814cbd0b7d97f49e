export { tokenizerFromGguf } from "./from_gguf.ts";
export { tokenizerFromJson } from "./from_json.ts";
export { finish, TokenLimitError } from "./models/word_encoder.ts";
export { StreamDecoder, type StreamDecoderOptions } from "./stream_decoder.ts";

import type { PairPiece } from "./steps/post_processor.ts";

export type { PairPiece };

/** Options of `Tokenizer.encode`. */
export interface EncodeOptions {
  /**
   * Add BOS and EOS as the model defines; no second BOS is added to a text that begins with BOS.
   *
   * @default true
   */
  readonly addSpecial?: boolean;
  /**
   * Recognise control tokens, such as `<|im_start|>`, in the text. If false, no text becomes a
   * control token.
   *
   * @default true
   */
  readonly parseSpecial?: boolean;
  /**
   * Maximum number of tokens. Encoding stops as soon as the text is known to have more.
   *
   * @default none
   */
  readonly maxTokens?: number | undefined;
  /**
   * True to return the first `maxTokens` of a longer text instead of failing.
   *
   * @default false
   */
  readonly truncate?: boolean;
}

/** Options of `Tokenizer.decode`. */
export interface DecodeOptions {
  /**
   * Leave out control tokens.
   *
   * @default true
   */
  readonly skipSpecial?: boolean;
}

/** A character that decoding removes from the start of a text, at most `count` times. */
export interface LeadingStrip {
  /** The character, such as a space. */
  readonly character: string;
  /** Maximum number of removals. */
  readonly count: number;
}

/** Converts between text and the token ids of one model. */
export interface Tokenizer {
  /** One more than the highest id, including added tokens. */
  readonly vocabSize: number;
  /** The token that begins a text, if the model has one. */
  readonly bosId: number | undefined;
  /** Tokens that end generation; a model's generation_config may add others. */
  readonly eosIds: readonly number[];
  /** True if `encode` puts BOS before a text. */
  readonly addBos: boolean;
  /** True if `encode` puts EOS after a text. */
  readonly addEos: boolean;
  /** One line for people: "byte-level BPE, 128256 tokens, pre-tokenizer llama-bpe". */
  readonly description: string;
  /**
   * Prefix that encoding adds to a text and decoding removes: a space for SentencePiece, nothing
   * for byte-level BPE.
   */
  readonly leadingStrip?: LeadingStrip | undefined;
  /** True if decoding a whole text removes a space from its start. */
  readonly stripsLeadingSpace: boolean;

  /**
   * Returns the ids of a text. A lone surrogate counts as U+FFFD; text without a token is dropped.
   *
   * @throws {TokenLimitError} for a text of more than `maxTokens`
   */
  encode(text: string, options?: EncodeOptions): Int32Array;

  /**
   * Encodes like {@linkcode encode}, except `truncate`, and yields every few milliseconds of work
   * on long words. Several may be in progress.
   */
  encodeInSlices(
    text: string,
    options?: Omit<EncodeOptions, "truncate">,
  ): Generator<void, Int32Array>;

  /**
   * Returns the text of ids. Bytes that are not valid UTF-8 become U+FFFD.
   *
   * @throws ForgeError `bad_input` for an id outside the vocabulary
   */
  decode(ids: Iterable<number>, options?: DecodeOptions): string;

  /**
   * Returns the bytes that an id adds to generated text, including a leading space; none for
   * control tokens.
   *
   * @param isFirst true for the first piece of a whole text, which some decoders strip
   * @throws ForgeError `bad_input` for an id outside the vocabulary
   */
  tokenBytes(id: number, isFirst?: boolean): Uint8Array;

  /**
   * Returns the piece of an id as written in the vocabulary; "" for an id without a piece.
   *
   * @throws ForgeError `bad_input` for an id outside the vocabulary
   */
  tokenText(id: number): string;

  /** True for the id of a control token; `false` outside the vocabulary. */
  isSpecial(id: number): boolean;

  /** Parts of the encoding of a pair of texts. */
  readonly pair: readonly PairPiece[];

  /** Returns the id of a piece as written in the vocabulary; `undefined` if there is none. */
  idOf(token: string): number | undefined;
}

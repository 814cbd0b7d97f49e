export { tokenizerFromGguf } from "./from_gguf.ts";
export { tokenizerFromJson } from "./from_json.ts";
export { StreamDecoder, type StreamDecoderOptions } from "./stream_decoder.ts";

/** What `Tokenizer.encode` can be told. */
export interface EncodeOptions {
  /**
   * Add BOS and EOS as the model says; a BOS that the text begins with is not doubled.
   *
   * @default true
   */
  readonly addSpecial?: boolean;
  /**
   * Recognise control tokens, such as `<|im_start|>`, in the text. Without this no text becomes a
   * control token, whatever it says.
   *
   * @default true
   */
  readonly parseSpecial?: boolean;
}

/** What `Tokenizer.decode` can be told. */
export interface DecodeOptions {
  /**
   * Leave out control tokens.
   *
   * @default true
   */
  readonly skipSpecial?: boolean;
}

/** Text to token ids and back, for one model. */
export interface Tokenizer {
  /** One more than the highest id; added tokens included. */
  readonly vocabSize: number;
  /** The token that begins a text, if the model has one. */
  readonly bosId: number | undefined;
  /** The tokens known to end generation; a model's generation_config may name more. */
  readonly eosIds: readonly number[];
  /** Whether `encode` puts BOS before a text. */
  readonly addBos: boolean;
  /** Whether `encode` puts EOS behind a text. */
  readonly addEos: boolean;
  /** One line for people: "byte-level BPE, 128256 tokens, pre-tokenizer llama-bpe". */
  readonly description: string;

  /**
   * The ids of a text. A lone surrogate counts as U+FFFD.
   *
   * @throws ForgeError `bad_input` when a character has no token
   */
  encode(text: string, options?: EncodeOptions): Int32Array;

  /**
   * The text of ids. Bytes that are not valid UTF-8 become U+FFFD.
   *
   * @throws ForgeError `bad_input` for an id outside the vocabulary
   */
  decode(ids: Iterable<number>, options?: DecodeOptions): string;

  /**
   * The bytes an id adds to generated text, a leading space included; none for control tokens.
   *
   * @throws ForgeError `bad_input` for an id outside the vocabulary
   */
  tokenBytes(id: number): Uint8Array;

  /**
   * The piece of an id as the vocabulary writes it; "" for an id it leaves out.
   *
   * @throws ForgeError `bad_input` for an id outside the vocabulary
   */
  tokenText(id: number): string;

  /** Whether an id is a control token; `false` outside the vocabulary. */
  isSpecial(id: number): boolean;

  /** The id of a piece as the vocabulary writes it. */
  idOf(token: string): number | undefined;
}

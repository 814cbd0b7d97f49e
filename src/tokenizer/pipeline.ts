import { ForgeError } from "../errors.ts";
import {
  BOOLEAN,
  checkArgument,
  checkOptions,
  NUMBER,
  type OptionCheck,
  type OptionChecks,
  STRING,
} from "../formats/arguments.ts";
import { show } from "../formats/quote.ts";
import type { Decoder } from "./steps/decoders.ts";
import { IdBuffer, LONG_WORD, TokenLimitError, type WordEncoder } from "./models/word_encoder.ts";
import type { Normalizer } from "./steps/normalizers.ts";
import { type Affixes, type PairPiece, plainPair } from "./steps/post_processor.ts";
import type { PreTokenizer } from "./steps/pre_tokenizers.ts";
import { type AddedToken, AddedTokenFinder } from "./special_tokens.ts";
import { LeadingStripper } from "./stream_decoder.ts";
import type { DecodeOptions, EncodeOptions, LeadingStrip, Tokenizer } from "./tokenizer.ts";
import type { Vocabulary } from "./vocabulary.ts";

/** Longest word, in symbols, that a truncated text may end inside of. */
const LONGEST_CUT = 1 << 18;

/** The parts of a tokenizer. */
interface PipelineParts {
  readonly description: string;
  readonly vocabulary: Vocabulary;
  /** Tokens cut out of the text as it is. */
  readonly addedTokens: readonly AddedToken[];
  /** Tokens cut out of the text after it is normalized; their content is normalized too. */
  readonly normalizedTokens: readonly AddedToken[];
  readonly normalize: Normalizer;
  readonly preTokenize: PreTokenizer;
  readonly words: WordEncoder;
  readonly decoder: Decoder;
  readonly affixes: Affixes;
  /** @default the affixes around both texts */
  readonly pair?: readonly PairPiece[] | undefined;
  readonly bosId: number | undefined;
  readonly eosIds: readonly number[];
}

/** The finders used with or without control tokens (`parseSpecial`). */
interface Finders {
  readonly raw: AddedTokenFinder;
  readonly normalized: AddedTokenFinder;
}

/**
 * A tokenizer of several steps: added tokens are cut out, the text between them is normalized and
 * pre-tokenized, and each piece is encoded separately.
 */
export class PipelineTokenizer implements Tokenizer {
  readonly vocabSize: number;
  readonly bosId: number | undefined;
  readonly eosIds: readonly number[];
  readonly addBos: boolean;
  readonly addEos: boolean;
  readonly description: string;
  readonly leadingStrip: LeadingStrip | undefined;
  readonly stripsLeadingSpace: boolean;
  readonly pair: readonly PairPiece[];

  readonly #parts: PipelineParts;
  readonly #pieces: PieceBytes;
  readonly #added = new Map<number, AddedToken>();
  readonly #allTokens: Finders;
  readonly #textTokens: Finders;

  constructor(parts: PipelineParts) {
    this.#parts = parts;
    this.vocabSize = parts.vocabulary.size;
    this.bosId = parts.bosId;
    this.pair = parts.pair ?? plainPair(parts.affixes);
    this.eosIds = parts.eosIds;
    this.description = parts.description;
    const strip = parts.decoder.strip;
    this.leadingStrip = strip?.character === "" ? undefined : strip;
    // Metaspace and WordPiece decoders leave the space of the first piece out.
    const startsWithSpace = (piece: string, isFirst: boolean) =>
      parts.decoder.toBytes(piece, isFirst)[0] === 0x20;
    this.stripsLeadingSpace = strip?.character === " " ||
      ["\u2581x", "x"].some((piece) =>
        startsWithSpace(piece, false) && !startsWithSpace(piece, true)
      );
    this.#pieces = new PieceBytes(parts.vocabulary.size);
    const { prefix, suffix } = parts.affixes;
    this.addBos = parts.bosId !== undefined && prefix.includes(parts.bosId);
    this.addEos = suffix.some((id) => parts.eosIds.includes(id));
    for (const token of [...parts.addedTokens, ...parts.normalizedTokens]) {
      this.#added.set(token.id, token);
    }
    const isText = (token: AddedToken) => !token.special;
    this.#allTokens = {
      raw: new AddedTokenFinder(parts.addedTokens),
      normalized: new AddedTokenFinder(parts.normalizedTokens),
    };
    this.#textTokens = {
      raw: new AddedTokenFinder(parts.addedTokens.filter(isText)),
      normalized: new AddedTokenFinder(parts.normalizedTokens.filter(isText)),
    };
  }

  encode(text: string, options: EncodeOptions = {}): Int32Array {
    checkEncode(text, options);
    const { words } = this.#parts;
    const { maxTokens = Infinity, truncate = false } = options;
    const body = newBody(text, maxTokens, truncate ? LONGEST_CUT : 0);
    try {
      this.#split(text, options, body, (word) => words.encode(word, body));
    } catch (error) {
      if (!truncate || !(error instanceof TokenLimitError)) throw error;
      body.length = Math.min(body.length, maxTokens);
    }
    return this.#withAffixes(body, options);
  }

  *encodeInSlices(
    text: string,
    options: Omit<EncodeOptions, "truncate"> = {},
  ): Generator<void, Int32Array> {
    checkEncode(text, options);
    const { words } = this.#parts;
    const { maxTokens = Infinity } = options;
    // Long words are left for the end: each is inserted before the token at its place.
    const long: { readonly word: string; readonly place: number }[] = [];
    const short = newBody(text, maxTokens, 0);
    this.#split(text, options, short, (word) => {
      if (word.length < LONG_WORD) words.encode(word, short);
      else long.push({ word, place: short.length });
    });
    if (long.length === 0) return this.#withAffixes(short, options);
    const body = newBody(text, maxTokens, 0);
    let start = 0;
    for (const { word, place } of long) {
      yield;
      body.pushRange(short.data, start, place);
      start = place;
      yield* words.encodeInSlices(word, body);
      body.expect(short.length - start);
    }
    body.pushRange(short.data, start, short.length);
    return this.#withAffixes(body, options);
  }

  /**
   * Appends the added tokens of a text to `out`, and calls `encode` with the words between them.
   */
  #split(
    text: string,
    { parseSpecial = true }: EncodeOptions,
    out: IdBuffer,
    encode: (word: string) => void,
  ): void {
    const { normalize, preTokenize } = this.#parts;
    const { raw, normalized } = parseSpecial ? this.#allTokens : this.#textTokens;
    const take = (token: AddedToken) => {
      out.expect(1);
      out.push(token.id);
    };
    const emit = (word: string) => {
      encode(word);
      out.expect(0);
    };
    raw.split(text.toWellFormed(), take, (part, at) => {
      normalized.split(
        normalize(part),
        take,
        (words, start) => preTokenize(words, at === 0 && start === 0, emit),
      );
    });
  }

  /** Returns the ids with those that begin and end a text. */
  #withAffixes(body: IdBuffer, { addSpecial = true }: EncodeOptions): Int32Array {
    if (!addSpecial) return body.toArray();
    const { prefix, suffix } = this.#parts.affixes;
    const hasBos = this.addBos && body.length > 0 && body.data[0] === this.bosId;
    const before = hasBos ? prefix.filter((id) => id !== this.bosId) : prefix;
    const ids = new Int32Array(before.length + body.length + suffix.length);
    ids.set(before);
    ids.set(body.data.subarray(0, body.length), before.length);
    ids.set(suffix, before.length + body.length);
    return ids;
  }

  decode(ids: Iterable<number>, options: DecodeOptions = {}): string {
    checkArgument("ids", ids, IDS);
    checkOptions("decode", options, DECODE_OPTIONS);
    const skipSpecial = options.skipSpecial ?? true;
    const out = new ByteBuffer();
    const pieces = this.#pieces;
    let isFirst = true;
    for (const id of ids) {
      if (skipSpecial && this.isSpecial(id)) continue;
      if (isFirst) {
        out.push(this.#bytesOf(id, true));
        isFirst = this.tokenText(id) === "";
      } else {
        if (!pieces.has(id)) pieces.set(id, this.#bytesOf(id, false));
        pieces.copy(id, out);
      }
    }
    return new LeadingStripper(this.leadingStrip).push(utf8.decode(out.view()));
  }

  tokenBytes(id: number, isFirst = false): Uint8Array {
    return this.isSpecial(id) ? new Uint8Array(0) : this.#bytesOf(id, isFirst);
  }

  /** Returns the bytes of any id, control tokens included. */
  #bytesOf(id: number, isFirst: boolean): Uint8Array {
    const piece = this.tokenText(id);
    if (piece === "") return new Uint8Array(0);
    const { decoder } = this.#parts;
    const added = this.#added.get(id);
    if (added === undefined) return decoder.toBytes(piece, isFirst);
    // The content of an added token is normalized, which may have added a space before it. It is
    // plain text, never in the byte alphabet.
    return decoder.byteLevel
      ? encoder.encode(added.content)
      : decoder.toBytes(added.content, isFirst);
  }

  tokenText(id: number): string {
    if (!Number.isInteger(id) || id < 0 || id >= this.vocabSize) {
      throw new ForgeError(
        "bad_input",
        `token id ${show(id)} is not in the vocabulary; valid are 0 to ${this.vocabSize - 1}`,
      );
    }
    return this.#parts.vocabulary.text(id) ?? "";
  }

  isSpecial(id: number): boolean {
    return this.#added.get(id)?.special === true;
  }

  idOf(token: string): number | undefined {
    checkArgument("the token", token, STRING);
    const id = this.#parts.vocabulary.idOf(token);
    return id < 0 ? undefined : id;
  }
}

const ENCODE_OPTIONS: OptionChecks<EncodeOptions> = {
  addSpecial: BOOLEAN,
  parseSpecial: BOOLEAN,
  maxTokens: NUMBER,
  truncate: BOOLEAN,
};

const DECODE_OPTIONS: OptionChecks<DecodeOptions> = { skipSpecial: BOOLEAN };

/** Check of ids, whose range is checked one by one. */
const IDS: OptionCheck = {
  accepts: (value) => typeof value === "object" && Symbol.iterator in Object(value),
  valid: "an array of token ids",
};

/** @throws {ForgeError} `usage` for arguments of the wrong type */
function checkEncode(text: string, options: EncodeOptions): void {
  checkArgument("the text", text, STRING);
  checkOptions("encode", options, ENCODE_OPTIONS);
}

/** Returns a buffer for the ids of a text. */
function newBody(text: string, maxTokens: number, longestCut: number): IdBuffer {
  return new IdBuffer(Math.min(16 + (text.length >> 1), maxTokens + 1), maxTokens, longestCut);
}

const encoder = new TextEncoder();
const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });

/** A growing array of bytes. */
class ByteBuffer {
  data = new Uint8Array(256);
  length = 0;

  /** Makes room for `count` more bytes. */
  reserve(count: number): void {
    if (this.length + count <= this.data.length) return;
    const grown = new Uint8Array(Math.max(this.length + count, 2 * this.data.length));
    grown.set(this.data);
    this.data = grown;
  }

  push(bytes: Uint8Array): void {
    this.reserve(bytes.length);
    this.data.set(bytes, this.length);
    this.length += bytes.length;
  }

  view(): Uint8Array<ArrayBuffer> {
    return this.data.subarray(0, this.length);
  }
}

/** Caches the bytes of decoded pieces in one array. */
class PieceBytes {
  readonly #bytes = new ByteBuffer();
  /** Start and end of each id's bytes; the end is 0 if they are not cached. */
  readonly #ranges: Int32Array;

  constructor(vocabSize: number) {
    this.#ranges = new Int32Array(2 * vocabSize);
    this.#bytes.length = 1; // the end of an empty piece must not be 0
  }

  has(id: number): boolean {
    return this.#ranges[2 * id + 1]! > 0;
  }

  set(id: number, bytes: Uint8Array): void {
    this.#ranges[2 * id] = this.#bytes.length;
    this.#bytes.push(bytes);
    this.#ranges[2 * id + 1] = this.#bytes.length;
  }

  copy(id: number, out: ByteBuffer): void {
    const start = this.#ranges[2 * id]!, end = this.#ranges[2 * id + 1]!;
    out.reserve(end - start);
    const from = this.#bytes.data, to = out.data;
    // A loop is faster than `set` for the few bytes of a piece (measured, V8 15).
    for (let i = start; i < end; i++) to[out.length++] = from[i]!;
  }
}

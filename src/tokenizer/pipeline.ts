import { ForgeError } from "../errors.ts";
import type { WordEncoder } from "./models/word_encoder.ts";
import type { Decoder } from "./steps/decoders.ts";
import { IdBuffer } from "./models/word_encoder.ts";
import type { Normalizer } from "./steps/normalizers.ts";
import type { Affixes } from "./steps/post_processor.ts";
import type { PreTokenizer } from "./steps/pre_tokenizers.ts";
import { type AddedToken, AddedTokenFinder } from "./special_tokens.ts";
import type { DecodeOptions, EncodeOptions, Tokenizer } from "./tokenizer.ts";
import type { Vocabulary } from "./vocabulary.ts";

/** The parts a tokenizer is made of. */
export interface PipelineParts {
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
  readonly bosId: number | undefined;
  readonly eosIds: readonly number[];
}

/** Finders with and without control tokens: encoding can be told not to recognise them. */
interface Finders {
  readonly raw: AddedTokenFinder;
  readonly normalized: AddedTokenFinder;
}

/**
 * A tokenizer made of steps: added tokens are cut out, the text between them is normalized and
 * pre-tokenized, and each piece becomes ids on its own.
 */
export class PipelineTokenizer implements Tokenizer {
  readonly vocabSize: number;
  readonly bosId: number | undefined;
  readonly eosIds: readonly number[];
  readonly addBos: boolean;
  readonly addEos: boolean;
  readonly description: string;

  readonly #parts: PipelineParts;
  readonly #added = new Map<number, AddedToken>();
  readonly #allTokens: Finders;
  readonly #textTokens: Finders;

  constructor(parts: PipelineParts) {
    this.#parts = parts;
    this.vocabSize = parts.vocabulary.size;
    this.bosId = parts.bosId;
    this.eosIds = parts.eosIds;
    this.description = parts.description;
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
    const body = new IdBuffer(16 + (text.length >> 1));
    const finders = options.parseSpecial ?? true ? this.#allTokens : this.#textTokens;
    finders.raw.split(
      text.toWellFormed(),
      (token) => body.push(token.id),
      (part, start) => this.#encodePart(part, start === 0, finders.normalized, body),
    );
    if (options.addSpecial === false) return body.toArray();
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
    const skipSpecial = options.skipSpecial ?? true;
    const parts: Uint8Array[] = [];
    let length = 0, beginsWithAdded = false;
    for (const id of ids) {
      const special = this.#added.get(id)?.special === true;
      if (special && skipSpecial) continue;
      const bytes = special ? encoder.encode(this.tokenText(id)) : this.tokenBytes(id);
      if (parts.length === 0) beginsWithAdded = this.#added.has(id);
      parts.push(bytes);
      length += bytes.length;
    }
    const all = new Uint8Array(length);
    let at = 0;
    for (const part of parts) {
      all.set(part, at);
      at += part.length;
    }
    const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(all);
    return beginsWithAdded && this.#parts.decoder.strip?.ofPiece ? text : this.#stripStart(text);
  }

  tokenBytes(id: number): Uint8Array {
    const piece = this.tokenText(id);
    const added = this.#added.get(id);
    const { decoder } = this.#parts;
    if (added?.special) return new Uint8Array(0);
    if (added === undefined) return decoder.toBytes(piece);
    // Added tokens are written as text, never in the byte alphabet. Otherwise their content is what
    // normalizing made it, with the space it may have put in front.
    return decoder.byteLevel ? encoder.encode(piece) : decoder.toBytes(added.content);
  }

  tokenText(id: number): string {
    if (!Number.isInteger(id) || id < 0 || id >= this.vocabSize) {
      throw new ForgeError(
        "bad_input",
        `token id ${id} is not in the vocabulary; valid are 0 to ${this.vocabSize - 1}`,
      );
    }
    return this.#parts.vocabulary.text(id) ?? "";
  }

  isSpecial(id: number): boolean {
    return this.#added.get(id)?.special === true;
  }

  idOf(token: string): number | undefined {
    const id = this.#parts.vocabulary.idOf(token);
    return id < 0 ? undefined : id;
  }

  #encodePart(part: string, atStart: boolean, finder: AddedTokenFinder, out: IdBuffer): void {
    const { normalize, preTokenize, words } = this.#parts;
    const emit = (piece: string) => words.encode(piece, out);
    finder.split(
      normalize(part),
      (token) => out.push(token.id),
      (text, start) => preTokenize(text, atStart && start === 0, emit),
    );
  }

  #stripStart(text: string): string {
    const strip = this.#parts.decoder.strip;
    if (strip === undefined || strip.character === "") return text;
    let start = 0;
    for (let count = 0; count < strip.count && text.startsWith(strip.character, start); count++) {
      start += strip.character.length;
    }
    return text.slice(start);
  }
}

const encoder = new TextEncoder();

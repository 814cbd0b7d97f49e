import { byteToChar } from "../byte_level.ts";
import type { IdBuffer } from "./word_encoder.ts";
import type { Vocabulary } from "../vocabulary.ts";

/**
 * Splits words into their initial symbols. A symbol is a token id, or `UNKNOWN - x` for a character
 * or byte x that is missing from the vocabulary.
 */
export interface Alphabet {
  /** Appends the symbols of a word of well-formed text. */
  split(word: string, symbols: IdBuffer): void;
  /** Returns a lower bound of the number of tokens that symbols can merge into. */
  fewestTokens(symbols: IdBuffer): number;
  /** Appends the token ids of the first `count` symbols. */
  emit(symbols: Int32Array, count: number, out: IdBuffer): void;
}

/** Symbol of the unknown character or byte 0; that of x is `UNKNOWN - x`. */
const UNKNOWN = -2;

/** Returns the character of an unknown symbol. */
export function unknownCharacter(symbol: number): string {
  return String.fromCodePoint(UNKNOWN - symbol);
}

/**
 * Computes a lower bound of the number of tokens that symbols can become. A symbol counts as 1/n,
 * where n is the length of the longest token that contains it, so that no token counts as more than
 * 1.
 */
class FewestTokens {
  readonly #vocabulary: Vocabulary;
  readonly #unknownParts: (longest: number | undefined) => number;
  /** Fraction of a token that each symbol counts as, by id. */
  #parts: Float64Array | undefined;
  /** Length of the longest token that contains a character, by code point. */
  readonly #unknown = new Map<number, number>();

  /**
   * @param unknownParts returns the number of tokens that an unknown character counts as, given the
   * length of the longest token that contains it
   */
  constructor(vocabulary: Vocabulary, unknownParts: (longest: number | undefined) => number) {
    this.#vocabulary = vocabulary;
    this.#unknownParts = unknownParts;
  }

  of({ data, length }: IdBuffer): number {
    const parts = this.#parts ??= this.#measure();
    let sum = 0;
    for (let i = 0; i < length; i++) {
      const symbol = data[i]!;
      sum += symbol >= 0 ? parts[symbol]! : this.#unknownParts(this.#unknown.get(UNKNOWN - symbol));
    }
    // Rounding errors of the sum are far below this.
    return Math.ceil(sum * (1 - 1e-6));
  }

  #measure(): Float64Array {
    const { size } = this.#vocabulary;
    const longest = new Int32Array(size).fill(1);
    for (let id = 0; id < size; id++) {
      const characters = Array.from(this.#vocabulary.text(id) ?? "");
      for (const character of characters) {
        const symbol = this.#vocabulary.idOf(character);
        const { length } = characters;
        if (symbol >= 0) longest[symbol] = Math.max(longest[symbol]!, length);
        const code = character.codePointAt(0)!;
        this.#unknown.set(code, Math.max(this.#unknown.get(code) ?? 1, length));
      }
    }
    return Float64Array.from(longest, (length) => 1 / length);
  }
}

/** Treatment of characters and bytes that are missing from the vocabulary. */
interface UnknownOptions {
  /** Their token. Without one they are dropped, and their neighbours may join. */
  unknownId?: number | undefined;
  /** True if consecutive unknown characters share one token. */
  fuse?: boolean;
}

/** Splits words into UTF-8 bytes; the vocabulary is written in GPT-2's byte alphabet. */
export class ByteAlphabet implements Alphabet {
  readonly #ids = new Int32Array(256);
  /** True if some byte has no token and is dropped. */
  readonly #hasGaps: boolean;
  readonly #unknown: UnknownOptions;
  readonly #fewest: FewestTokens;

  /** @param isPiece returns true for the tokens that text may become */
  constructor(
    vocabulary: Vocabulary,
    isPiece: (id: number) => boolean,
    unknown: UnknownOptions,
  ) {
    this.#fewest = new FewestTokens(vocabulary, () => 0);
    for (let byte = 0; byte < 256; byte++) {
      const id = vocabulary.idOf(byteToChar(byte));
      this.#ids[byte] = id >= 0 && isPiece(id) ? id : UNKNOWN - byte;
    }
    this.#unknown = unknown;
    this.#hasGaps = unknown.unknownId === undefined && this.#ids.some((id) => id < 0);
  }

  split(word: string, symbols: IdBuffer): void {
    const start = symbols.length;
    this.#splitBytes(word, symbols);
    if (!this.#hasGaps) return;
    let kept = start;
    for (let i = start; i < symbols.length; i++) {
      const symbol = symbols.data[i]!;
      if (symbol >= 0) symbols.data[kept++] = symbol;
    }
    symbols.length = kept;
  }

  #splitBytes(word: string, symbols: IdBuffer): void {
    const ids = this.#ids;
    for (let i = 0; i < word.length; i++) {
      let code = word.charCodeAt(i);
      if (code < 0x80) {
        symbols.push(ids[code]!);
        continue;
      }
      if (code < 0x800) {
        symbols.push(ids[0xc0 | (code >> 6)]!);
      } else {
        if (code >= 0xd800 && code < 0xdc00) {
          code = 0x10000 + ((code & 0x3ff) << 10) + (word.charCodeAt(++i) & 0x3ff);
          symbols.push(ids[0xf0 | (code >> 18)]!);
          symbols.push(ids[0x80 | ((code >> 12) & 0x3f)]!);
        } else {
          symbols.push(ids[0xe0 | (code >> 12)]!);
        }
        symbols.push(ids[0x80 | ((code >> 6) & 0x3f)]!);
      }
      symbols.push(ids[0x80 | (code & 0x3f)]!);
    }
  }

  fewestTokens(symbols: IdBuffer): number {
    return this.#fewest.of(symbols);
  }

  emit(symbols: Int32Array, count: number, out: IdBuffer): void {
    emitWithUnknown(symbols, count, out, (_symbol, follows) => {
      pushUnknown(this.#unknown, follows, out);
    });
  }
}

/** Splits words into characters; characters that are not pieces become "<0x00>" to "<0xFF>". */
export class CharacterAlphabet implements Alphabet {
  readonly #vocabulary: Vocabulary;
  readonly #isPiece: (id: number) => boolean;
  readonly #byteIds: Int32Array | undefined;
  readonly #unknown: UnknownOptions;
  readonly #fewest: FewestTokens;

  /**
   * @param isPiece returns true for the tokens that text may become
   * @param byteIds the token of each byte, or -1; `undefined` for no byte fallback
   */
  constructor(
    vocabulary: Vocabulary,
    isPiece: (id: number) => boolean,
    byteIds: Int32Array | undefined,
    unknown: UnknownOptions,
  ) {
    // Without byte fallback, unknown characters may share one token.
    const alone = byteIds?.every((id) => id >= 0) ? 1 : 0;
    this.#fewest = new FewestTokens(
      vocabulary,
      (longest) => longest === undefined ? alone : alone / longest,
    );
    this.#vocabulary = vocabulary;
    this.#isPiece = isPiece;
    this.#byteIds = byteIds;
    this.#unknown = unknown;
  }

  split(word: string, symbols: IdBuffer): void {
    for (let i = 0, end; i < word.length; i = end) {
      end = i + ((word.charCodeAt(i) & 0xfc00) === 0xd800 ? 2 : 1);
      const id = this.#vocabulary.idOfRange(word, i, end);
      if (id >= 0 && this.#isPiece(id)) symbols.push(id);
      else {
        const code = word.codePointAt(i) ?? 0;
        const isKept = this.#unknown.unknownId !== undefined || this.#bytesOf(code) !== undefined;
        if (isKept) symbols.push(UNKNOWN - code);
      }
    }
  }

  fewestTokens(symbols: IdBuffer): number {
    return this.#fewest.of(symbols);
  }

  emit(symbols: Int32Array, count: number, out: IdBuffer): void {
    emitWithUnknown(symbols, count, out, (symbol, follows) => {
      const ids = this.#bytesOf(UNKNOWN - symbol);
      if (ids === undefined) {
        pushUnknown(this.#unknown, follows, out);
        return true;
      }
      for (const id of ids) out.push(id);
      return false;
    });
  }

  /** Returns the tokens of a character's bytes, or `undefined` if one is missing. */
  #bytesOf(codePoint: number): number[] | undefined {
    return this.#byteIds && idsOfBytes(String.fromCodePoint(codePoint), this.#byteIds);
  }
}

/** Returns the tokens of a text's bytes, or `undefined` if one is missing. */
export function idsOfBytes(text: string, byteIds: Int32Array): number[] | undefined {
  const ids = Array.from(encoder.encode(text), (byte) => byteIds[byte]!);
  return ids.every((id) => id >= 0) ? ids : undefined;
}

const encoder = new TextEncoder();

/** Returns the ids of "<0x00>" to "<0xFF>"; -1 for a missing one. */
export function byteTokenIds(vocabulary: Vocabulary): Int32Array {
  return Int32Array.from({ length: 256 }, (_, byte) => vocabulary.idOf(byteTokenText(byte)));
}

/** Returns the piece of a byte in SentencePiece vocabularies, such as "<0x0A>". */
export function byteTokenText(byte: number): string {
  return `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;
}

/**
 * Copies ids and calls `emitUnknown` for each unknown symbol. `follows` is true if the previous
 * symbol became the unknown token; the callback returns true if its own symbol did.
 */
function emitWithUnknown(
  symbols: Int32Array,
  count: number,
  out: IdBuffer,
  emitUnknown: (symbol: number, follows: boolean) => boolean | void,
): void {
  let follows = false;
  for (let i = 0; i < count; i++) {
    const symbol = symbols[i]!;
    if (symbol >= 0) {
      out.push(symbol);
      follows = false;
    } else {
      follows = emitUnknown(symbol, follows) ?? true;
    }
  }
}

function pushUnknown(options: UnknownOptions, follows: boolean, out: IdBuffer): void {
  if (options.unknownId !== undefined && (!follows || !options.fuse)) out.push(options.unknownId);
}

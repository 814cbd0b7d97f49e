import type { Vocabulary } from "../vocabulary.ts";
import type { IdBuffer, WordEncoder } from "./word_encoder.ts";

/** Options of a `WordPieceEncoder`. */
interface WordPieceOptions {
  /** The token of a word that the pieces cannot spell; without one the word is dropped. */
  readonly unknownId: number | undefined;
  /** Prefix of pieces at the start of a word: "" for BERT, "▁" in GGUF files. */
  readonly wordPrefix: string;
  /** Prefix of pieces inside a word: "##" for BERT, "" in GGUF files. */
  readonly innerPrefix: string;
  /** Longer words, in characters, are unknown. */
  readonly longestWord: number;
}

/**
 * WordPiece as in BERT: takes the longest piece at the start of a word, then the longest piece at
 * the start of the rest, and so on. If no piece fits, the whole word is unknown.
 */
export class WordPieceEncoder implements WordEncoder {
  readonly #vocabulary: Vocabulary;
  readonly #isPiece: (id: number) => boolean;
  readonly #options: WordPieceOptions;
  readonly #found: Int32Array;

  /** @param isPiece returns true for the tokens that text may become */
  constructor(
    vocabulary: Vocabulary,
    isPiece: (id: number) => boolean,
    options: WordPieceOptions,
  ) {
    this.#vocabulary = vocabulary;
    this.#isPiece = isPiece;
    this.#options = options;
    this.#found = new Int32Array(vocabulary.longest);
  }

  encode(word: string, out: IdBuffer): void {
    const before = out.length;
    const { unknownId, wordPrefix, innerPrefix, longestWord } = this.#options;
    // A character is one or two units.
    const isShort = word.length <= longestWord ||
      (word.length <= 2 * longestWord && Array.from(word).length <= longestWord);
    let start = 0;
    while (isShort && start < word.length) {
      const prefix = start === 0 ? wordPrefix : innerPrefix;
      let length = this.#vocabulary.idsOfPrefixes(word, start, this.#found, prefix);
      while (length > 0 && !this.#isPieceAt(length - 1)) length--;
      if (length === 0) break;
      out.push(this.#found[length - 1]!);
      start += length;
    }
    if (start === word.length) return;
    out.length = before;
    if (unknownId !== undefined) out.push(unknownId);
  }

  /** Encodes at once: a word above the limit is unknown, and a shorter one is soon done. */
  // deno-lint-ignore require-yield
  *encodeInSlices(word: string, out: IdBuffer): Generator<void, void> {
    this.encode(word, out);
  }

  #isPieceAt(index: number): boolean {
    const id = this.#found[index]!;
    return id >= 0 && this.#isPiece(id);
  }
}

import { ForgeError } from "../../errors.ts";
import { byteTokenIds, CharacterAlphabet, idsOfBytes } from "./alphabet.ts";
import { finish, IdBuffer, LONG_WORD, SLICE_STEPS, type WordEncoder } from "./word_encoder.ts";
import type { Vocabulary } from "../vocabulary.ts";

/** Score of an unknown character below the lowest score of a piece. */
const UNKNOWN_PENALTY = 10;

/** Maximum length of a piece, above that of any known model. Encoding time grows with it. */
const LONGEST_PIECE = 1024;

/**
 * Checks that no piece is so long that encoding would be slow.
 *
 * @param where the file and key, for messages
 * @throws ForgeError `unsupported` for a piece above the limit
 */
export function checkPieceLengths(vocabulary: Vocabulary, where: string): void {
  if (vocabulary.longest <= LONGEST_PIECE) return;
  throw new ForgeError(
    "unsupported",
    `${where} has a token of ${vocabulary.longest} characters; at most ${LONGEST_PIECE} are supported`,
  );
}

/** Options of a `UnigramEncoder`. */
interface UnigramOptions {
  /** The token of unknown characters; without one they are dropped. */
  readonly unknownId: number | undefined;
  /** Score of an unknown character before the penalty: the lowest score of a piece. */
  readonly lowestScore: number;
  /** True if unknown text becomes the tokens of its bytes, "<0x00>" to "<0xFF>". */
  readonly byteFallback?: boolean;
}

/**
 * A unigram language model (Kudo, 2018, https://arxiv.org/abs/1804.10959). Cuts a word into the
 * pieces with the highest sum of scores, by dynamic programming from left to right. Of equal sums
 * the first one wins, as in SentencePiece and Hugging Face's tokenizers.
 */
export class UnigramEncoder implements WordEncoder {
  readonly #vocabulary: Vocabulary;
  readonly #scores: Float64Array;
  readonly #isPiece: (id: number) => boolean;
  readonly #options: UnigramOptions;
  readonly #byteIds: Int32Array | undefined;
  readonly #found: Int32Array;
  /** Counts the tokens that a long word has at least. */
  readonly #alphabet: CharacterAlphabet;
  /** Reused for short words. */
  #path = new Path(64);

  /**
   * @param scores log probability of each id
   * @param isPiece returns true for the tokens that text may become
   */
  constructor(
    vocabulary: Vocabulary,
    scores: Float64Array,
    isPiece: (id: number) => boolean,
    options: UnigramOptions,
  ) {
    this.#vocabulary = vocabulary;
    this.#scores = scores;
    this.#isPiece = isPiece;
    this.#options = options;
    this.#byteIds = options.byteFallback === true ? byteTokenIds(vocabulary) : undefined;
    this.#found = new Int32Array(vocabulary.longest);
    this.#alphabet = new CharacterAlphabet(vocabulary, isPiece, this.#byteIds, options);
  }

  encode(word: string, out: IdBuffer): void {
    if (word.length >= LONG_WORD) return finish(this.encodeInSlices(word, out));
    if (this.#path.size <= word.length) this.#path = new Path(2 * word.length);
    this.#path.clear(word.length);
    this.#extend(this.#path, word, 0, word.length);
    this.#emit(this.#path, word, out);
  }

  *encodeInSlices(word: string, out: IdBuffer): Generator<void, void> {
    if (out.limit < Infinity && word.length > out.longestCut) yield* this.#expect(word, out);
    const path = new Path(word.length + 1);
    path.clear(word.length);
    for (let start = 0; start < word.length;) {
      start = this.#extend(path, word, start, Math.min(start + SLICE_STEPS, word.length));
      yield;
    }
    this.#emit(path, word, out);
  }

  /** @throws {TokenLimitError} if the tokens of a word would be discarded */
  *#expect(word: string, out: IdBuffer): Generator<void, void> {
    const symbols = new IdBuffer(SLICE_STEPS);
    for (let start = 0, fewest = 0; start < word.length; start += SLICE_STEPS) {
      symbols.length = 0;
      this.#alphabet.split(word.slice(start, start + SLICE_STEPS), symbols);
      // A token may reach into the next slice, and a character may be cut.
      fewest += Math.max(0, this.#alphabet.fewestTokens(symbols) - 2);
      out.expect(fewest);
      yield;
    }
  }

  /** Extends the best paths from the positions `start` to `end`; returns the next position. */
  #extend(path: Path, word: string, start: number, end: number): number {
    const { sums } = path, found = this.#found, scores = this.#scores;
    const unknownScore = this.#options.lowestScore - UNKNOWN_PENALTY;
    let next = start;
    for (; start < end; start = next) {
      next = start + ((word.charCodeAt(start) & 0xfc00) === 0xd800 ? 2 : 1);
      const sum = sums[start]!;
      const count = this.#vocabulary.idsOfPrefixes(word, start, found);
      for (let i = 0; i < count; i++) {
        const id = found[i]!;
        if (id >= 0 && this.#isPiece(id)) path.offer(start, start + i + 1, id, sum + scores[id]!);
      }
      const single = next - start <= count ? found[next - start - 1]! : -1;
      if (single < 0 || !this.#isPiece(single)) path.offer(start, next, -1, sum + unknownScore);
    }
    return next;
  }

  #emit({ starts, ids }: Path, word: string, out: IdBuffer): void {
    // The best path is stored as links from each end to its start, so it is read backwards.
    const ends: number[] = [];
    for (let end = word.length; end > 0; end = starts[end]!) ends.push(end);
    for (let i = ends.length - 1, start = 0; i >= 0; i--) {
      let end = ends[i]!;
      const id = ids[end]!;
      if (id >= 0) out.push(id);
      else {
        // Consecutive unknown characters share one token.
        while (i > 0 && ids[ends[i - 1]!]! < 0) end = ends[--i]!;
        this.#emitUnknown(word.slice(start, end), out);
      }
      start = end;
    }
  }

  #emitUnknown(text: string, out: IdBuffer): void {
    const bytes = this.#byteIds && idsOfBytes(text, this.#byteIds);
    if (bytes) { for (const id of bytes) out.push(id); }
    else if (this.#options.unknownId !== undefined) out.push(this.#options.unknownId);
  }
}

/** For each position of a word: the best sum up to it, and the start and id of the last piece. */
class Path {
  readonly size: number;
  readonly sums: Float64Array;
  readonly starts: Int32Array;
  readonly ids: Int32Array;

  constructor(size: number) {
    this.size = size;
    this.sums = new Float64Array(size);
    this.starts = new Int32Array(size);
    this.ids = new Int32Array(size);
  }

  /** Prepares for a word of this length. */
  clear(length: number): void {
    this.sums.fill(-Infinity, 1, length + 1);
    this.sums[0] = 0;
  }

  offer(start: number, end: number, id: number, sum: number): void {
    if (sum <= this.sums[end]!) return;
    this.sums[end] = sum;
    this.starts[end] = start;
    this.ids[end] = id;
  }
}

import { ForgeError } from "../../errors.ts";
import { byteTokenIds, idsOfBytes } from "./alphabet.ts";
import type { IdBuffer, WordEncoder } from "./word_encoder.ts";
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
  /** True if consecutive unknown characters share one token. */
  readonly fuse: boolean;
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
  /** For each position in the word: the best sum up to it, and the start and id of the last piece. */
  #sums = new Float64Array(64);
  #starts = new Int32Array(64);
  #ids = new Int32Array(64);

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
  }

  encode(word: string, out: IdBuffer): void {
    this.#findBestPath(word);
    // The best path is stored as links from each end to its start, so it is read backwards.
    const ends: number[] = [];
    for (let end = word.length; end > 0; end = this.#starts[end] ?? 0) ends.push(end);
    for (let i = ends.length - 1, start = 0; i >= 0; i--) {
      let end = ends[i]!;
      const id = this.#ids[end]!;
      if (id >= 0) out.push(id);
      else {
        while (this.#options.fuse && i > 0 && this.#ids[ends[i - 1]!]! < 0) end = ends[--i]!;
        this.#emitUnknown(word.slice(start, end), out);
      }
      start = end;
    }
    if (this.#sums.length > 1 << 16) {
      // Release the buffers of a huge word.
      this.#sums = new Float64Array(64);
      this.#starts = new Int32Array(64);
      this.#ids = new Int32Array(64);
    }
  }

  #findBestPath(word: string): void {
    if (this.#sums.length <= word.length) {
      const size = 2 * word.length;
      this.#sums = new Float64Array(size);
      this.#starts = new Int32Array(size);
      this.#ids = new Int32Array(size);
    }
    const sums = this.#sums, found = this.#found, scores = this.#scores;
    sums.fill(-Infinity, 1, word.length + 1);
    sums[0] = 0;
    const unknownScore = this.#options.lowestScore - UNKNOWN_PENALTY;
    for (let start = 0, next; start < word.length; start = next) {
      next = start + ((word.charCodeAt(start) & 0xfc00) === 0xd800 ? 2 : 1);
      const sum = sums[start]!;
      const count = this.#vocabulary.idsOfPrefixes(word, start, found);
      for (let i = 0; i < count; i++) {
        const id = found[i]!;
        if (id >= 0 && this.#isPiece(id)) this.#offer(start, start + i + 1, id, sum + scores[id]!);
      }
      const single = next - start <= count ? found[next - start - 1]! : -1;
      if (single < 0 || !this.#isPiece(single)) this.#offer(start, next, -1, sum + unknownScore);
    }
  }

  #offer(start: number, end: number, id: number, sum: number): void {
    if (sum <= this.#sums[end]!) return;
    this.#sums[end] = sum;
    this.#starts[end] = start;
    this.#ids[end] = id;
  }

  #emitUnknown(text: string, out: IdBuffer): void {
    const bytes = this.#byteIds && idsOfBytes(text, this.#byteIds);
    if (bytes) { for (const id of bytes) out.push(id); }
    else if (this.#options.unknownId !== undefined) out.push(this.#options.unknownId);
  }
}

import type { Tokenizer } from "../../tokenizer/tokenizer.ts";
import type { ResolvedSampling } from "../request/sampling.ts";

/** Strings at which repetitions begin again, as in llama.cpp. */
export const DRY_SEQUENCE_BREAKERS = ["\n", ":", '"', "*"];

/** Natural logarithm of the largest float32. */
const MAX_EXPONENT = 88.7228391;

type DrySampling = Pick<
  ResolvedSampling,
  "dryMultiplier" | "dryBase" | "dryAllowedLength" | "dryPenaltyLastN"
>;

/**
 * DRY ("don't repeat yourself"): a penalty on tokens that would continue a repetition. P. E.
 * Weidmann, 2024; the details are llama.cpp's. A repetition does not reach across a breaker.
 */
export class RepetitionPenalty {
  readonly #sampling: DrySampling;
  readonly #breakers: Breakers;

  constructor(
    sampling: DrySampling,
    breakers: readonly string[],
    tokenizer: Pick<Tokenizer, "vocabSize" | "tokenBytes">,
  ) {
    this.#sampling = sampling;
    this.#breakers = new Breakers(breakers, tokenizer);
  }

  /** Subtracts the penalties from the logits of the token after `tokens`. */
  apply(logits: Float32Array, tokens: Int32Array): void {
    const { dryMultiplier, dryBase, dryAllowedLength, dryPenaltyLastN } = this.#sampling;
    const recent = dryPenaltyLastN < 0
      ? tokens
      : tokens.subarray(Math.max(0, tokens.length - dryPenaltyLastN));
    if (recent.length <= dryAllowedLength) return;
    const limit = this.#breakers.tokensAfterLast(recent);
    if (limit < dryAllowedLength) return;
    const mostGrowth = Math.floor(MAX_EXPONENT / Math.log(dryBase));
    for (const [token, length] of repetitions(recent, limit, dryAllowedLength)) {
      const growth = Math.min(length - dryAllowedLength, mostGrowth);
      logits[token]! -= dryMultiplier * dryBase ** growth;
    }
  }
}

/**
 * Returns the tokens that would continue a repetition of at least `least` tokens, and the length of
 * the longest such repetition: the end of `tokens` that also precedes an earlier occurrence of the
 * token. Lengths are cut at `limit`. Takes linear time: the lengths are a Z-function of the
 * reversed tokens.
 */
function repetitions(tokens: Int32Array, limit: number, least: number): Map<number, number> {
  const reversed = tokens.toReversed();
  const n = reversed.length;
  const common = new Int32Array(n);
  const longest = new Map<number, number>();
  // reversed[begin, end) equals a prefix of reversed.
  let begin = 0, end = 0;
  for (let at = 1; at < n; at++) {
    let length = at < end ? Math.min(end - at, common[at - begin]!) : 0;
    while (at + length < n && reversed[length] === reversed[at + length]) length++;
    if (at + length > end) [begin, end] = [at, at + length];
    common[at] = length;
    const token = reversed[at - 1]!, cut = Math.min(length, limit);
    if (cut >= least && cut >= (longest.get(token) ?? 0)) longest.set(token, cut);
  }
  return longest;
}

/** Bytes of a token, one character each. */
interface TokenBytes {
  readonly bytes: string;
  /** True if a breaker may begin in the token. */
  readonly mayBreak: boolean;
}

/** Finds breakers in the text of tokens. */
class Breakers {
  readonly #breakers: readonly string[];
  readonly #longest: number;
  readonly #tokenizer: Pick<Tokenizer, "vocabSize" | "tokenBytes">;
  readonly #tokens = new Map<number, TokenBytes>();

  constructor(
    breakers: readonly string[],
    tokenizer: Pick<Tokenizer, "vocabSize" | "tokenBytes">,
  ) {
    const encoder = new TextEncoder();
    this.#breakers = breakers.map((text) => characters(encoder.encode(text)));
    this.#longest = Math.max(0, ...this.#breakers.map((text) => text.length));
    this.#tokenizer = tokenizer;
  }

  /** Returns the number of tokens after the last breaker; all tokens if they have none. */
  tokensAfterLast(tokens: Int32Array): number {
    if (this.#breakers.length === 0) return tokens.length;
    for (let at = tokens.length - 1; at >= 0; at--) {
      const { bytes, mayBreak } = this.#bytesOf(tokens[at]!);
      if (!mayBreak) continue;
      const end = this.#endOfBreaker(bytes, tokens, at + 1);
      if (end !== undefined) return tokens.length - end;
    }
    return tokens.length;
  }

  /**
   * Returns the index after the last token of a breaker that begins in `bytes`, the text of the
   * token before `next`.
   */
  #endOfBreaker(bytes: string, tokens: Int32Array, next: number): number | undefined {
    let text = bytes;
    const ends = [{ length: bytes.length, index: next }];
    for (let at = next; at < tokens.length && text.length < bytes.length + this.#longest; at++) {
      text += this.#bytesOf(tokens[at]!).bytes;
      ends.push({ length: text.length, index: at + 1 });
    }
    const found = this.#breakers.flatMap((breaker) => {
      const start = text.lastIndexOf(breaker, bytes.length - 1);
      return start < 0 ? [] : [start + breaker.length];
    });
    if (found.length === 0) return undefined;
    const last = Math.max(...found);
    return ends.find(({ length }) => length >= last)!.index;
  }

  #bytesOf(token: number): TokenBytes {
    let known = this.#tokens.get(token);
    if (known === undefined) {
      // The model's vocabulary may be padded beyond the tokenizer's.
      const bytes = token < this.#tokenizer.vocabSize
        ? characters(this.#tokenizer.tokenBytes(token))
        : "";
      const mayBreak = this.#breakers.some((breaker) =>
        bytes.includes(breaker) || overlaps(bytes, breaker)
      );
      this.#tokens.set(token, known = { bytes, mayBreak });
    }
    return known;
  }
}

/** Returns a text with a character for each byte. */
function characters(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}

/** True if the end of a text is the beginning of a breaker. */
function overlaps(text: string, breaker: string): boolean {
  for (let length = Math.min(text.length, breaker.length - 1); length > 0; length--) {
    if (text.endsWith(breaker.slice(0, length))) return true;
  }
  return false;
}

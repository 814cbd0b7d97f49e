import type { TokenList } from "../token_list.ts";
import type { Drafter, Proposal } from "./draft.ts";
import { HitRates } from "./hit_rates.ts";
import { NgramIndex } from "./ngram_index.ts";

/** Lengths of the n-grams looked up, longest first. */
const ORDERS = [4, 2, 1] as const;

/** Longest match that is measured when it is found; a match grows as it continues. */
const LONGEST_FOUND = 32;

/** Earlier position in the text whose preceding tokens equal the end of the text. */
interface Match {
  /** Position of the proposed token. */
  readonly next: number;
  /** Number of equal tokens before it and at the end of the text. */
  readonly length: number;
}

/**
 * Prompt lookup decoding (A. Saxena, 2023): proposes the tokens that followed the latest occurrence
 * of the text's last tokens, prompt included. Every token of the text tests what would have been
 * proposed for it, computed or not, so that acceptance rates are measured at no cost.
 */
export class LookupDrafter implements Drafter {
  readonly #indexes = ORDERS.map((order) => new NgramIndex(order));
  readonly #rates: HitRates;
  /** Number of tokens of the text seen so far. */
  #seen = 0;
  #match: Match | undefined;

  /** @param rates acceptance rates of other texts */
  constructor(rates = new HitRates()) {
    this.#rates = new HitRates(rates);
  }

  propose(tokens: TokenList, most: number, leastOdds: number): Proposal {
    this.#catchUp(tokens);
    const proposal = { tokens: [] as number[], odds: [] as number[] };
    if (this.#match === undefined) return proposal;
    const { next, length } = this.#match;
    let odds = 1;
    for (let i = 0; i < most; i++) {
      odds *= this.#rates.of(length + i).value;
      if (odds < leastOdds) break;
      const from = next + i;
      // Past the end of the text, the proposed tokens continue it.
      const token = tokens.at(from) ?? proposal.tokens[from - tokens.length]!;
      proposal.tokens.push(token);
      proposal.odds.push(odds);
    }
    return proposal;
  }

  #catchUp(tokens: TokenList): void {
    const { length } = tokens;
    // Only the end of a prompt is looked up: how often a prompt repeats itself says little about
    // the answer.
    if (this.#seen === 0) { for (; this.#seen < length - 1; this.#seen++) this.#visit(tokens); }
    for (; this.#seen < length; this.#seen++) {
      const kept = this.#match === undefined ? undefined : this.#test(tokens, this.#match);
      const found = this.#find(tokens);
      this.#match = kept !== undefined && kept.length >= (found?.length ?? 0) ? kept : found;
    }
  }

  /** Compares a proposed token with the actual one; the match continues if they agree. */
  #test(tokens: TokenList, { next, length }: Match): Match | undefined {
    const isHit = tokens.at(next) === tokens.at(this.#seen);
    this.#rates.of(length).note(isHit);
    return isHit ? { next: next + 1, length: length + 1 } : undefined;
  }

  /** Returns the latest match of the longest n-gram that occurred before. */
  #find(tokens: TokenList): Match | undefined {
    const next = this.#visit(tokens);
    return next === 0 ? undefined : { next, length: agreement(tokens, next, this.#seen + 1) };
  }

  /**
   * Records the n-grams that end with a token. Returns where the longest known one ended before, or
   * 0.
   */
  #visit(tokens: TokenList): number {
    let longest = 0;
    for (const index of this.#indexes) {
      const before = index.visit(tokens, this.#seen + 1);
      longest ||= before;
    }
    return longest;
  }
}

/** Returns the number of equal tokens before two positions. */
function agreement(tokens: TokenList, a: number, b: number): number {
  const most = Math.min(a, LONGEST_FOUND);
  let length = 0;
  while (length < most && tokens.at(a - 1 - length) === tokens.at(b - 1 - length)) length++;
  return length;
}

import type { TokenList } from "../token_list.ts";
import type { Drafter, Proposal } from "./draft.ts";
import { HitRates } from "./hit_rates.ts";
import { NgramIndex } from "./ngram_index.ts";

/** Lengths of the n-grams that are looked up, the longest first. */
const ORDERS = [4, 2, 1] as const;

/** A match is known to be no longer than this when it is found; it grows as it goes on. */
const LONGEST_FOUND = 32;

/** An earlier place of the text that looks like its end. */
interface Match {
  /** The place of the token that is the guess. */
  readonly next: number;
  /** How many tokens before it are those at the end of the text. */
  readonly length: number;
}

/**
 * Guesses that a text goes on as it did where it looked the same before, prompt included: A. Saxena,
 * "Prompt lookup decoding", 2023. Every token of the text is a test of what the guess for it would have
 * been, whether it was computed or not, so that the chances are known at no cost.
 */
export class LookupDrafter implements Drafter {
  readonly #indexes = ORDERS.map((order) => new NgramIndex(order));
  readonly #rates: HitRates;
  /** How many tokens of the text have been seen. */
  #seen = 0;
  #match: Match | undefined;

  /** @param rates what is known from other texts */
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
      // Behind the end of the text the guesses themselves go on.
      const token = tokens.at(from) ?? proposal.tokens[from - tokens.length]!;
      proposal.tokens.push(token);
      proposal.odds.push(odds);
    }
    return proposal;
  }

  #catchUp(tokens: TokenList): void {
    const { length } = tokens;
    // Of a prompt only its end is looked up: how well it repeats itself says little of the answer.
    if (this.#seen === 0) { for (; this.#seen < length - 1; this.#seen++) this.#visit(tokens); }
    for (; this.#seen < length; this.#seen++) {
      const kept = this.#match === undefined ? undefined : this.#test(tokens, this.#match);
      const found = this.#find(tokens);
      this.#match = kept !== undefined && kept.length >= (found?.length ?? 0) ? kept : found;
    }
  }

  /** Compares a guess with the token that came; the match goes on where they agree. */
  #test(tokens: TokenList, { next, length }: Match): Match | undefined {
    const isHit = tokens.at(next) === tokens.at(this.#seen);
    this.#rates.of(length).note(isHit);
    return isHit ? { next: next + 1, length: length + 1 } : undefined;
  }

  /** The latest place that looks like the end of the text for as many tokens as are looked up. */
  #find(tokens: TokenList): Match | undefined {
    const next = this.#visit(tokens);
    return next === 0 ? undefined : { next, length: agreement(tokens, next, this.#seen + 1) };
  }

  /** Takes note of the n-grams that end with a token. Where the longest known of them ended before. */
  #visit(tokens: TokenList): number {
    let longest = 0;
    for (const index of this.#indexes) {
      const before = index.visit(tokens, this.#seen + 1);
      longest ||= before;
    }
    return longest;
  }
}

/** How many tokens before two places are the same. */
function agreement(tokens: TokenList, a: number, b: number): number {
  const most = Math.min(a, LONGEST_FOUND);
  let length = 0;
  while (length < most && tokens.at(a - 1 - length) === tokens.at(b - 1 - length)) length++;
  return length;
}

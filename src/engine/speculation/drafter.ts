import type { OutputRequest } from "../../backend.ts";
import type { TokenList } from "../token_list.ts";
import type { Draft } from "./draft.ts";

/** Guesses of the tokens that come next, and the probability that each comes true with all before it. */
export interface Proposal {
  readonly tokens: readonly number[];
  readonly odds: readonly number[];
}

/** What guesses how one text goes on. */
export interface Drafter {
  /**
   * @param tokens the text so far; it only grows
   * @param most how many guesses to make
   * @param leastOdds guesses that are less likely to come true are of no use
   */
  propose(tokens: TokenList, most: number, leastOdds: number): Proposal;
}

/** A sequence whose next tokens may be guessed in a step. */
export interface Prospect {
  readonly tokens: TokenList;
  readonly draft: Draft;
  /** The most guesses that there is room for. */
  readonly room: number;
  /** How the token behind the last guess is drawn. Its row is of no meaning. */
  readonly next: () => OutputRequest;
}

import type { OutputRequest } from "../../backend.ts";
import type { TokenList } from "../token_list.ts";
import type { TokenMask } from "../generation/token_mask.ts";

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

/**
 * Guesses of the tokens that a text goes on with. A step computes them behind the tokens that are
 * certain and asks for an output at each; what comes of a guess is of use if it and all guesses before
 * it come true. What a constraint allows is kept for each of these places.
 */
export class Draft implements Disposable {
  /** The most guesses that may be of use. */
  limit = 0;
  readonly #endTokens: ReadonlySet<number>;
  readonly #tokens: number[] = [];
  /** What may follow the certain tokens, the first guess, and so on; empty without a constraint. */
  readonly #masks: TokenMask[];

  /**
   * @param mask what may come next; the draft's own from here on
   * @param endTokens what ends the text, so that nothing follows
   */
  constructor(mask: TokenMask | undefined, endTokens: ReadonlySet<number>) {
    this.#masks = mask === undefined ? [] : [mask];
    this.#endTokens = endTokens;
  }

  get tokens(): readonly number[] {
    return this.#tokens;
  }

  /** How many guesses can be added. */
  get room(): number {
    return Math.max(0, this.limit - this.#tokens.length);
  }

  /** What may follow the first `count` guesses; `undefined` without a constraint. */
  mask(count = 0): TokenMask | undefined {
    return this.#masks[count];
  }

  /** The only token that may follow the last guess, where that is known. */
  get forced(): number | undefined {
    return this.#masks.at(-1)?.only;
  }

  /** Adds a guess; false where it cannot come, or nothing could follow it. */
  add(token: number): boolean {
    if (this.room === 0 || this.#endTokens.has(token)) return false;
    const mask = this.#masks.at(-1);
    if (mask !== undefined) {
      const next = maskBehind(mask, token);
      if (next === undefined) return false;
      this.#masks.push(next);
    }
    this.#tokens.push(token);
    return true;
  }

  /** Goes on by a token that has become certain; the guesses stay if it is the first of them. */
  advance(token: number): void {
    if (this.#tokens[0] !== token) {
      this.clear();
      this.mask()?.accept(token);
      return;
    }
    this.#tokens.shift();
    this.#masks.shift()?.dispose();
  }

  /** Forgets all guesses. */
  clear(): void {
    this.#tokens.length = 0;
    for (const mask of this.#masks.splice(1)) mask.dispose();
  }

  /** Ends the draft: there is no more room for guesses. */
  [Symbol.dispose](): void {
    for (const mask of this.#masks.splice(0)) mask.dispose();
    this.#tokens.length = 0;
    this.limit = 0;
  }
}

/** The mask behind a token; `undefined` where it is not allowed or nothing follows. */
function maskBehind(mask: TokenMask, token: number): TokenMask | undefined {
  if (!mask.mayAllow(token)) return undefined;
  let next: TokenMask | undefined;
  try {
    next = mask.fork(token);
    if (!next.isTerminated) {
      next.update();
      return next;
    }
  } catch {
    // What fails for a guess fails for the text too, should it get there.
  }
  next?.dispose();
  return undefined;
}

import type { OutputRequest } from "../../backend.ts";
import type { PageTable } from "../cache/kv_pages.ts";
import type { TokenList } from "../token_list.ts";
import type { TokenMask } from "../generation/token_mask.ts";

/**
 * Proposed draft tokens, and the probability that each is accepted together with all before it.
 */
export interface Proposal {
  readonly tokens: readonly number[];
  readonly odds: readonly number[];
}

/** Proposes draft tokens for one text. */
export interface Drafter {
  /**
   * @param tokens the text so far; it only grows
   * @param most most tokens to propose
   * @param leastOdds least probability of acceptance of a proposed token
   */
  propose(tokens: TokenList, most: number, leastOdds: number): Proposal;
}

/** Sequence that may get draft tokens in a step. */
export interface Prospect {
  readonly tokens: TokenList;
  readonly draft: Draft;
  /** Most draft tokens that fit. */
  readonly room: number;
  /**
   * Tokens of this step that the next one computes again if a draft token is rejected: those before
   * the draft, in a model with recurrent state.
   */
  readonly replayed: number;
  /** Pages of the sequence. */
  readonly table: PageTable;
  /** Number of its tokens whose keys and values are in them. */
  readonly stored: number;
  /** Returns how the token after the last draft token is sampled. Its row is meaningless. */
  readonly next: () => OutputRequest;
}

/**
 * Draft tokens of a text. A step computes them after the certain tokens, with an output at each.
 * The output after a draft token counts if that token and all before it are accepted. With a
 * constraint, the draft holds a mask for each position.
 */
export class Draft implements Disposable {
  /** Most draft tokens that can be of use. */
  limit = 0;
  readonly #endTokens: ReadonlySet<number>;
  readonly #tokens: number[] = [];
  /**
   * Masks of the tokens after the certain tokens, after the first draft token, and so on; empty
   * without a constraint.
   */
  readonly #masks: TokenMask[];

  /**
   * @param mask mask of the next token; the draft takes ownership
   * @param endTokens tokens that end the text
   */
  constructor(mask: TokenMask | undefined, endTokens: ReadonlySet<number>) {
    this.#masks = mask === undefined ? [] : [mask];
    this.#endTokens = endTokens;
  }

  get tokens(): readonly number[] {
    return this.#tokens;
  }

  /** Number of draft tokens that can be added. */
  get room(): number {
    return Math.max(0, this.limit - this.#tokens.length);
  }

  /** Returns the mask after the first `count` draft tokens; `undefined` without a constraint. */
  mask(count = 0): TokenMask | undefined {
    return this.#masks[count];
  }

  /** Only token that may follow the last draft token, if known. */
  get forced(): number | undefined {
    return this.#masks.at(-1)?.only;
  }

  /** Adds a draft token. Returns false if it is not allowed or nothing could follow it. */
  add(token: number): boolean {
    if (this.room === 0 || this.#endTokens.has(token)) return false;
    const mask = this.#masks.at(-1);
    if (mask !== undefined) {
      const next = maskAfter(mask, token);
      if (next === undefined) return false;
      this.#masks.push(next);
    }
    this.#tokens.push(token);
    return true;
  }

  /** Advances by a certain token. The draft tokens stay if it is the first of them. */
  advance(token: number): void {
    if (this.#tokens[0] !== token) {
      this.clear();
      this.mask()?.accept(token);
      return;
    }
    this.#tokens.shift();
    this.#masks.shift()?.dispose();
  }

  /** Removes all draft tokens. */
  clear(): void {
    this.#tokens.length = 0;
    for (const mask of this.#masks.splice(1)) mask.dispose();
  }

  /** Ends the draft; no more tokens can be added. */
  [Symbol.dispose](): void {
    for (const mask of this.#masks.splice(0)) mask.dispose();
    this.#tokens.length = 0;
    this.limit = 0;
  }
}

/** Returns the mask after a token; `undefined` if the token is not allowed or nothing follows. */
function maskAfter(mask: TokenMask, token: number): TokenMask | undefined {
  if (!mask.mayAllow(token)) return undefined;
  let next: TokenMask | undefined;
  try {
    next = mask.fork(token);
    if (!next.isTerminated) {
      next.update();
      return next;
    }
  } catch {
    // The same failure is reported for the text if it gets there.
  }
  next?.dispose();
  return undefined;
}

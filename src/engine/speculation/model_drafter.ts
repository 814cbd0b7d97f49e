import { commonLength, type TokenList } from "../token_list.ts";
import type { Prospect } from "./draft.ts";
import { HitRate } from "./hit_rates.ts";

/** Prior acceptance rate of a drafter's tokens. */
const EXPECTED = 0.7;

/** A model, or a head of the model itself, that drafts tokens by computing them. */
export interface ModelDrafter {
  /** Returns the acceptance rate for a text, after recording the outcome of the last draft. */
  rate(tokens: TokenList): number;
  /** Returns the milliseconds of one draft token for each of `texts` texts, or a guess at first. */
  cost(texts: number): number;
  /** Returns the number of tokens of a text that must be caught up with before a draft. */
  lag(tokens: TokenList): number;
  /** Adds tokens to drafts. @param counts number of draft tokens of each text */
  draft(prospects: readonly Prospect[], counts: readonly number[]): Promise<void>;
  /** Stops the run in progress early, if any. */
  cancel(): void;
  /** Frees the state for a text. */
  forget(tokens: TokenList): void;
}

interface Outcome {
  readonly rate: HitRate;
  /** Last draft tokens and their position, to be compared with the actual tokens. */
  made: { readonly at: number; readonly draftTokens: readonly number[] } | undefined;
}

/** Acceptance rates of a drafter: of each text, whose prior is the rate of all. */
export class DraftRates {
  readonly #rate = new HitRate(EXPECTED);
  readonly #outcomes = new WeakMap<TokenList, Outcome>();

  /** Returns the rate for a text, after recording the outcome of the last draft. */
  of(tokens: TokenList): number {
    const outcome = this.#outcomes.get(tokens);
    if (outcome === undefined) return this.#rate.value;
    if (outcome.made !== undefined && outcome.made.at < tokens.length) {
      const { at, draftTokens } = outcome.made;
      const right = commonLength(Int32Array.from(draftTokens), tokens.view(at));
      for (let i = 0; i < right; i++) outcome.rate.note(true);
      // Draft tokens past the end of the text have no outcome yet.
      if (right < draftTokens.length && at + right < tokens.length) outcome.rate.note(false);
      outcome.made = undefined;
    }
    return outcome.rate.value;
  }

  /** Records a draft, whose outcome is found later. */
  made(tokens: TokenList, draftTokens: readonly number[]): void {
    let outcome = this.#outcomes.get(tokens);
    if (outcome === undefined) {
      this.#outcomes.set(tokens, outcome = { rate: new HitRate(this.#rate), made: undefined });
    }
    outcome.made = { at: tokens.length, draftTokens: [...draftTokens] };
  }
}

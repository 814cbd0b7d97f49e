import { commonLength, type TokenList } from "../token_list.ts";
import type { Prospect } from "./draft.ts";
import { ChoiceRates, HitRate } from "./hit_rates.ts";

/** Prior acceptance rates of a drafter's tokens, and of its second choices. */
const EXPECTED = 0.7, EXPECTED_SECOND = 0.05;

/** Shape of trees of draft tokens. */
export interface TreeShape {
  /** Most tokens at a position of a text that are continued; 1 continues only the first choice. */
  readonly width: number;
  /**
   * Called with the odds of further tokens, descending. Returns true, and counts the row, if a row
   * more pays.
   */
  readonly takeRow: (odds: number) => boolean;
}

/** A token that a drafter could draft at some position. */
export interface Choice {
  readonly token: number;
  /** Its probability by the drafter. */
  readonly probability: number;
  /** True for the token that the drafter has sampled, with the model's random number. */
  readonly isFirst: boolean;
}

/** A model, or a head of the model itself, that drafts tokens by computing them. */
export interface ModelDrafter {
  /** Returns the acceptance rate for a text, after recording the outcome of the last draft. */
  rate(tokens: TokenList): number;
  /**
   * Returns the probability that the second choice for a position is right if the tokens before
   * are. @default 0: only chains are drafted
   */
  secondRate?(): number;
  /** Returns the milliseconds of a draft token for each of `texts` texts; at first an estimate. */
  cost(texts: number): number;
  /** Returns the number of tokens of a text that must be caught up with before a draft. */
  lag(tokens: TokenList): number;
  /**
   * Adds tokens to drafts.
   *
   * @param counts number of draft tokens of each text in a row
   * @param tree how to branch; a drafter may draft chains all the same. @default chains
   */
  draft(
    prospects: readonly Prospect[],
    counts: readonly number[],
    tree?: TreeShape,
  ): Promise<void>;
  /** Stops the run in progress early, if any. */
  cancel(): void;
  /** Frees the state for a text. */
  forget(tokens: TokenList): void;
}

interface Outcome {
  readonly rate: HitRate;
  /** Last draft tokens and their position, to be compared with the actual tokens. */
  made:
    | {
      readonly at: number;
      readonly draftTokens: readonly number[];
      /** Choices for each of the draft tokens. */
      readonly choices: readonly (readonly Choice[])[];
    }
    | undefined;
}

/** Acceptance rates of a drafter: of each text, whose prior is the rate of all. */
export class DraftRates {
  /** Acceptance rates of choices at a position whose tokens before are right. */
  readonly choices = new ChoiceRates();
  /** Acceptance rate of second choices at such a position. */
  readonly second = new HitRate(EXPECTED_SECOND);
  readonly #rate = new HitRate(EXPECTED);
  readonly #outcomes = new WeakMap<TokenList, Outcome>();

  /** Returns the rate for a text, after recording the outcome of the last draft. */
  of(tokens: TokenList): number {
    const outcome = this.#outcomes.get(tokens);
    if (outcome === undefined) return this.#rate.value;
    if (outcome.made !== undefined && outcome.made.at < tokens.length) {
      const { at, draftTokens, choices } = outcome.made;
      const right = commonLength(Int32Array.from(draftTokens), tokens.view(at));
      for (let i = 0; i < right; i++) outcome.rate.note(true);
      // Draft tokens past the end of the text have no outcome yet.
      if (right < draftTokens.length && at + right < tokens.length) outcome.rate.note(false);
      for (const [i, ofPosition] of choices.slice(0, right + 1).entries()) {
        const actual = tokens.at(at + i);
        if (actual !== undefined) this.#noteChoices(ofPosition, actual);
      }
      outcome.made = undefined;
    }
    return outcome.rate.value;
  }

  #noteChoices(choices: readonly Choice[], actual: number): void {
    for (const choice of choices) this.choices.note(choice, actual);
    const [, second] = choices;
    if (second !== undefined) this.second.note(second.token === actual);
  }

  /** Records a draft, whose outcome is found later. */
  made(
    tokens: TokenList,
    draftTokens: readonly number[],
    choices: readonly (readonly Choice[])[] = [],
  ): void {
    let outcome = this.#outcomes.get(tokens);
    if (outcome === undefined) {
      this.#outcomes.set(tokens, outcome = { rate: new HitRate(this.#rate), made: undefined });
    }
    outcome.made = { at: tokens.length, draftTokens: [...draftTokens], choices };
  }
}

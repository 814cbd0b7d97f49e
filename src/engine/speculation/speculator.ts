import type { TokenList } from "../token_list.ts";
import { chooseDrafts } from "./choose_drafts.ts";
import type { Draft } from "./draft.ts";
import type { Drafter, Proposal } from "./drafter.ts";
import { HitRates } from "./hit_rates.ts";
import { LookupDrafter } from "./lookup_drafter.ts";
import { MOST_ROWS, StepCosts } from "./step_costs.ts";

/** The most tokens that are drafted for one sequence. */
export const MOST_DRAFTED = 32;

/** Guesses that come true less often pay on no device. */
const LEAST_ODDS = 0.08;

/** A sequence whose next tokens may be guessed in a step. */
export interface Prospect {
  readonly tokens: TokenList;
  readonly draft: Draft;
  /** The most guesses that there is room for. */
  readonly room: number;
}

export interface SpeculatorOptions {
  /** Draft so many tokens for each sequence, whether that pays or not. @default as many as pay */
  readonly length?: number | undefined;
  /** What guesses for one sequence. @default a look-up in its own text */
  readonly newDrafter?: (() => Drafter) | undefined;
}

/**
 * Speculative decoding: Y. Leviathan, M. Kalman and Y. Matias, "Fast inference from transformers via
 * speculative decoding", 2023. Steps that only decode take guesses of further tokens along, as many as
 * give the most tokens a millisecond, by what steps have cost and how often guesses have come true.
 *
 * Since the draw of a token depends on nothing but its position, a guess is right if it is the token
 * that is drawn there: no token is another than without guesses, sampled ones included.
 */
export class Speculator {
  readonly #length: number | undefined;
  readonly #newDrafter: () => Drafter;
  readonly #costs = new StepCosts();
  readonly #drafters = new WeakMap<TokenList, Drafter>();

  constructor(options: SpeculatorOptions = {}) {
    const rates = new HitRates();
    const { length, newDrafter = () => new LookupDrafter(rates) } = options;
    this.#length = length;
    this.#newDrafter = newDrafter;
  }

  /**
   * Adds guesses to the drafts of the sequences of a step.
   *
   * @param rows that the step computes anyway
   * @param mostRows that it can compute beyond them
   */
  draft(prospects: readonly Prospect[], rows: number, mostRows: number): void {
    const most = this.#length === undefined ? Math.min(mostRows, MOST_ROWS - rows) : mostRows;
    if (most <= 0) return;
    const proposals = prospects.map((prospect) => this.#propose(prospect, most));
    const counts = this.#length === undefined
      ? chooseDrafts(proposals.map(({ odds }) => odds), rows, most, (n) => this.#costs.of(n))
      : proposals.map(({ tokens }) => tokens.length);
    let left = most;
    for (const [i, { draft, room }] of prospects.entries()) {
      const guesses = proposals[i]!.tokens.slice(0, counts[i]);
      fill(draft, guesses, Math.min(room, left, this.#length ?? MOST_DRAFTED));
      left -= draft.tokens.length;
    }
  }

  /** Takes note of what a step that only decodes has cost. */
  measure(rows: number, milliseconds: number): void {
    this.#costs.measure(rows, milliseconds);
  }

  #propose({ tokens, room }: Prospect, most: number): Proposal {
    let drafter = this.#drafters.get(tokens);
    if (drafter === undefined) this.#drafters.set(tokens, drafter = this.#newDrafter());
    const length = Math.min(room, most, this.#length ?? MOST_DRAFTED);
    return drafter.propose(tokens, length, this.#length === undefined ? LEAST_ODDS : 0);
  }
}

/**
 * Adds guesses to a draft, at most `room`. Where a constraint leaves one token alone, that is the guess;
 * it says nothing of what comes behind it.
 */
function fill(draft: Draft, guesses: readonly number[], room: number): void {
  for (const guess of guesses) {
    const { forced = guess } = draft;
    if (draft.tokens.length === room || forced !== guess) break;
    if (!draft.add(guess)) return;
  }
  while (draft.forced !== undefined && draft.tokens.length < room) {
    if (!draft.add(draft.forced)) return;
  }
}

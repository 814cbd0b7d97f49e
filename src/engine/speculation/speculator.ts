import { MAX_DRAFTED } from "../limits.ts";
import type { TokenList } from "../token_list.ts";
import { type Candidate, chooseDrafts } from "./choose_drafts.ts";
import type { Draft, Drafter, Prospect } from "./draft.ts";
import type { DraftModel } from "./draft_model.ts";
import { HitRates } from "./hit_rates.ts";
import { LookupDrafter } from "./lookup_drafter.ts";
import { MOST_ROWS, StepCosts } from "./step_costs.ts";

/** Guesses that come true less often pay on no device. */
const LEAST_ODDS = 0.08;

/** A draft model that does not pay is tried again after so many steps, where little is to be caught up. */
const PROBE_STEPS = 64, PROBE_LAG = 2 * PROBE_STEPS;

/** How guesses are made. */
export interface SpeculatorOptions {
  /** Draft so many tokens for each sequence, whether that pays or not. @default as many as pay */
  readonly length?: number | undefined;
  /** What guesses for one sequence. @default a look-up in its own text */
  readonly newDrafter?: (() => Drafter) | undefined;
  /** What guesses for sequences of which the drafter is less sure. */
  readonly model?: DraftModel | undefined;
}

/** What is known of the guesses for a sequence before they are made. */
interface Plan extends Candidate {
  readonly prospect: Prospect;
  /** The guesses of its drafter; those of a draft model are yet to be made. */
  readonly guesses: readonly number[];
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
  readonly #model: DraftModel | undefined;
  readonly #costs = new StepCosts();
  readonly #drafters = new WeakMap<TokenList, Drafter>();
  #stepsWithoutModel = 0;

  constructor(options: SpeculatorOptions = {}) {
    const rates = new HitRates();
    const { length, newDrafter = () => new LookupDrafter(rates), model } = options;
    this.#length = length;
    this.#newDrafter = newDrafter;
    this.#model = model;
  }

  /**
   * Adds guesses to the drafts of the sequences of a step.
   *
   * @param rows that the step computes anyway
   * @param mostRows that it can compute beyond them
   * @returns when that is done; nothing where it is done at once
   */
  draft(prospects: readonly Prospect[], rows: number, mostRows: number): Promise<void> | undefined {
    const most = this.#length === undefined ? Math.min(mostRows, MOST_ROWS - rows) : mostRows;
    if (most <= 0) return undefined;
    const plans = prospects.map((prospect) => this.#plan(prospect, most));
    const counts = this.#counts(plans, rows, most);
    let left = most;
    for (const [i, { prospect: { draft, room }, guesses, takesRounds }] of plans.entries()) {
      counts[i] = Math.min(counts[i]!, left);
      if (!takesRounds) {
        const limit = Math.min(room, left, this.#length ?? MAX_DRAFTED);
        fill(draft, guesses.slice(0, counts[i]), limit);
        counts[i] = draft.tokens.length;
      }
      left -= counts[i]!;
    }
    const takesRounds = plans.some((plan, i) => plan.takesRounds && counts[i]! > 0);
    this.#stepsWithoutModel = takesRounds ? 0 : this.#stepsWithoutModel + 1;
    if (!takesRounds) return undefined;
    return this.#model!.draft(
      prospects,
      counts.map((count, i) => plans[i]!.takesRounds ? count : 0),
    );
  }

  /** Whether guesses are asked for whatever they cost: every step is to be offered some. */
  get isBound(): boolean {
    return this.#length !== undefined;
  }

  /** Takes note of what a step that only decodes has cost. */
  measure(rows: number, milliseconds: number): void {
    this.#costs.measure(rows, milliseconds);
  }

  /** Stops early what {@linkcode draft} is doing. */
  cancel(): void {
    this.#model?.cancel();
  }

  /** Frees what is held for a text. */
  forget(tokens: TokenList): void {
    this.#model?.forget(tokens);
  }

  #plan(prospect: Prospect, most: number): Plan {
    const { tokens, room } = prospect;
    let drafter = this.#drafters.get(tokens);
    if (drafter === undefined) this.#drafters.set(tokens, drafter = this.#newDrafter());
    const length = Math.min(room, most, this.#length ?? MAX_DRAFTED);
    const isBound = this.#length !== undefined;
    const { tokens: guesses, odds } = drafter.propose(tokens, length, isBound ? 0 : LEAST_ODDS);
    const rate = this.#model?.rate(tokens) ?? 0;
    if (rate <= (odds[0] ?? 0)) return { prospect, guesses, odds, takesRounds: false };
    const powers = Array.from({ length }, (_, i) => rate ** (i + 1));
    return { prospect, guesses: [], odds: powers, takesRounds: true };
  }

  /** How many guesses each sequence is to have. */
  #counts(plans: readonly Plan[], rows: number, most: number): number[] {
    if (this.#length !== undefined) return plans.map(({ odds }) => odds.length);
    const counts = chooseDrafts(
      plans,
      rows,
      most,
      (n, rounds) => this.#costs.of(n) + rounds * (this.#model?.cost(plans.length) ?? 0),
    );
    const isProbe = this.#stepsWithoutModel >= PROBE_STEPS;
    return counts.map((count, i) => {
      const { prospect, takesRounds, odds } = plans[i]!;
      const isBehind = takesRounds && this.#model!.lag(prospect.tokens) > PROBE_LAG;
      return count === 0 && isProbe && takesRounds && !isBehind ? Math.min(1, odds.length) : count;
    });
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

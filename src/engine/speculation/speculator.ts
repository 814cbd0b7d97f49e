import { MAX_DRAFTED } from "../limits.ts";
import type { TokenList } from "../token_list.ts";
import { type Candidate, chooseDrafts } from "./choose_drafts.ts";
import type { Draft, Drafter, Prospect } from "./draft.ts";
import { HitRates } from "./hit_rates.ts";
import { LookupDrafter } from "./lookup_drafter.ts";
import type { ModelDrafter, TreeShape } from "./model_drafter.ts";
import { MOST_ROWS, StepCosts } from "./step_costs.ts";

/** Draft tokens with a lower probability of acceptance pay on no device. */
const LEAST_ODDS = 0.08;

/**
 * An unused draft model is tried again after `PROBE_STEPS` steps, unless more than `PROBE_LAG`
 * tokens must be caught up.
 */
const PROBE_STEPS = 64, PROBE_LAG = 2 * PROBE_STEPS;

/** Options of a {@linkcode Speculator}. */
export interface SpeculatorOptions {
  /** Number of draft tokens of each sequence, even if they do not pay. @default as many as pay */
  readonly length?: number | undefined;
  /** Makes the drafter of one sequence. @default prompt lookup */
  readonly newDrafter?: (() => Drafter) | undefined;
  /** Draft model, or the model's own head, for sequences whose drafter has lower odds. */
  readonly model?: ModelDrafter | undefined;
  /**
   * Number of tokens at each position of the model's drafts, even if they do not pay: 1 for chains.
   * @default as many as pay, or 1 with a `length`
   */
  readonly treeWidth?: number | undefined;
}

/** Planned draft of a sequence. */
interface Plan extends Candidate {
  readonly prospect: Prospect;
  /** Tokens proposed by its drafter; empty if a draft model is used. */
  readonly proposed: readonly number[];
}

/**
 * Speculative decoding: Y. Leviathan, M. Kalman and Y. Matias, "Fast inference from transformers
 * via speculative decoding", 2023. Steps that only decode compute draft tokens as well: as many as
 * give the most tokens per millisecond by the measured durations of steps and acceptance rates.
 *
 * The random number of a token depends on its position alone. A draft token is accepted if it is
 * the token sampled there, so that the tokens are those without drafts, sampled ones included.
 */
export class Speculator {
  readonly #length: number | undefined;
  readonly #newDrafter: () => Drafter;
  readonly #model: ModelDrafter | undefined;
  readonly #treeWidth: number | undefined;
  readonly #costs = new StepCosts();
  readonly #drafters = new WeakMap<TokenList, Drafter>();
  #stepsWithoutModel = 0;

  constructor(options: SpeculatorOptions = {}) {
    const rates = new HitRates();
    const { length, newDrafter = () => new LookupDrafter(rates), model, treeWidth } = options;
    this.#length = length;
    this.#newDrafter = newDrafter;
    this.#model = model;
    this.#treeWidth = treeWidth ?? (length === undefined ? undefined : 1);
  }

  /**
   * Adds tokens to the drafts of the sequences of a step.
   *
   * @param rows rows of the step without drafts
   * @param mostRows most rows to add
   * @returns a promise if a draft model runs; `undefined` if the drafts are complete
   */
  draft(prospects: readonly Prospect[], rows: number, mostRows: number): Promise<void> | undefined {
    const most = this.#length === undefined ? Math.min(mostRows, MOST_ROWS - rows) : mostRows;
    if (most <= 0) return undefined;
    const plans = prospects.map((prospect) => this.#plan(prospect, most));
    const counts = this.#counts(plans, rows, most);
    let left = most;
    for (const [i, { prospect: { draft, room }, proposed, takesRounds }] of plans.entries()) {
      counts[i] = Math.min(counts[i]!, left);
      if (!takesRounds) {
        const limit = Math.min(room, left, this.#length ?? MAX_DRAFTED);
        fill(draft, proposed.slice(0, counts[i]), limit);
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
      this.#treeWidth === 1 ? undefined : this.#tree(plans, counts, rows, left),
    );
  }

  /**
   * Returns the shape of the trees of a step.
   *
   * @param counts number of draft tokens of each sequence
   * @param rows rows of the step without drafts
   * @param left most rows to add to those
   */
  #tree(plans: readonly Plan[], counts: readonly number[], rows: number, left: number): TreeShape {
    const drafted = counts.reduce((sum, count) => sum + count, 0);
    const rounds = Math.max(...counts.map((count, i) => plans[i]!.takesRounds ? count : 0));
    const before = rounds * this.#model!.cost(plans.length);
    const cost = (added: number) =>
      before + this.#costs.of(Math.min(rows + drafted + added, MOST_ROWS));
    let added = 0;
    let tokens = plans.reduce(
      (sum, { odds }, i) => sum + 1 + odds.slice(0, counts[i]).reduce((a, b) => a + b, 0),
      0,
    );
    const takeRow = (odds: number) => {
      const pays = (tokens + odds) / cost(added + 1) > tokens / cost(added);
      if (added === left || (this.#treeWidth === undefined && !pays)) return false;
      added++;
      tokens += odds;
      return true;
    };
    return { width: this.#treeWidth ?? 1, takeRow };
  }

  /** True if a fixed number of draft tokens is asked for, whatever they cost. */
  get isFixed(): boolean {
    return this.#length !== undefined;
  }

  /** Records the duration of a step that only decodes. */
  measure(rows: number, milliseconds: number): void {
    this.#costs.measure(rows, milliseconds);
  }

  /** Stops a {@linkcode draft} in progress early. */
  cancel(): void {
    this.#model?.cancel();
  }

  /** Frees the state for a text. */
  forget(tokens: TokenList): void {
    this.#model?.forget(tokens);
  }

  #plan(prospect: Prospect, most: number): Plan {
    const { tokens, room, replayed } = prospect;
    let drafter = this.#drafters.get(tokens);
    if (drafter === undefined) this.#drafters.set(tokens, drafter = this.#newDrafter());
    const length = Math.min(room, most, this.#length ?? MAX_DRAFTED);
    const isFixed = this.#length !== undefined;
    const { tokens: proposed, odds } = drafter.propose(tokens, length, isFixed ? 0 : LEAST_ODDS);
    const rate = this.#model?.rate(tokens) ?? 0;
    if (rate <= (odds[0] ?? 0)) {
      return { prospect, proposed, odds, takesRounds: false, replayed };
    }
    const powers = Array.from({ length }, (_, i) => rate ** (i + 1));
    const mayBranch = this.#treeWidth !== 1 && prospect.branch !== undefined;
    const secondRate = mayBranch ? this.#model?.secondRate?.() : undefined;
    return { prospect, proposed: [], odds: powers, takesRounds: true, secondRate, replayed };
  }

  /** Returns the number of draft tokens of each sequence. */
  #counts(plans: readonly Plan[], rows: number, most: number): number[] {
    if (this.#length !== undefined) return plans.map(({ odds }) => odds.length);
    const counts = chooseDrafts(
      plans,
      rows,
      most,
      (n, rounds) =>
        this.#costs.of(Math.min(n, MOST_ROWS)) + rounds * (this.#model?.cost(plans.length) ?? 0),
    );
    const isProbe = this.#stepsWithoutModel >= PROBE_STEPS;
    return counts.map((count, i) => {
      const { prospect, takesRounds, odds } = plans[i]!;
      const lagsTooFar = takesRounds && this.#model!.lag(prospect.tokens) > PROBE_LAG;
      return count === 0 && isProbe && takesRounds && !lagsTooFar
        ? Math.min(1, odds.length)
        : count;
    });
  }
}

/**
 * Adds tokens to a draft, at most `room`. A token that a constraint forces replaces a different
 * proposed one, and ends the proposal.
 */
function fill(draft: Draft, proposed: readonly number[], room: number): void {
  for (const token of proposed) {
    const { forced = token } = draft;
    if (draft.tokens.length === room || forced !== token) break;
    if (!draft.add(token)) return;
  }
  while (draft.forced !== undefined && draft.tokens.length < room) {
    if (!draft.add(draft.forced)) return;
  }
}

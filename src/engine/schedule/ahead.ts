import type { StepResult } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Runner, RunOptions } from "../runner.ts";
import type { Speculator } from "../speculation/speculator.ts";
import { commonStride, onlyDecodes, type PlannedChunk, rowsOf } from "./step_plan.ts";
import type { TokenList } from "../token_list.ts";

/** A plan as it is run. */
export interface AheadPlan {
  readonly plan: readonly PlannedChunk[];
  readonly options: RunOptions & { readonly nSteps: number };
}

const ONE_STEP = { nSteps: 1 };

/**
 * What a run that only decodes computes beyond the tokens that are certain: guesses of those that
 * follow, or, where nothing is guessed, several steps, each on the tokens that the one before chose.
 */
export class Ahead {
  readonly #runner: Pick<Runner, "limits" | "pages">;
  readonly #speculator: Speculator | undefined;
  readonly #pace: StepPace;

  constructor(
    runner: Pick<Runner, "limits" | "pages">,
    speculator: Speculator | undefined,
    pace: StepPace,
  ) {
    this.#runner = runner;
    this.#speculator = speculator;
    this.#pace = pace;
  }

  /**
   * Adds to a plan what is computed ahead, for which nobody gives pages up.
   *
   * @param nActive sequences that hold pages; each of them may soon need one more
   * @returns the chunks of those that are still wanted
   */
  async extend(plan: readonly PlannedChunk[], nActive: number): Promise<AheadPlan> {
    if (!onlyDecodes(plan)) return { plan, options: ONE_STEP };
    if (this.#speculator === undefined) return { plan, options: this.#stride(plan, nActive) };
    await this.#draft(plan, nActive, this.#speculator);
    // A draft model takes its time, in which some may have been stopped.
    const wanted = plan.filter(({ sequence }) => !sequence.task.isEnded);
    return {
      plan: wanted,
      options: this.#speculator.isBound ? ONE_STEP : this.#stride(wanted, nActive),
    };
  }

  /** Takes note of what a run took. */
  measure({ plan, options }: AheadPlan, results: readonly StepResult[][], took: number): void {
    if (plan.length === 0 || !onlyDecodes(plan)) return;
    const nSteps = options.nSteps === 1 ? 1 : results[0]!.length;
    const rows = rowsOf(plan);
    this.#pace.measure(rows, took / nSteps);
    this.#speculator?.measure(rows, took / nSteps);
  }

  /** Stops early what {@linkcode extend} is doing. */
  cancel(): void {
    this.#speculator?.cancel();
  }

  /** Frees what is held for a text. */
  forget(tokens: TokenList): void {
    this.#speculator?.forget(tokens);
  }

  /** How many steps are run at once: as many as no task has a say in. */
  #stride(plan: readonly PlannedChunk[], nActive: number): AheadPlan["options"] {
    const { length, endTokens } = commonStride(plan);
    let nSteps = Math.min(this.#pace.steps(rowsOf(plan)), length);
    const { pages } = this.#runner;
    for (const { sequence: { table }, end } of plan) {
      const room = table.capacity - end + 1;
      const mayGrow = pages.freePages > nActive;
      if (nSteps > room && !(mayGrow && table.reserve(end + nSteps - 1))) nSteps = room;
    }
    return { nSteps, endTokens };
  }

  /** Has guesses made where there are free pages for them. */
  async #draft(
    plan: readonly PlannedChunk[],
    nActive: number,
    speculator: Speculator,
  ): Promise<void> {
    const { maxTokens, maxOutputs } = this.#runner.limits;
    const { pages } = this.#runner;
    const prospects = plan.flatMap(({ sequence: { task, table }, end }) => {
      const { tokens, draft } = task;
      if (draft === undefined) return [];
      const capacity = pages.freePages > nActive ? Infinity : table.capacity - end;
      const next = () => task.outputs(end, end).at(-1)!;
      return [{ tokens, draft, room: Math.min(draft.room, capacity), next }];
    });
    const rows = rowsOf(plan);
    const most = Math.min(maxTokens - rows, maxOutputs - plan.length);
    await speculator.draft(prospects, rows, most);
    for (const { sequence, end } of plan) {
      if (!sequence.table.reserve(end + sequence.drafted.length)) sequence.task.draft?.clear();
    }
  }
}

/** The tokens of the results of one chunk that its later results stand behind. */
export function tokensAhead(
  { options }: AheadPlan,
  { sequence }: PlannedChunk,
  results: readonly StepResult[],
): readonly number[] {
  if (options.nSteps === 1) return [...sequence.drafted];
  return results.slice(0, -1).flatMap((result) =>
    result instanceof ForgeError ? [] : [result.token]
  );
}

/** How long one run of decoding steps may take: its reader sees tokens 50 times a second. */
const RUN_MS = 20;

/** The most steps of one run: beyond it, what a run costs besides is no longer seen. */
const MOST_STEPS = 64;

/**
 * How many steps that only decode go into one run. A run costs some hundred microseconds beside those
 * of the device: two threads wake up, and code that plans, decodes text and answers is no longer in any
 * cache once weights have passed through. Short steps share that; with long ones tokens come one by one.
 */
export class StepPace {
  readonly #most: number;
  /** Milliseconds of the last step, by the rows it computed. */
  readonly #costs = new Map<number, number>();

  /** @param most steps that a run has; with 1, every token is told as soon as it is known */
  constructor(most: number = MOST_STEPS) {
    this.#most = most;
  }

  /** How many steps of so many rows one run is to have. */
  steps(rows: number): number {
    const cost = this.#costs.get(rows);
    if (cost === undefined) return 1;
    return Math.max(1, Math.min(this.#most, Math.floor(RUN_MS / cost)));
  }

  /** Takes note of what a step has cost. */
  measure(rows: number, milliseconds: number): void {
    this.#costs.set(rows, milliseconds);
  }
}

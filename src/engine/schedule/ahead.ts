import type { StepResult } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Runner, RunOptions } from "../runner.ts";
import type { Speculator } from "../speculation/speculator.ts";
import { commonStride, onlyDecodes, type PlannedChunk, rowsOf } from "./step_plan.ts";
import type { TokenList } from "../token_list.ts";

/** Plan of a step, extended by what is computed ahead. */
interface AheadPlan {
  readonly plan: readonly PlannedChunk[];
  readonly options: RunOptions & { readonly nSteps: number };
}

const ONE_STEP = { nSteps: 1 };

/**
 * Extends a run that only decodes beyond the tokens that are certain: by draft tokens, or, without
 * any, by several steps, each on the tokens that the previous step chose.
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
   * Adds work ahead to a plan. No sequence is preempted for it.
   *
   * @param nActive number of sequences that hold pages; each may soon need one more
   * @returns the extended plan, without tasks that have ended meanwhile
   */
  async extend(plan: readonly PlannedChunk[], nActive: number): Promise<AheadPlan> {
    if (!onlyDecodes(plan)) return { plan, options: ONE_STEP };
    if (this.#speculator === undefined) return { plan, options: this.#stride(plan, nActive) };
    await this.#draft(plan, nActive, this.#speculator);
    // Tasks may have been stopped while a draft model ran.
    const wanted = plan.filter(({ sequence }) => !sequence.task.isEnded);
    return {
      plan: wanted,
      options: this.#speculator.isFixed ? ONE_STEP : this.#stride(wanted, nActive),
    };
  }

  /** Records the duration of a run, in milliseconds. */
  measure({ plan, options }: AheadPlan, results: readonly StepResult[][], took: number): void {
    if (plan.length === 0 || !onlyDecodes(plan)) return;
    const nSteps = options.nSteps === 1 ? 1 : results[0]!.length;
    const rows = rowsOf(plan);
    this.#pace.measure(rows, took / nSteps);
    this.#speculator?.measure(rows, took / nSteps);
  }

  /** Stops an {@linkcode extend} in progress early. */
  cancel(): void {
    this.#speculator?.cancel();
  }

  /** Frees what is held for a sequence, by its tokens. */
  forget(tokens: TokenList): void {
    this.#speculator?.forget(tokens);
  }

  /**
   * Chooses how many steps one run takes: as many as all tasks can continue without their own code.
   */
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

  /** Drafts tokens where free pages hold them. */
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

/**
 * Returns the tokens computed ahead in one chunk: each of its results but the first follows one of
 * them.
 */
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

/** Longest run of decoding steps, in milliseconds: a reader sees tokens 50 times a second. */
const RUN_MS = 20;

/** Most steps of one run. With more of them, the overhead of a run is no longer measurable. */
const MOST_STEPS = 64;

/**
 * Chooses how many decoding steps go into one run. Each run adds some hundred microseconds to the
 * time of the device: two threads wake up, and the code that plans and decodes text has been
 * evicted from the caches by the weights. Short steps share that overhead; long ones run one at a
 * time.
 */
export class StepPace {
  readonly #most: number;
  /** Milliseconds of the last step, by its number of rows. */
  readonly #costs = new Map<number, number>();

  /** @param most most steps of a run; with 1, every token is reported at once */
  constructor(most: number = MOST_STEPS) {
    this.#most = most;
  }

  /** Returns the number of steps of one run whose steps have `rows` rows. */
  steps(rows: number): number {
    const cost = this.#costs.get(rows);
    if (cost === undefined) return 1;
    return Math.max(1, Math.min(this.#most, Math.floor(RUN_MS / cost)));
  }

  /** Records the duration of a step. */
  measure(rows: number, milliseconds: number): void {
    this.#costs.set(rows, milliseconds);
  }
}

import type { StepResult } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Runner, RunOptions } from "../runner.ts";
import type { Draft } from "../speculation/draft.ts";
import type { Speculator } from "../speculation/speculator.ts";
import type { TokenList } from "../token_list.ts";
import { SAMPLING, type Task } from "./sequence.ts";
import { isDecoding, type PlannedChunk } from "./step_plan.ts";

/** Allows steps to compute tokens beyond those of a task. */
export interface Lookahead {
  /** Draft of the tokens that follow. */
  readonly draft: Draft;
  /** Number of tokens that may be computed without asking the task in between, at least 1. */
  readonly stride: number;
  /** Tokens that end the text. */
  readonly endTokens: Iterable<number>;
}

/** Plan of a step, extended by what is computed ahead. */
interface AheadPlan {
  readonly plan: readonly PlannedChunk[];
  readonly options: RunOptions & { readonly nSteps: number };
  /** Milliseconds that it took to save recurrent states, which belong to the step's time. */
  readonly saving: number;
}

const ONE_STEP = { nSteps: 1 };

/**
 * Extends a run that only decodes beyond the tokens that are certain: by draft tokens, or, without
 * any, by several steps, each on the tokens that the previous step chose.
 */
export class Ahead {
  readonly #runner: Pick<Runner, "limits" | "pages" | "copySlot">;
  readonly #speculator: Speculator | undefined;
  readonly #pace: StepPace;
  readonly #lookaheads = new WeakMap<Task, Lookahead>();

  constructor(
    runner: Pick<Runner, "limits" | "pages" | "copySlot">,
    speculator: Speculator | undefined,
    pace: StepPace,
  ) {
    this.#runner = runner;
    this.#speculator = speculator;
    this.#pace = pace;
  }

  /** Allows steps to compute tokens beyond those of a task; other tasks get none. */
  allow(task: Task, lookahead: Lookahead): void {
    this.#lookaheads.set(task, lookahead);
  }

  /**
   * Adds work ahead to a plan. No sequence is preempted for it.
   *
   * @param nActive number of sequences that hold pages; each may soon need one more
   * @returns the extended plan, without tasks that have ended meanwhile
   */
  async extend(plan: readonly PlannedChunk[], nActive: number): Promise<AheadPlan> {
    if (!onlyDecodes(plan)) return { plan, options: ONE_STEP, saving: 0 };
    if (this.#speculator === undefined) {
      return { plan, options: this.#stride(plan, nActive), saving: 0 };
    }
    await this.#draft(plan, nActive, this.#speculator);
    const start = performance.now();
    // Tasks may have been stopped while a draft model ran.
    const drafted = plan.filter(({ sequence: { task } }) => !task.isEnded)
      .map((chunk) => ({ ...chunk, drafted: this.#keptDraft(chunk) }));
    const saving = performance.now() - start;
    const options = this.#speculator.isFixed ? ONE_STEP : this.#stride(drafted, nActive);
    return { plan: drafted, options, saving };
  }

  /** Records the duration of a run, in milliseconds. */
  measure(
    { plan, options, saving }: AheadPlan,
    results: readonly unknown[][],
    took: number,
  ): void {
    if (plan.length === 0 || !onlyDecodes(plan)) return;
    const nSteps = options.nSteps === 1 ? 1 : results[0]!.length;
    const rows = rowsOf(plan);
    this.#pace.measure(rows, took / nSteps);
    this.#speculator?.measure(rows, (took + saving) / nSteps);
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
    const { length, endTokens } = this.#commonStride(plan);
    let nSteps = Math.min(this.#pace.steps(rowsOf(plan)), length);
    const { pages } = this.#runner;
    for (const { sequence: { cache: { table } }, end } of plan) {
      const room = table.capacity - end + 1;
      const mayGrow = pages.freePages > nActive;
      if (nSteps > room && !(mayGrow && table.reserve(end + nSteps - 1))) nSteps = room;
    }
    return { nSteps, endTokens };
  }

  /**
   * Returns the stride that all tasks of a plan allow: 1 if any has draft tokens or a longer chunk.
   */
  #commonStride(plan: readonly PlannedChunk[]): { length: number; endTokens: number[] } {
    let length = Infinity;
    const ends = new Set<number>();
    for (const { sequence: { task, computed }, end, drafted } of plan) {
      const { stride, endTokens } = this.#lookaheads.get(task) ?? { stride: 1, endTokens: [] };
      length = end - computed === 1 && drafted.length === 0 ? Math.min(length, stride) : 1;
      if (length === 1) return { length, endTokens: [] };
      for (const token of endTokens) ends.add(token);
    }
    return { length, endTokens: [...ends] };
  }

  /** Drafts tokens where free pages hold them. */
  async #draft(
    plan: readonly PlannedChunk[],
    nActive: number,
    speculator: Speculator,
  ): Promise<void> {
    const { maxTokens, maxOutputs } = this.#runner.limits;
    const { pages } = this.#runner;
    const prospects = plan.flatMap(({ sequence: { task, computed, cache }, end }) => {
      const { table, stored } = cache;
      const draft = this.#lookaheads.get(task)?.draft;
      if (draft === undefined) return [];
      const capacity = pages.freePages > nActive ? Infinity : table.capacity - end;
      const next = () => task.outputs(end, end).at(-1)!;
      const room = Math.min(draft.room, capacity);
      const replayed = table.slot === undefined ? 0 : end - computed;
      return [{ tokens: task.tokens, draft, room, replayed, table, stored, next }];
    });
    const rows = rowsOf(plan);
    const most = Math.min(maxTokens - rows, maxOutputs - plan.length);
    await speculator.draft(prospects, rows, most);
  }

  /**
   * Returns the draft tokens of a chunk. Reserves their pages and saves the recurrent state that
   * they would change; without room for both, there are none.
   */
  #keptDraft({ sequence: { task, cache: { table } }, end }: PlannedChunk): number[] {
    const draft = this.#lookaheads.get(task)?.draft;
    if (draft === undefined || draft.tokens.length === 0) return [];
    const canKeep = table.reserve(end + draft.tokens.length) &&
      table.saveState((from, to) => this.#runner.copySlot(from, to));
    if (!canKeep) draft.clear();
    return [...draft.tokens];
  }
}

/** True if every chunk of a step decodes to the end of its sequence, so that it can run ahead. */
function onlyDecodes(plan: readonly PlannedChunk[]): boolean {
  return plan.every(({ sequence, end }) =>
    end === sequence.length && isDecoding(sequence) && sequence.task.kind === SAMPLING
  );
}

/** Returns the number of rows of a step, draft tokens included. */
function rowsOf(plan: readonly PlannedChunk[]): number {
  return plan.reduce(
    (rows, { sequence, end, drafted }) => rows + end - sequence.computed + drafted.length,
    0,
  );
}

/**
 * Returns the tokens computed ahead in one chunk: each of its results but the first follows one of
 * them.
 */
export function tokensAhead(
  { options }: AheadPlan,
  { drafted }: PlannedChunk,
  results: readonly unknown[],
): readonly number[] {
  if (options.nSteps === 1) return drafted;
  // Only steps that sample tokens run several at once.
  const sampled = results.slice(0, -1) as StepResult[];
  return sampled.flatMap((result) => result instanceof ForgeError ? [] : [result.token]);
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

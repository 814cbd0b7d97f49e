import type { OutputRequest, StepResult } from "../../backend.ts";
import { ForgeError } from "../../errors.ts";
import type { Chunk, Runner, RunOptions } from "../runner.ts";
import {
  type Draft,
  DraftBranch,
  type DraftNode,
  type DraftPath,
  type Prospect,
} from "../speculation/draft.ts";
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
  /** Returns the outputs after the own tokens of a path of the draft. */
  draftOutputs(path: DraftPath): readonly OutputRequest[];
}

/** Plan of a step, extended by what is computed ahead. */
interface AheadPlan {
  readonly plan: readonly PlannedChunk[];
  readonly options: RunOptions & { readonly nSteps: number };
  /** Milliseconds that it took to save recurrent states, which belong to the step's time. */
  readonly saving: number;
}

/** Part of a runner that work ahead uses. */
type AheadRunner = Pick<Runner, "limits" | "pages" | "copyPage" | "copySlot">;

/** Outputs of a planned chunk that count, in order. */
interface ChunkOutcome {
  readonly results: readonly unknown[];
  /** Index of each among the outputs of the step. */
  readonly outputs: readonly number[];
  /** Tokens computed ahead: each result but the first follows one more of them. */
  readonly ahead: readonly number[];
}

const ONE_STEP = { nSteps: 1 };

/**
 * Extends a run that only decodes beyond the tokens that are certain: by draft tokens, or, without
 * any, by several steps, each on the tokens that the previous step chose.
 */
export class Ahead {
  readonly #runner: AheadRunner;
  readonly #speculator: Speculator | undefined;
  readonly #pace: StepPace;
  readonly #lookaheads = new WeakMap<Task, Lookahead>();

  constructor(
    runner: AheadRunner,
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
   * Drafts tokens for a plan that only decodes. Tasks may end until it resolves.
   *
   * @param nActive number of sequences that hold pages; each may soon need one more
   */
  async draft(plan: readonly PlannedChunk[], nActive: number): Promise<void> {
    if (this.#speculator === undefined || !onlyDecodes(plan)) return;
    await this.#draft(plan, nActive, this.#speculator);
  }

  /**
   * Adds work ahead to a plan, with what {@linkcode draft} has drafted. No sequence is preempted
   * for it. The step must be packed in the same turn: a task that ends frees the pages of its
   * branches.
   *
   * @param nActive as {@linkcode draft}
   * @returns the extended plan, without tasks that have ended meanwhile
   */
  extend(plan: readonly PlannedChunk[], nActive: number): AheadPlan {
    if (!onlyDecodes(plan)) return { plan, options: ONE_STEP, saving: 0 };
    if (this.#speculator === undefined) {
      return { plan, options: this.#stride(plan, nActive), saving: 0 };
    }
    const start = performance.now();
    const drafted = plan.filter(({ sequence: { task } }) => !task.isEnded)
      .map((chunk) => ({ ...chunk, ...this.#keptDraft(chunk) }));
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

  /** Stops a {@linkcode draft} in progress early. */
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
    const { maxTokens, maxOutputs, maxBranches } = this.#runner.limits;
    const { pages } = this.#runner;
    const prospects: Prospect[] = plan.flatMap(({ sequence: { task, computed, cache }, end }) => {
      const { table, stored } = cache;
      const lookahead = this.#lookaheads.get(task);
      if (lookahead === undefined) return [];
      const { draft } = lookahead;
      const capacity = pages.freePages > nActive ? Infinity : table.capacity - end;
      const next = (path: DraftPath = draft) =>
        path.depth === 0 ? task.outputs(end, end).at(-1)! : lookahead.draftOutputs(path).at(-1)!;
      const room = Math.min(draft.room, capacity);
      const replayed = table.slot === undefined ? 0 : end - computed;
      const branch = (path: DraftPath, from: number, token: number) => {
        const taken = sum(prospects.map(({ draft }) => draft.branches.length));
        if (taken >= maxBranches || pages.freePages <= nActive) return undefined;
        const shared = path instanceof DraftBranch ? path.table : table;
        const own = shared.branch(end + from, (a, b) => this.#runner.copyPage(a, b));
        return own && draft.branch(path, from, token, own);
      };
      const tree = maxBranches > 0 && table.slot === undefined ? { branch } : {};
      return [{ tokens: task.tokens, draft, room, replayed, table, stored, next, ...tree }];
    });
    const rows = rowsOf(plan);
    const most = Math.min(maxTokens - rows, maxOutputs - plan.length);
    await speculator.draft(prospects, rows, most);
  }

  /**
   * Returns the draft tokens of a chunk. Reserves their pages and saves the recurrent state that
   * they would change; without room for both, there are none.
   */
  #keptDraft(
    { sequence: { task, cache: { table } }, end }: PlannedChunk,
  ): Pick<PlannedChunk, "drafted" | "branches"> {
    const draft = this.#lookaheads.get(task)?.draft;
    if (draft === undefined || draft.tokens.length === 0) return { drafted: [], branches: [] };
    const { branches } = draft;
    // The table takes over the pages of an accepted branch.
    const deepest = Math.max(draft.depth, ...branches.map(({ depth }) => depth));
    const canKeep = table.reserve(end + deepest) &&
      branches.every((branch) => branch.table.reserve(end + branch.depth)) &&
      table.saveState((from, to) => this.#runner.copySlot(from, to));
    if (!canKeep) draft.clear();
    return { drafted: [...draft.tokens], branches: [...branches] };
  }

  /**
   * Returns the chunks of a plan: each planned one, then its branches, which follow rows of it or
   * of each other.
   */
  chunks(plan: readonly PlannedChunk[]): Chunk[] {
    const chunks: Chunk[] = [];
    for (const { sequence, end, drafted, branches } of plan) {
      const { task, cache: { table }, computed: start } = sequence;
      const adapterScales = task.tokens.adapters?.scales;
      const known = task.tokens.view(start, end);
      const tokens = drafted.length === 0 ? known : [...known, ...drafted];
      const first = chunks.length;
      chunks.push({ table, tokens, start, outputs: task.outputs(start, end), adapterScales });
      for (const branch of branches) {
        const { parent, from, table, ownTokens } = branch;
        const index = branches.findIndex((other) => other === parent);
        const row = index < 0 ? end - start - 1 + from : from - parent.from - 1;
        chunks.push({
          table,
          tokens: ownTokens,
          start: end + from,
          parent: { chunk: first + 1 + index, row },
          outputs: this.#lookaheads.get(task)!.draftOutputs(branch),
          adapterScales,
        });
      }
    }
    return chunks;
  }

  /**
   * Returns the outputs that count of a chunk and its branches. The draft goes on with the accepted
   * tokens, whose keys and values are copied to the pages of the sequence.
   *
   * @param results of the chunk and of each of its branches
   * @param first index of the first of them among the outputs of the step
   */
  outcome(
    { options }: AheadPlan,
    { sequence: { task, cache: { table } }, end, drafted, branches }: PlannedChunk,
    results: readonly (readonly unknown[])[],
    first: number,
  ): ChunkOutcome {
    const own = results[0]!;
    if (branches.length === 0) {
      const ahead = options.nSteps === 1 ? drafted : chosen(own);
      return { results: own, outputs: own.map((_, i) => first + i), ahead };
    }
    const { draft } = this.#lookaheads.get(task)!;
    const firsts = results.map((_, i) => first + sum(results.slice(0, i).map((of) => of.length)));
    const place = ({ path, depth }: DraftNode) => {
      const branch = branches.findIndex((other) => other === path);
      return { chunk: branch + 1, output: branch < 0 ? depth : depth - path.from - 1 };
    };
    const resultAt = (node: DraftNode) => {
      const { chunk, output } = place(node);
      return results[chunk]![output] as StepResult;
    };
    const nodes = draft.accepted((node) => {
      const result = resultAt(node);
      return result instanceof ForgeError ? undefined : result.token;
    });
    const { path, depth } = nodes.at(-1)!;
    const branch = branches.find((other) => other === path);
    const ahead = path.tokens.slice(0, depth);
    if (branch !== undefined) {
      table.takeBranch(branch.table, end + depth, (a, b) => this.#runner.copyPage(a, b));
      draft.select(branch);
    }
    return {
      results: nodes.map(resultAt),
      outputs: nodes.map(place).map(({ chunk, output }) => firsts[chunk]! + output),
      ahead,
    };
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
  return sum(plan.map((chunk) => chunk.end - chunk.sequence.computed + draftedIn(chunk)));
}

/** Returns the number of draft tokens of a chunk, of all branches. */
export function draftedIn({ drafted, branches }: PlannedChunk): number {
  return drafted.length + sum(branches.map(({ ownTokens }) => ownTokens.length));
}

/** Returns the tokens chosen by all steps of a run but the last. */
function chosen(results: readonly unknown[]): readonly number[] {
  // Only steps that sample tokens run several at once.
  const sampled = results.slice(0, -1) as StepResult[];
  return sampled.flatMap((result) => result instanceof ForgeError ? [] : [result.token]);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
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

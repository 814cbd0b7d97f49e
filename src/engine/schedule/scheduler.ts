import { ForgeError } from "../../errors.ts";
import { Ahead, draftedIn, type Lookahead, StepPace } from "./ahead.ts";
import type { Pool } from "../cache/pool.ts";
import { PrefixCache } from "../cache/prefix_cache.ts";
import { SequenceCache } from "../cache/sequence_cache.ts";
import type { Runner } from "../runner.ts";
import { type Progress, Sequence, type Task } from "./sequence.ts";
import type { Speculator } from "../speculation/speculator.ts";
import { StateSnapshots } from "../cache/state_snapshots.ts";
import { ofOneKind, type PlannedChunk, planStep } from "./step_plan.ts";
import { WaitingLine } from "./waiting_line.ts";

/** Part of the runner that the scheduler uses. */
export type StepRunner = Pick<
  Runner,
  | "limits"
  | "pages"
  | "slots"
  | "newSequence"
  | "run"
  | "embed"
  | "cancel"
  | "copyPage"
  | "copySlot"
  | "readSlot"
  | "readLogits"
>;

/** Owner of several schedulers, which gives them their tasks. */
export interface SchedulerOwner {
  /** Submits tasks to schedulers that have room. */
  refill(): void;
  /**
   * Receives the tasks of a scheduler whose device has failed, and which then is closed. Returns
   * false to leave it open and have its tasks fail.
   */
  takeOver(from: Scheduler, tasks: readonly Task[], error: ForgeError): boolean;
}

/**
 * Runs the tasks of one model by continuous batching. Every step computes the next tokens of all
 * sequences that have any; sequences join and leave between steps.
 *
 * A sequence joins when free pages hold all its tokens. When pages run out as sequences grow,
 * paused sequences are preempted first, then the newest one. A preempted sequence rejoins later and
 * recomputes the tokens whose pages have been reused by then. Pages may also be in use by prompts
 * that are being saved or loaded, for which sequences wait.
 */
export class Scheduler {
  readonly cache: PrefixCache;
  /** Number of preemptions so far. */
  preemptions = 0;
  readonly #runner: StepRunner;
  readonly #ahead: Ahead;
  readonly #waiting: WaitingLine;
  /** Sequences that hold pages, in the order in which they are served. */
  #active: Sequence[] = [];
  #inStep: readonly PlannedChunk[] = [];
  readonly #pendingActions: (() => void)[] = [];
  #arrivals = 0;
  #isWorking = false;
  #work: Promise<void> = Promise.resolve();
  #closed: ForgeError | undefined;
  #owner: SchedulerOwner | undefined;
  /** True if the last admission ended because pages ran out. */
  #lacksPages = false;

  /**
   * @param speculator drafts tokens; without it, no step takes draft tokens
   * @param pace chooses the number of steps of one run
   */
  constructor(runner: StepRunner, speculator?: Speculator, pace: StepPace = new StepPace()) {
    this.#runner = runner;
    this.#ahead = new Ahead(runner, speculator, pace);
    const snapshots = runner.slots &&
      new StateSnapshots(runner.slots, (from, to) => runner.copySlot(from, to));
    this.cache = new PrefixCache(
      runner.pages,
      (from, to) => runner.copyPage(from, to),
      snapshots,
    );
    this.#waiting = new WaitingLine(this.cache, 2 * runner.limits.maxSequences);
    for (const pool of this.#pools) {
      pool.onFree = () => {
        if (this.#lacksPages) this.#wake();
      };
    }
  }

  /** Sets the owner, which is asked for more tasks before each step. */
  setOwner(owner: SchedulerOwner): void {
    this.#owner = owner;
  }

  /** True once the scheduler takes no more tasks. */
  get isClosed(): boolean {
    return this.#closed !== undefined;
  }

  /** True if one more task would not have to wait for the others. */
  get hasRoom(): boolean {
    const taken = this.#nReady + this.#waiting.length;
    return this.#closed === undefined && !this.#lacksPages && taken < this.#limits.maxSequences;
  }

  /** Sequences in progress or waiting, and the tokens of theirs that are still to compute. */
  get load(): { readonly sequences: number; readonly pending: number } {
    const all = [...this.#active, ...this.#waiting];
    const pending = all.reduce((sum, { length, computed, cached }) => {
      return sum + length - Math.max(computed, cached);
    }, 0);
    return { sequences: all.length, pending };
  }

  /**
   * Enqueues a task. Progress is reported through its methods.
   *
   * @param lookahead allows steps to compute tokens beyond those of the task
   * @param cached tokens that the cache has of the task, as far as known
   */
  submit(task: Task, lookahead?: Lookahead, cached = 0): void {
    if (this.#closed !== undefined) return task.fail(this.#closed);
    task.onChange = () => this.#taskChanged();
    if (lookahead !== undefined) this.#ahead.allow(task, lookahead);
    const pages = new SequenceCache(task, this.#runner.newSequence(), this.cache);
    this.#waiting.add(new Sequence(task, pages, this.#arrivals++, cached));
    this.#wake();
  }

  /** Calls `action` while no step runs, after the step in progress. */
  betweenSteps<T>(action: () => T): Promise<T> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    this.#pendingActions.push(() => {
      try {
        resolve(action());
      } catch (error) {
        reject(error);
      }
    });
    this.#wake();
    return promise;
  }

  /** Fails all tasks with an error, and every task submitted later. */
  close(error: ForgeError): void {
    this.#closed ??= error;
    this.#failAll(error);
    this.#runner.cancel();
    this.#ahead.cancel();
  }

  /** Resolves when no step runs and none is pending. */
  idle(): Promise<void> {
    return this.#work;
  }

  #taskChanged(): void {
    const { length } = this.#inStep;
    if (length > 0 && this.#inStep.every(({ sequence }) => sequence.task.isEnded)) {
      this.#runner.cancel();
      this.#ahead.cancel();
    }
    this.#wake();
  }

  #wake(): void {
    if (this.#isWorking) return;
    this.#isWorking = true;
    this.#work = this.#runSteps();
  }

  async #runSteps(): Promise<void> {
    // Tasks submitted in the same turn of the event loop start with the same step.
    await Promise.resolve();
    let since = performance.now();
    for (;;) {
      const plan = this.#nextStep();
      if (plan.length === 0) break;
      since = await this.#runStep(plan, since);
    }
    this.#isWorking = false;
  }

  /** Plans the next step; empty if every task has ended or is paused. */
  #nextStep(): PlannedChunk[] {
    try {
      for (const action of this.#pendingActions.splice(0)) action();
      this.#retire();
      this.#admit();
      if (this.#owner !== undefined) {
        this.#owner.refill();
        this.#admit();
      }
      const ready = ofOneKind(this.#active.filter(({ isReady }) => isReady));
      if (ready.length === 0) return [];
      const plan = this.#reserve(planStep(ready, this.#limits));
      // If all of them were preempted, others have room now.
      return plan.length > 0 ? plan : this.#nextStep();
    } catch (error) {
      if (this.#handOver(error)) return [];
      this.#failAll(error);
      this.#retire();
      return [];
    }
  }

  get #limits() {
    return this.#runner.limits;
  }

  get #pools(): readonly Pool[] {
    const { pages, slots } = this.#runner;
    return slots === undefined ? [pages] : [pages, slots];
  }

  /** True if nothing but a sequence uses pages. */
  #isAlone({ cache: { table } }: Sequence): boolean {
    const { freePages, nPages } = this.#runner.pages;
    return freePages + table.pages.length >= nPages;
  }

  get #nReady(): number {
    return this.#active.filter(({ isReady }) => isReady).length;
  }

  /** Frees ended sequences. Their pages stay in the prefix cache until they are reused. */
  #retire(): void {
    if (!this.#active.some(({ task }) => task.isEnded)) return;
    this.#active = this.#active.filter((sequence) => {
      if (!sequence.task.isEnded) return true;
      this.#leave(sequence);
      return false;
    });
  }

  /** Admits waiting sequences while a step and the cache have room. */
  #admit(): void {
    this.#lacksPages = false;
    while (this.#nReady < this.#limits.maxSequences) {
      const sequence = this.#waiting.next(this.#active);
      if (sequence === undefined) return;
      if (this.#enter(sequence)) {
        this.#waiting.remove(sequence);
        this.#active.push(sequence);
      } else if (this.#active.length > 0 || this.#pools.some(({ free, size }) => free < size)) {
        this.#lacksPages = true;
        return;
      } else {
        this.#reject(sequence);
      }
    }
  }

  #enter(sequence: Sequence): boolean {
    for (;;) {
      // Each active sequence may soon need one more page.
      const room = this.#runner.pages.freePages - this.#active.length;
      if (sequence.enter(room)) return true;
      const idler = newest(this.#active.filter(({ task }) => task.isPaused));
      if (idler === undefined) return false;
      this.#preempt(idler);
    }
  }

  /** Fails a sequence that does not fit the cache even alone. */
  #reject({ task, length }: Sequence): void {
    const { nPages, pageTokens } = this.#runner.pages;
    task.fail(
      new ForgeError(
        "bad_input",
        `a sequence of ${length} tokens does not fit the KV cache, which holds ` +
          `${nPages * pageTokens}`,
      ),
    );
  }

  /**
   * Reserves the pages of a plan, preempting other sequences if needed; preempted ones leave the
   * plan.
   */
  #reserve(plan: PlannedChunk[]): PlannedChunk[] {
    let isComplete = true;
    for (const { sequence, end } of plan) {
      while (this.#active.includes(sequence) && !sequence.cache.table.reserve(end)) {
        isComplete = false;
        if (this.#active.length === 1 && this.#isAlone(sequence)) {
          this.#reject(sequence);
          return [];
        }
        const idlers = this.#active.filter(({ task }) => task.isPaused);
        this.#preempt(newest(idlers) ?? newest(this.#active)!);
      }
    }
    return isComplete ? plan : plan.filter(({ sequence }) => this.#active.includes(sequence));
  }

  #preempt(sequence: Sequence): void {
    this.preemptions++;
    this.#leave(sequence);
    this.#active = this.#active.filter((other) => other !== sequence);
    this.#waiting.add(sequence);
  }

  #leave(sequence: Sequence): void {
    sequence.cache.retire();
    this.#ahead.forget(sequence.task.tokens);
  }

  /** Runs a step and delivers its results. Returns the time at which it ended. */
  async #runStep(planned: readonly PlannedChunk[], since: number): Promise<number> {
    this.#inStep = planned;
    const { kind } = planned[0]!.sequence.task;
    try {
      await this.#ahead.draft(planned, this.#active.length);
      const extended = this.#ahead.extend(planned, this.#active.length);
      const { plan, options } = extended;
      if (plan.length === 0) return performance.now();
      const start = performance.now();
      const chunks = this.#ahead.chunks(plan);
      const results = await kind.run(this.#runner, chunks, options);
      const now = performance.now();
      this.#ahead.measure(extended, results, now - start);
      let output = 0, next = 0;
      for (const chunk of plan) {
        const { table } = chunk.sequence.cache;
        const own = results.slice(next, next += 1 + chunk.branches.length);
        const drafted = draftedIn(chunk);
        const { outputs, ...outcome } = this.#ahead.outcome(extended, chunk, own, output);
        output += own.reduce((sum, { length }) => sum + length, 0);
        this.#advance(chunk, {
          ...outcome,
          computed: chunk.end,
          drafted,
          pages: table.pages,
          began: since,
          ended: now,
          readLogits: (result) => this.#runner.readLogits(outputs[result]!),
          readState: () => this.#runner.readSlot(table.slot),
        });
      }
      this.#takeTurns(plan);
      return now;
    } catch (error) {
      for (const { sequence } of planned) sequence.cache.invalidateState();
      // A step is cancelled when all its tasks have ended.
      if (error instanceof ForgeError && error.code === "cancelled") return performance.now();
      if (this.#handOver(error)) return performance.now();
      if (kind.failsAlone) fail(planned.map(({ sequence }) => sequence), error);
      else this.#failAll(error);
      return performance.now();
    } finally {
      this.#inStep = [];
    }
  }

  #advance({ sequence, end }: PlannedChunk, progress: Progress<unknown>): void {
    const { task, cache, computed, length } = sequence;
    const endsPrompt = end - computed > 1 && end === length;
    if (!task.isEnded) {
      try {
        task.accept(progress);
      } catch (error) {
        task.fail(error);
      }
    }
    cache.advance(end, progress.ahead, endsPrompt);
  }

  /** If not all sequences fit one step, moves those of the last step to the end of the order. */
  #takeTurns(plan: readonly PlannedChunk[]): void {
    const canAllBe = this.#active.length <= this.#limits.maxSequences &&
      ofOneKind(this.#active).length === this.#active.length;
    if (canAllBe) return;
    const served = new Set(plan.map(({ sequence }) => sequence));
    this.#active = [
      ...this.#active.filter((sequence) => !served.has(sequence)),
      ...this.#active.filter((sequence) => served.has(sequence)),
    ];
  }

  #failAll(error: unknown): void {
    fail([...this.#active, ...this.#waiting.takeAll()], error);
  }

  /** Gives all tasks to the owner if the device has failed and others can continue. */
  #handOver(error: unknown): boolean {
    if (!(error instanceof ForgeError) || error.code !== "device") return false;
    const tasks = [...this.#active, ...this.#waiting].map(({ task }) => task);
    if (!this.#owner?.takeOver(this, tasks, error)) return false;
    this.#closed = error;
    this.#active = [];
    this.#waiting.takeAll();
    return true;
  }
}

function fail(sequences: readonly Sequence[], error: unknown): void {
  for (const { task } of sequences) if (!task.isEnded) task.fail(error);
}

/** Returns the sequence that arrived last. */
function newest(sequences: readonly Sequence[]): Sequence | undefined {
  return sequences.reduce<Sequence | undefined>(
    (latest, sequence) => sequence.arrival > (latest?.arrival ?? -1) ? sequence : latest,
    undefined,
  );
}

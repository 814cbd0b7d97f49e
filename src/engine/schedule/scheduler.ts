import { ForgeError } from "../../errors.ts";
import { Ahead, StepPace, tokensAhead } from "./ahead.ts";
import { PrefixCache } from "../cache/prefix_cache.ts";
import type { Chunk, Runner } from "../runner.ts";
import { type Progress, Sequence, type Task } from "./sequence.ts";
import type { Speculator } from "../speculation/speculator.ts";
import { StateSnapshots } from "../cache/state_snapshots.ts";
import { embeds, ofOneKind, type PlannedChunk, planStep } from "./step_plan.ts";
import { commonLength } from "../token_list.ts";
import { WaitingLine } from "./waiting_line.ts";

/** What the scheduler needs of a runner. */
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

/**
 * Runs the tasks of one model, as many at a time as there is room for. Every step takes the next tokens
 * of all sequences that have any; sequences join and leave between steps.
 *
 * A sequence joins when there are pages for all its tokens. When the pages run out as sequences grow,
 * those that pause give theirs up first, then the one that came last; it comes back later and is
 * computed anew from its own tokens, as far as its pages are gone by then.
 */
export class Scheduler {
  readonly cache: PrefixCache;
  /** How often a sequence had to give its pages up. */
  preemptions = 0;
  readonly #runner: StepRunner;
  readonly #ahead: Ahead;
  readonly #waiting: WaitingLine;
  /** Those that hold pages, in the order of their turns. */
  #active: Sequence[] = [];
  #inStep: readonly PlannedChunk[] = [];
  readonly #errands: (() => void)[] = [];
  #arrivals = 0;
  #isWorking = false;
  #work: Promise<void> = Promise.resolve();
  #closed: ForgeError | undefined;

  /**
   * @param speculator guesses tokens, where steps are to take guesses along
   * @param pace says how many steps one run is to have
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
  }

  /** Takes a task in. How it goes on, the task is told. */
  submit(task: Task): void {
    if (this.#closed !== undefined) return task.fail(this.#closed);
    task.onChange = () => this.#taskChanged();
    this.#waiting.add(new Sequence(task, this.#runner.newSequence(), this.#arrivals++));
    this.#wake();
  }

  /** Does something to the device while no step runs, after the step in progress. */
  betweenSteps<T>(errand: () => T): Promise<T> {
    if (this.#closed !== undefined) return Promise.reject(this.#closed);
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    this.#errands.push(() => {
      try {
        resolve(errand());
      } catch (error) {
        reject(error);
      }
    });
    this.#wake();
    return promise;
  }

  /** Ends all tasks with an error, and those to come. */
  close(error: ForgeError): void {
    this.#closed ??= error;
    this.#failAll(error);
    this.#runner.cancel();
    this.#ahead.cancel();
  }

  /** Settles when no step runs and none is to come for now. */
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
    // What is asked for in one turn of the event loop begins with the same step.
    await Promise.resolve();
    let since = performance.now();
    for (;;) {
      const plan = this.#nextStep();
      if (plan.length === 0) break;
      since = await this.#runStep(plan, since);
    }
    this.#isWorking = false;
  }

  /** What to compute next; nothing when all is done, or waits for its reader. */
  #nextStep(): PlannedChunk[] {
    try {
      for (const errand of this.#errands.splice(0)) errand();
      this.#retire();
      this.#admit();
      const ready = ofOneKind(this.#active.filter(({ isReady }) => isReady));
      if (ready.length === 0) return [];
      const plan = this.#reserve(planStep(ready, this.#limits));
      // Where all of them had to give way, there is room for others now.
      return plan.length > 0 ? plan : this.#nextStep();
    } catch (error) {
      this.#failAll(error);
      this.#retire();
      return [];
    }
  }

  get #limits() {
    return this.#runner.limits;
  }

  /** Frees what has ended. Its pages stay known until they are taken. */
  #retire(): void {
    if (!this.#active.some(({ task }) => task.isEnded)) return;
    this.#active = this.#active.filter((sequence) => {
      if (!sequence.task.isEnded) return true;
      this.#leave(sequence);
      return false;
    });
  }

  /** Lets sequences in as long as there is room in a step and in the cache. */
  #admit(): void {
    while (this.#active.filter(({ isReady }) => isReady).length < this.#limits.maxSequences) {
      const sequence = this.#waiting.next(this.#active);
      if (sequence === undefined) return;
      if (this.#enter(sequence)) {
        this.#waiting.remove(sequence);
        this.#active.push(sequence);
      } else if (this.#active.length > 0) {
        return;
      } else {
        this.#refuse(sequence);
      }
    }
  }

  #enter(sequence: Sequence): boolean {
    for (;;) {
      // Each of the others may soon need a page to grow into.
      const room = this.#runner.pages.freePages - this.#active.length;
      if (sequence.enter(this.cache, room)) return true;
      const idler = newest(this.#active.filter(({ task }) => task.isPaused));
      if (idler === undefined) return false;
      this.#preempt(idler);
    }
  }

  /** Ends a sequence that finds no room though it is alone. */
  #refuse({ task, length }: Sequence): void {
    const { nPages, pageTokens } = this.#runner.pages;
    task.fail(
      new ForgeError(
        "bad_input",
        `a sequence of ${length} tokens does not fit the KV cache, which holds ` +
          `${nPages * pageTokens}`,
      ),
    );
  }

  /** Takes the pages that a plan needs; who has to give way for that is left out of it. */
  #reserve(plan: PlannedChunk[]): PlannedChunk[] {
    let isComplete = true;
    for (const { sequence, end } of plan) {
      while (this.#active.includes(sequence) && !sequence.table.reserve(end)) {
        isComplete = false;
        if (this.#active.length === 1) {
          this.#refuse(sequence);
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
    sequence.retire(this.cache);
    this.#ahead.forget(sequence.task.tokens);
  }

  /** Runs a step and hands out what came of it. Returns when it ended. */
  async #runStep(planned: readonly PlannedChunk[], since: number): Promise<number> {
    this.#inStep = planned;
    try {
      const extended = await this.#ahead.extend(planned, this.#active.length);
      const { plan, options } = extended;
      if (plan.length === 0) return performance.now();
      const start = performance.now();
      const chunks = plan.map(toChunk);
      const hidden = embeds(plan) ? await this.#runner.embed(chunks) : undefined;
      const results = hidden?.map(() => []) ?? await this.#runner.run(chunks, options);
      const now = performance.now();
      this.#ahead.measure(extended, results, now - start);
      let output = 0;
      for (const [i, chunk] of plan.entries()) {
        const { sequence, end } = chunk;
        const first = output;
        output += results[i]!.length;
        this.#advance(sequence, end, {
          computed: end,
          results: results[i]!,
          hidden: hidden?.[i],
          ahead: tokensAhead(extended, chunk, results[i]!),
          pages: sequence.table.pages,
          milliseconds: now - since,
          readLogits: (result) => this.#runner.readLogits(first + result),
          readState: () => this.#runner.readSlot(sequence.table.slot),
        });
      }
      this.#takeTurns(plan);
      return now;
    } catch (error) {
      for (const { sequence } of planned) sequence.isSpoiled = true;
      // A step is stopped early when nobody wants it any more.
      if (error instanceof ForgeError && error.code === "cancelled") return performance.now();
      // What only those who embed need, such as memory of their step, others need not fail for.
      if (embeds(planned)) fail(planned.map(({ sequence }) => sequence), error);
      else this.#failAll(error);
      return performance.now();
    } finally {
      this.#inStep = [];
    }
  }

  #advance(sequence: Sequence, end: number, progress: Progress): void {
    const { task } = sequence;
    const chunk = end - sequence.computed;
    sequence.computed = end;
    const endsPrompt = chunk > 1 && end === sequence.length;
    if (!task.isEnded) {
      try {
        task.accept(progress);
      } catch (error) {
        task.fail(error);
      }
    }
    // What was computed ahead is what the tokens need that it came true for.
    const { ahead } = progress;
    sequence.computed += commonLength(ahead, task.tokens.view(end));
    // A recurrent state cannot go back.
    if (sequence.computed < end + ahead.length) sequence.isSpoiled = true;
    sequence.publish(this.cache, endsPrompt);
    if (end === sequence.snapshotAt) sequence.publishState(this.cache, true);
  }

  /** Where not all can be in a step, those that were in the last one go to the end of the line. */
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
}

function fail(sequences: readonly Sequence[], error: unknown): void {
  for (const { task } of sequences) if (!task.isEnded) task.fail(error);
}

function toChunk({ sequence, end }: PlannedChunk): Chunk {
  const { task, table, computed: start, drafted } = sequence;
  const known = task.tokens.view(start, end);
  const tokens = drafted.length === 0 ? known : [...known, ...drafted];
  return { table, tokens, start, outputs: task.outputs(start, end) };
}

/** The one that came last. */
function newest(sequences: readonly Sequence[]): Sequence | undefined {
  return sequences.reduce<Sequence | undefined>(
    (latest, sequence) => sequence.arrival > (latest?.arrival ?? -1) ? sequence : latest,
    undefined,
  );
}

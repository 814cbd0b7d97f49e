import type { OutputRequest, StepResult } from "../../backend.ts";
import type { PageTable } from "../cache/kv_pages.ts";
import { type PrefixCache, PublishedPrefix } from "../cache/prefix_cache.ts";
import type { Draft } from "../speculation/draft.ts";
import type { TokenList } from "../token_list.ts";

/** One chunk of a task that has been computed. */
export interface Progress {
  /** How many of the tokens are computed now, not those that were computed ahead. */
  readonly computed: number;
  /** What the task asked about the chunk. */
  readonly results: readonly StepResult[];
  /** What a task that embeds asked about the chunk: the hidden states of its outputs. */
  readonly hidden?: readonly Float32Array[] | undefined;
  /**
   * What was computed behind those tokens, before it was known that it belongs there: guesses, or what
   * the earlier steps of the same run chose. Each result but the first stands behind one more of them.
   */
  readonly ahead: ArrayLike<number>;
  /** The pages that hold the tokens. */
  readonly pages: readonly number[];
  /** How long the step took, with all that was in it. */
  readonly milliseconds: number;
  /** The logits of one of the results, `[vocabSize]`. */
  readLogits(result: number): Float32Array;
  /** The recurrent state after the tokens, for each of the model's caches; none without any. */
  readState(): Uint8Array[];
}

/** How far a task goes on by itself. */
export interface Stride {
  /** The most tokens, at least 1. */
  readonly length: number;
  /** Tokens that nothing follows. */
  readonly endTokens: Iterable<number>;
}

/** What the scheduler computes: tokens in their order, and what is asked about them. */
export interface Task {
  /** What is to be computed. The task adds to it as it learns how it goes on. */
  readonly tokens: TokenList;
  /** Whether every token has an output, not just the last of a chunk that ends the tokens. */
  readonly scoresAll: boolean;
  /** Whether tokens whose keys and values are known already may be left out, all but the last. */
  readonly mayReuse: boolean;
  /** Whether it asks for hidden states in place of results. Such tasks have steps of their own. */
  readonly embeds?: boolean;
  /** Guesses of the tokens that follow, where the task can do with them. They go behind the tokens. */
  readonly draft?: Draft | undefined;
  /**
   * How many tokens may be computed one from the other, without asking the task in between what it
   * makes of them; and which of them end it. @default 1
   */
  readonly stride?: Stride | undefined;
  /** Whether nothing more is to be computed, whatever the reason. */
  readonly isEnded: boolean;
  /** Whether nothing is to be computed for now. */
  readonly isPaused: boolean;
  /** To be called when one of these changes outside of the scheduler's own calls. */
  onChange: () => void;
  /** Its turn has come. @param cached how many of the tokens were found computed */
  begin(cached: number): void;
  /** What to ask about the tokens from `start` to `end`, and about the draft that follows them. */
  outputs(start: number, end: number): readonly OutputRequest[];
  /** Takes what was computed. Whatever it throws ends this task alone. */
  accept(progress: Progress): void;
  /** Ends the task with an error. */
  fail(error: unknown): void;
}

/** One task on its way through the scheduler: its pages, and how far they are filled. */
export class Sequence {
  readonly task: Task;
  readonly table: PageTable;
  /** Requests are served in this order; of those that hold pages, the last one gives way first. */
  readonly arrival: number;
  /** How many of the tokens have their keys and values in the pages. */
  computed = 0;
  /** Who is computing tokens that this sequence needs too, and how far it has to come. */
  leader: Sequence | undefined = undefined;
  awaited = 0;
  /** Where on the way a copy of the recurrent state is kept, for others to go on from. */
  snapshotAt: number | undefined = undefined;
  /** Whether a run was stopped that may have changed the recurrent state. */
  isSpoiled = false;
  #published = new PublishedPrefix();

  constructor(task: Task, table: PageTable, arrival: number) {
    this.task = task;
    this.table = table;
    this.arrival = arrival;
  }

  get length(): number {
    return this.task.tokens.length;
  }

  /** The guesses that are computed behind the tokens. */
  get drafted(): readonly number[] {
    return this.task.draft?.tokens ?? [];
  }

  /** How many tokens are to be computed. */
  get pending(): number {
    return this.length - this.computed;
  }

  /** Whether there is something to compute now. */
  get isReady(): boolean {
    return !this.task.isEnded && !this.task.isPaused && this.pending > 0;
  }

  /** Takes pages for all tokens, those that the cache knows as they are; false when too few are free. */
  enter(cache: PrefixCache, freePages: number): boolean {
    const { tokens, mayReuse } = this.task;
    const match = cache.match(tokens, mayReuse ? this.length - 1 : 0);
    if (cache.pagesNeeded(match, this.length) > freePages) return false;
    this.computed = cache.attach(match, this.table, this.#published);
    if (!this.table.reserve(this.length)) {
      this.leave();
      return false;
    }
    this.leader = undefined;
    this.snapshotAt = cache.hasStates && mayReuse ? this.#lastPage(cache.pageTokens) : undefined;
    this.task.begin(this.computed);
    return true;
  }

  /** Makes the pages known; with the one that is not full yet, where others may go on from there. */
  publish(cache: PrefixCache, withTail: boolean): void {
    if (!this.task.mayReuse) return;
    cache.publish(this.table, this.#published, this.task.tokens, this.computed, withTail);
  }

  /** Where the last whole page ends that leaves a token to be computed, if that is still to come. */
  #lastPage(pageTokens: number): number | undefined {
    const end = Math.floor((this.length - 1) / pageTokens) * pageTokens;
    return end > this.computed ? end : undefined;
  }

  /** Makes the recurrent state known, where there is one, beside the pages that were made known. */
  publishState(cache: PrefixCache, goesOn: boolean): void {
    if (!this.task.mayReuse || this.isSpoiled) return;
    cache.publishState(this.table, this.#published, this.task.tokens, this.computed, goesOn);
  }

  /** Makes all of it known for the last time, and frees it. The sequence can start over. */
  retire(cache: PrefixCache): void {
    this.publish(cache, true);
    this.publishState(cache, false);
    this.leave();
  }

  /** Frees the pages. The sequence can start over. */
  leave(): void {
    this.table.release();
    this.#published = new PublishedPrefix();
    this.computed = 0;
    this.isSpoiled = false;
  }
}

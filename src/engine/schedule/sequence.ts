import type { OutputRequest, StepResult } from "../../backend.ts";
import type { PageTable } from "../cache/kv_pages.ts";
import { type PrefixCache, PublishedPrefix } from "../cache/prefix_cache.ts";
import type { Draft } from "../speculation/draft.ts";
import type { TokenList } from "../token_list.ts";

/** Result of one computed chunk of a task. */
export interface Progress {
  /** Number of the task's tokens computed so far, without those computed ahead. */
  readonly computed: number;
  /** Results of the chunk's outputs. */
  readonly results: readonly StepResult[];
  /** Hidden states of the chunk's outputs, for a task that asks for hidden states. */
  readonly hidden?: readonly Float32Array[] | undefined;
  /**
   * Tokens computed ahead after those: draft tokens, or the choices of earlier steps of the same
   * run. Each result but the first follows one more of them.
   */
  readonly ahead: ArrayLike<number>;
  /** Pages that hold the tokens. */
  readonly pages: readonly number[];
  /** Duration of the whole step. */
  readonly milliseconds: number;
  /** Returns the logits of one result, `[vocabSize]`. */
  readLogits(result: number): Float32Array;
  /** Returns the recurrent state after the tokens, for each of the model's state caches. */
  readState(): Uint8Array[];
}

/** Number of tokens that may be computed without asking the task in between. */
export interface Stride {
  /** Most tokens, at least 1. */
  readonly length: number;
  /** Tokens that end the sequence. */
  readonly endTokens: Iterable<number>;
}

/** Work for the scheduler: tokens to compute in order, and outputs to compute of them. */
export interface Task {
  /** Tokens to compute. The task appends tokens as results arrive. */
  readonly tokens: TokenList;
  /** True if every token has an output, not only the last one. */
  readonly scoresAll: boolean;
  /** True if cached keys and values may be reused, for all tokens but the last. */
  readonly mayReuse: boolean;
  /**
   * True if outputs are hidden states instead of sampled tokens. Such tasks have steps of their
   * own.
   */
  readonly embeds?: boolean;
  /** Draft of the tokens that follow, if the task supports speculative decoding. */
  readonly draft?: Draft | undefined;
  /** Number of tokens that may be computed in one run, and the tokens that end it. @default 1 */
  readonly stride?: Stride | undefined;
  /** True if nothing more has to be computed, for any reason. */
  readonly isEnded: boolean;
  /** True if nothing has to be computed for now. */
  readonly isPaused: boolean;
  /** Called by the task when `isEnded` or `isPaused` changes outside of the scheduler's calls. */
  onChange: () => void;
  /**
   * Called when the task joins.
   *
   * @param cached number of tokens found in the cache
   */
  begin(cached: number): void;
  /**
   * Returns the outputs to compute of the tokens from `start` to `end` and of the draft that
   * follows.
   */
  outputs(start: number, end: number): readonly OutputRequest[];
  /** Receives results. An exception fails this task alone. */
  accept(progress: Progress): void;
  /** Fails the task with an error. */
  fail(error: unknown): void;
}

/** Task in the scheduler, with its pages and the number of tokens computed. */
export class Sequence {
  readonly task: Task;
  readonly table: PageTable;
  /** Order of arrival. Earlier sequences are admitted first; later ones are preempted first. */
  readonly arrival: number;
  /** Number of tokens whose keys and values are in the pages. */
  computed = 0;
  /** Sequence that is computing a prefix this one shares, and the number of tokens to wait for. */
  leader: Sequence | undefined = undefined;
  awaited = 0;
  /**
   * Number of tokens after which a snapshot of the recurrent state is kept for other sequences.
   */
  snapshotAt: number | undefined = undefined;
  /** True if a stopped run may have changed the recurrent state. */
  stateInvalid = false;
  #published = new PublishedPrefix();

  constructor(task: Task, table: PageTable, arrival: number) {
    this.task = task;
    this.table = table;
    this.arrival = arrival;
  }

  get length(): number {
    return this.task.tokens.length;
  }

  /** Draft tokens, computed after the task's tokens. */
  get drafted(): readonly number[] {
    return this.task.draft?.tokens ?? [];
  }

  /** Number of tokens still to compute. */
  get pending(): number {
    return this.length - this.computed;
  }

  /** True if tokens can be computed now. */
  get isReady(): boolean {
    return !this.task.isEnded && !this.task.isPaused && this.pending > 0;
  }

  /**
   * Reserves pages for all tokens, sharing cached ones. Returns false if too few pages are free.
   */
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

  /**
   * Publishes the pages to the prefix cache, with `withTail` also the page that is not full yet.
   */
  publish(cache: PrefixCache, withTail: boolean): void {
    if (!this.task.mayReuse) return;
    cache.publish(this.table, this.#published, this.task.tokens, this.computed, withTail);
  }

  /**
   * Returns the end of the last whole page that leaves a token to compute, if it is not computed
   * yet.
   */
  #lastPage(pageTokens: number): number | undefined {
    const end = Math.floor((this.length - 1) / pageTokens) * pageTokens;
    return end > this.computed ? end : undefined;
  }

  /**
   * Publishes the recurrent state, if any, after the pages. `goesOn` keeps a copy, as the sequence
   * continues.
   */
  publishState(cache: PrefixCache, goesOn: boolean): void {
    if (!this.task.mayReuse || this.stateInvalid) return;
    cache.publishState(this.table, this.#published, this.task.tokens, this.computed, goesOn);
  }

  /** Publishes all of it for the last time and frees it. The sequence can be admitted again. */
  retire(cache: PrefixCache): void {
    this.publish(cache, true);
    this.publishState(cache, false);
    this.leave();
  }

  /** Frees the pages. The sequence can be admitted again. */
  leave(): void {
    this.table.release();
    this.#published = new PublishedPrefix();
    this.computed = 0;
    this.stateInvalid = false;
  }
}

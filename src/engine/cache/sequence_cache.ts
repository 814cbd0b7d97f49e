import { commonLength, type TokenList } from "../token_list.ts";
import type { PageTable } from "./kv_pages.ts";
import { type PrefixCache, PublishedPrefix } from "./prefix_cache.ts";

/** Part of a task that decides what is cached of it. */
interface CachedTask {
  readonly tokens: TokenList;
  /** True if cached keys and values may be reused, for all tokens but the last. */
  readonly mayReuse: boolean;
}

/**
 * Keys, values and recurrent state of one sequence. A sequence begins with the longest cached
 * prefix of its tokens, and publishes what it computes for other sequences.
 */
export class SequenceCache {
  readonly table: PageTable;
  readonly #task: CachedTask;
  readonly #cache: PrefixCache;
  #published = new PublishedPrefix();
  #computed = 0;
  #stored = 0;
  /** Number of tokens after which a snapshot of the recurrent state is kept. */
  #snapshotAt: number | undefined;
  #stateInvalid = false;

  /** @param table empty page table */
  constructor(task: CachedTask, table: PageTable, cache: PrefixCache) {
    this.table = table;
    this.#task = task;
    this.#cache = cache;
  }

  /**
   * Number of tokens that are computed: their keys and values, and the recurrent state after them.
   */
  get computed(): number {
    return this.#computed;
  }

  /**
   * Number of tokens whose keys and values are in the pages: more than are computed once the
   * sequence has returned to an earlier recurrent state.
   */
  get stored(): number {
    return this.#stored;
  }

  /** Most tokens of the next chunk: a recurrent state is copied between two steps. */
  get maxChunk(): number {
    const toSnapshot = (this.#snapshotAt ?? 0) - this.#computed;
    return toSnapshot > 0 ? toSnapshot : Infinity;
  }

  /**
   * Reserves pages for all tokens, sharing cached ones. Returns false if more than `freePages` are
   * needed.
   */
  enter(freePages: number): boolean {
    const { tokens, mayReuse } = this.#task;
    const match = this.#cache.match(tokens, mayReuse ? tokens.length - 1 : 0);
    if (this.#cache.pagesNeeded(match, tokens.length) > freePages) return false;
    this.#computed = this.#cache.attach(match, this.table, this.#published);
    this.#stored = this.#computed;
    if (!this.table.reserve(tokens.length)) {
      this.#release();
      return false;
    }
    this.#snapshotAt = this.#cache.hasStates && mayReuse ? this.#endOfLastPage() : undefined;
    return true;
  }

  /**
   * Records a computed chunk and publishes its pages. If tokens ahead were rejected, a saved
   * recurrent state replaces the one that includes them, and the chunk is computed again with the
   * next tokens.
   *
   * @param end number of the task's tokens computed
   * @param ahead tokens computed after those; they count while the task has continued with them
   * @param withTail true to publish the page that is not full yet, too
   */
  advance(end: number, ahead: ArrayLike<number>, withTail: boolean): void {
    const accepted = commonLength(ahead, this.#task.tokens.view(end));
    this.#stored = end + accepted;
    const isRestored = accepted < ahead.length && this.table.restoreState();
    this.table.dropSavedState();
    if (!isRestored) {
      this.#computed = end + accepted;
      if (accepted < ahead.length) this.#stateInvalid = true;
    }
    this.#publish(withTail);
    if (end === this.#snapshotAt) this.#publishState(true);
  }

  /** Returns to the saved recurrent state after a failed step, or marks the state as unknown. */
  invalidateState(): void {
    if (!this.table.restoreState()) this.#stateInvalid = true;
  }

  /**
   * Returns the number of tokens to compute until the first `shared` tokens are published;
   * `undefined` if they will not be.
   */
  publishedAt(shared: number): number | undefined {
    const { pageTokens, hasStates } = this.#cache;
    if (!hasStates) {
      return Math.min(this.#task.tokens.length, Math.ceil(shared / pageTokens) * pageTokens);
    }
    const snapshotAt = this.#snapshotAt ?? 0;
    return snapshotAt > this.#computed && snapshotAt <= shared ? snapshotAt : undefined;
  }

  /** Publishes everything and frees the pages. The sequence can enter again. */
  retire(): void {
    this.#publish(true);
    this.#publishState(false);
    this.#release();
  }

  #publish(withTail: boolean): void {
    const { tokens, mayReuse } = this.#task;
    if (!mayReuse) return;
    this.#cache.publish(this.table, this.#published, tokens, this.#computed, withTail);
  }

  /** Publishes the recurrent state, if any, after the pages: a copy if the sequence goes on. */
  #publishState(goesOn: boolean): void {
    const { tokens, mayReuse } = this.#task;
    if (!mayReuse || this.#stateInvalid) return;
    this.#cache.publishState(this.table, this.#published, tokens, this.#computed, goesOn);
  }

  /** Returns the end of the last whole page that leaves a token to compute, if not computed yet. */
  #endOfLastPage(): number | undefined {
    const { pageTokens } = this.#cache;
    const end = Math.floor((this.#task.tokens.length - 1) / pageTokens) * pageTokens;
    return end > this.#computed ? end : undefined;
  }

  #release(): void {
    this.table.release();
    this.#published = new PublishedPrefix();
    this.#computed = 0;
    this.#stateInvalid = false;
  }
}

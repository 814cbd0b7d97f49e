import type { PrefixCache } from "../cache/prefix_cache.ts";
import type { Sequence } from "./sequence.ts";
import { commonLength } from "../token_list.ts";

/** Number of shared tokens from which waiting for another sequence to compute them pays. */
const SHARED_TOKENS = 32;

/** Queue of sequences without pages, new or preempted, in order of arrival. */
export class WaitingLine {
  readonly #cache: PrefixCache;
  readonly #reach: number;
  readonly #line: Sequence[] = [];

  /**
   * @param reach most sequences passed over because they wait for a shared prefix; each costs a
   * comparison of tokens
   */
  constructor(cache: PrefixCache, reach: number) {
    this.#cache = cache;
    this.#reach = reach;
  }

  /** Inserts a sequence by its arrival, also after a preemption. */
  add(sequence: Sequence): void {
    let at = this.#line.length;
    while (at > 0 && this.#line[at - 1]!.arrival > sequence.arrival) at--;
    this.#line.splice(at, 0, sequence);
  }

  get length(): number {
    return this.#line.length;
  }

  [Symbol.iterator](): Iterator<Sequence> {
    return this.#line.values();
  }

  remove(sequence: Sequence): void {
    this.#line.splice(this.#line.indexOf(sequence), 1);
  }

  /** Removes and returns all sequences. */
  takeAll(): Sequence[] {
    return this.#line.splice(0);
  }

  /**
   * Returns the first sequence that can start. A sequence that shares a prefix with one that is
   * computing it waits for those pages. Any number of sequences paused by slow readers is passed
   * over.
   */
  next(active: readonly Sequence[]): Sequence | undefined {
    let following = 0;
    for (let i = 0; i < this.#line.length && following < this.#reach;) {
      const sequence = this.#line[i]!;
      if (sequence.task.isEnded) {
        this.#line.splice(i, 1);
        continue;
      }
      i++;
      if (!sequence.isReady) continue;
      if (!this.#isFollowing(sequence, active)) return sequence;
      following++;
    }
    return undefined;
  }

  #isFollowing(sequence: Sequence, active: readonly Sequence[]): boolean {
    if (!sequence.task.mayReuse) return false;
    const { leader } = sequence;
    if (leader === undefined || leader.task.isEnded || !active.includes(leader)) {
      this.#chooseLeader(sequence, active);
    }
    return sequence.leader !== undefined && sequence.leader.computed < sequence.awaited;
  }

  #chooseLeader(sequence: Sequence, active: readonly Sequence[]): void {
    sequence.leader = undefined;
    const { length } = sequence;
    let known: number | undefined;
    const { adapters } = sequence.task.tokens;
    for (const other of active) {
      if (other.pending < SHARED_TOKENS || !other.task.mayReuse) continue;
      if (other.task.tokens.adapters?.key !== adapters?.key) continue;
      const shared = Math.min(
        length - 1,
        commonLength(sequence.task.tokens.view(0), other.task.tokens.view(0)),
      );
      if (shared - other.computed < SHARED_TOKENS) continue;
      known ??= this.#cache.match(sequence.task.tokens, length - 1).length;
      if (shared - known < SHARED_TOKENS) continue;
      const awaited = other.cache.publishedAt(shared);
      if (awaited === undefined) continue;
      sequence.leader = other;
      sequence.awaited = awaited;
      return;
    }
  }
}

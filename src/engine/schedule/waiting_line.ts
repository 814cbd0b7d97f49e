import type { PrefixCache } from "../cache/prefix_cache.ts";
import type { Sequence } from "./sequence.ts";
import { commonLength } from "../token_list.ts";

/** To share this many tokens that another sequence is computing is worth waiting for it. */
const SHARED_TOKENS = 32;

/** Sequences that have no pages yet, or had to give them up, in the order they came. */
export class WaitingLine {
  readonly #cache: PrefixCache;
  readonly #reach: number;
  readonly #line: Sequence[] = [];

  /** @param reach how many that follow another sequence are passed over, each after a comparison of tokens */
  constructor(cache: PrefixCache, reach: number) {
    this.#cache = cache;
    this.#reach = reach;
  }

  /** Who came earlier stands before who came later, even after having had pages. */
  add(sequence: Sequence): void {
    let at = this.#line.length;
    while (at > 0 && this.#line[at - 1]!.arrival > sequence.arrival) at--;
    this.#line.splice(at, 0, sequence);
  }

  remove(sequence: Sequence): void {
    this.#line.splice(this.#line.indexOf(sequence), 1);
  }

  /** All of them; the line is empty afterwards. */
  takeAll(): Sequence[] {
    return this.#line.splice(0);
  }

  /**
   * The first sequence that can begin. One that shares tokens with a sequence that is computing them
   * waits until it can have their pages. Sequences paused by slow readers are passed over, however many.
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
    for (const other of active) {
      if (other.pending < SHARED_TOKENS || !other.task.mayReuse) continue;
      const shared = Math.min(
        length - 1,
        commonLength(sequence.task.tokens.view(0), other.task.tokens.view(0)),
      );
      if (shared - other.computed < SHARED_TOKENS) continue;
      known ??= this.#cache.match(sequence.task.tokens, length - 1).length;
      if (shared - known < SHARED_TOKENS) continue;
      const awaited = this.#knownFrom(other, shared);
      if (awaited === undefined) continue;
      sequence.leader = other;
      sequence.awaited = awaited;
      return;
    }
  }

  /** How far a sequence has to come until what it shares can be had. */
  #knownFrom({ length, computed, snapshotAt }: Sequence, shared: number): number | undefined {
    if (this.#cache.hasStates) {
      const isOnTheWay = snapshotAt !== undefined && snapshotAt > computed && snapshotAt <= shared;
      return isOnTheWay ? snapshotAt : undefined;
    }
    // Up to the end of the page that the shared tokens end in: it is known once it is full.
    const { pageTokens } = this.#cache;
    return Math.min(length, Math.ceil(shared / pageTokens) * pageTokens);
  }
}

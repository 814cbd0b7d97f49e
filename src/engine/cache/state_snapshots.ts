import type { PageTable } from "./kv_pages.ts";
import type { Pool } from "./pool.ts";

/**
 * Slots by the number of tokens of one page, after all pages before it, that their state has seen.
 */
export type PageStates = Map<number, number>;

/** Snapshot: a slot, and the number of tokens of its page that the state has seen. */
export interface KnownState {
  readonly slot: number;
  readonly count: number;
}

/**
 * Snapshots of recurrent state that belong to pages of the prefix cache. Unlike pages, a state
 * cannot be cut: it serves sequences that begin with exactly the tokens it has seen.
 */
export class StateSnapshots {
  readonly #pool: Pool;
  readonly #copySlot: (from: number, to: number) => void;

  /** @param copySlot copies a slot onto another, in every layer */
  constructor(pool: Pool, copySlot: (from: number, to: number) => void) {
    this.#pool = pool;
    this.#copySlot = copySlot;
  }

  /** Returns the state of a page that has seen the most tokens, at most `most`. */
  longest(states: PageStates, most: number): KnownState | undefined {
    let best: KnownState | undefined;
    for (const [count, slot] of states) {
      if (count <= most && count > (best?.count ?? 0)) best = { count, slot };
    }
    return best;
  }

  /** Keeps the state of a table about to be released, after `count` tokens of a page. */
  keep(states: PageStates, count: number, table: PageTable): void {
    const { slot } = table;
    if (slot === undefined || states.has(count)) return;
    this.#pool.keep(slot, () => states.delete(count));
    states.set(count, slot);
  }

  /** Keeps a copy of the state of a table in use, if a slot is free. */
  keepCopy(states: PageStates, count: number, table: PageTable): void {
    if (table.slot === undefined || states.has(count)) return;
    const copy = this.#pool.allocate();
    if (copy === undefined) return;
    this.#copySlot(table.slot, copy);
    this.#pool.keep(copy, () => states.delete(count));
    states.set(count, copy);
    this.#pool.release(copy);
  }

  /** Gives an empty table a copy of a snapshot, or the snapshot itself if no slot is free. */
  attach({ slot }: KnownState, states: PageStates, table: PageTable): void {
    this.#pool.share(slot);
    const own = this.#pool.allocate();
    if (own === undefined) {
      this.#pool.unkeep(slot);
      for (const [count, kept] of states) if (kept === slot) states.delete(count);
      table.takeSlot(slot);
      return;
    }
    this.#copySlot(slot, own);
    this.#pool.release(slot);
    table.takeSlot(own);
  }

  /** Drops the snapshots of a page that leaves the cache. */
  forget(states: PageStates): void {
    for (const slot of states.values()) this.#pool.unkeep(slot);
    states.clear();
  }
}

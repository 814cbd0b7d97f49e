import type { PageTable } from "./kv_pages.ts";
import type { Pool } from "./pool.ts";

/** Slots that hold the state after so many tokens of one page, and of all that come before it. */
export type PageStates = Map<number, number>;

/** A known state: a slot, and how many tokens of its page it has seen. */
export interface KnownState {
  readonly slot: number;
  readonly count: number;
}

/**
 * The recurrent states that are known beside pages. A state cannot be cut as pages can: it serves sequences
 * that begin with exactly the tokens it has seen.
 */
export class StateSnapshots {
  readonly #pool: Pool;
  readonly #copySlot: (from: number, to: number) => void;

  /** @param copySlot copies what a slot holds onto another, in every layer */
  constructor(pool: Pool, copySlot: (from: number, to: number) => void) {
    this.#pool = pool;
    this.#copySlot = copySlot;
  }

  /** The state of a page that has seen the most tokens, but no more than `most`. */
  longest(states: PageStates, most: number): KnownState | undefined {
    let best: KnownState | undefined;
    for (const [count, slot] of states) {
      if (count <= most && count > (best?.count ?? 0)) best = { count, slot };
    }
    return best;
  }

  /** Keeps the state of a table that will be released, as it is after `count` tokens of a page. */
  keep(states: PageStates, count: number, table: PageTable): void {
    const { slot } = table;
    if (slot === undefined || states.has(count)) return;
    this.#pool.keep(slot, () => states.delete(count));
    states.set(count, slot);
  }

  /** Keeps a copy of the state of a table that goes on, when a slot is free for it. */
  keepCopy(states: PageStates, count: number, table: PageTable): void {
    if (table.slot === undefined || states.has(count)) return;
    const copy = this.#pool.allocate();
    if (copy === undefined) return;
    this.#copySlot(table.slot, copy);
    this.#pool.keep(copy, () => states.delete(count));
    states.set(count, copy);
    this.#pool.release(copy);
  }

  /** Gives an empty table a copy of a known state. Where no other slot is free, the state itself. */
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

  /** Forgets the states of a page that is no longer known. */
  forget(states: PageStates): void {
    for (const slot of states.values()) this.#pool.unkeep(slot);
    states.clear();
  }
}

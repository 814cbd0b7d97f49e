import { Pool } from "./pool.ts";

/** Accounts for the pages of a KV cache. */
export class KvPages extends Pool {
  readonly pageTokens: number;

  constructor(nPages: number, pageTokens: number) {
    super(nPages, "KV page");
    this.pageTokens = pageTokens;
  }

  get nPages(): number {
    return this.size;
  }

  /** Pages without users, idle ones among them. */
  get freePages(): number {
    return this.free;
  }

  /** How many pages `length` positions take. */
  pagesFor(length: number): number {
    return Math.ceil(length / this.pageTokens);
  }
}

/**
 * What one sequence uses: pages, in the order of its positions, and, in a model with recurrent state, a slot.
 * Dispose of it to free them.
 */
export class PageTable implements Disposable {
  readonly #pool: KvPages;
  readonly #slots: Pool | undefined;
  readonly #pages: number[] = [];
  #slot: number | undefined;

  /** @param slots of the recurrent state, where the model has any */
  constructor(pool: KvPages, slots?: Pool) {
    this.#pool = pool;
    this.#slots = slots;
  }

  get pages(): readonly number[] {
    return this.#pages;
  }

  /** How many positions the pages have room for. */
  get capacity(): number {
    return this.#pages.length * this.#pool.pageTokens;
  }

  /** Where the recurrent state is; `undefined` before the first {@linkcode reserve}, or without any. */
  get slot(): number | undefined {
    return this.#slot;
  }

  /** Makes room for positions below `length`, and for state. When too little is free, takes none: false. */
  reserve(length: number): boolean {
    const missing = this.#pool.pagesFor(length) - this.#pages.length;
    if (missing > this.#pool.freePages) return false;
    if (this.#slots !== undefined && this.#slot === undefined) {
      const slot = this.#slots.allocate();
      if (slot === undefined) return false;
      this.#slot = slot;
    }
    for (let i = 0; i < missing; i++) this.#pages.push(this.#pool.allocate()!);
    return true;
  }

  /** Adds a page whose user the table becomes. */
  append(page: number): void {
    this.#pages.push(page);
  }

  /** Takes a slot whose user the table becomes. */
  takeSlot(slot: number): void {
    this.#slot = slot;
  }

  /** Uses another page, which holds the same, in place of one. */
  replace(index: number, page: number): void {
    this.#pool.share(page);
    this.#pool.release(this.#pages[index]!);
    this.#pages[index] = page;
  }

  /** Frees every page, the last one first: what other pages build upon is idle for a shorter time. */
  release(): void {
    for (const page of this.#pages.splice(0).reverse()) this.#pool.release(page);
    if (this.#slot !== undefined) this.#slots?.release(this.#slot);
    this.#slot = undefined;
  }

  [Symbol.dispose](): void {
    this.release();
  }
}

import { Pool } from "./pool.ts";

/** Counts the users of the pages of a KV cache. */
export class KvPages extends Pool {
  readonly pageTokens: number;

  constructor(nPages: number, pageTokens: number) {
    super(nPages, "KV page");
    this.pageTokens = pageTokens;
  }

  get nPages(): number {
    return this.size;
  }

  /** Number of pages without users, idle ones included. */
  get freePages(): number {
    return this.free;
  }

  /** Returns the number of pages that `length` positions take. */
  pagesFor(length: number): number {
    return Math.ceil(length / this.pageTokens);
  }
}

/**
 * Page table of one sequence: its pages in order of position, and, in a model with recurrent state,
 * its slot. Disposal frees them.
 */
export class PageTable implements Disposable {
  readonly #pool: KvPages;
  readonly #slots: Pool | undefined;
  readonly #pages: number[] = [];
  #slot: number | undefined;
  /** Slot with the state that {@linkcode restoreState} returns to. */
  #saved: number | undefined;
  /** Number of pages at the start that another table holds. */
  #borrowed = 0;

  /** @param slots slots of recurrent state, if the model has any */
  constructor(pool: KvPages, slots?: Pool) {
    this.#pool = pool;
    this.#slots = slots;
  }

  get pages(): readonly number[] {
    return this.#pages;
  }

  /** Number of positions that the pages hold. */
  get capacity(): number {
    return this.#pages.length * this.#pool.pageTokens;
  }

  /**
   * Slot of the recurrent state; `undefined` before the first {@linkcode reserve}, or in a model
   * without any.
   */
  get slot(): number | undefined {
    return this.#slot;
  }

  /**
   * Reserves pages for positions below `length`, and a slot. Returns false, and takes nothing, if
   * too little is free.
   */
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

  /**
   * Copies the recurrent state, if the model has any, so that {@linkcode restoreState} can return
   * to it. Returns false if no slot is free for the copy.
   *
   * @param copySlot copies a slot onto another, in every layer
   */
  saveState(copySlot: (from: number, to: number) => void): boolean {
    if (this.#slots === undefined || this.#slot === undefined) return true;
    this.#saved ??= this.#slots.allocate();
    if (this.#saved === undefined) return false;
    copySlot(this.#slot, this.#saved);
    return true;
  }

  /** Returns to the saved state. Returns false if none was saved. */
  restoreState(): boolean {
    if (this.#saved === undefined) return false;
    [this.#slot, this.#saved] = [this.#saved, this.#slot];
    this.dropSavedState();
    return true;
  }

  /** Frees the slot of the saved state, if any. */
  dropSavedState(): void {
    if (this.#saved !== undefined) this.#slots?.release(this.#saved);
    this.#saved = undefined;
  }

  /**
   * Returns the table of a branch that begins at position `at`: the pages before, which this table
   * goes on holding, and a copy of the page at that position, if this table has it. `undefined` if
   * no page is free.
   *
   * @param copyPage copies a page onto another, in every layer
   */
  branch(at: number, copyPage: (from: number, to: number) => void): PageTable | undefined {
    const branch = new PageTable(this.#pool);
    const index = Math.floor(at / this.#pool.pageTokens);
    branch.#borrowed = branch.#pages.push(...this.#pages.slice(0, index));
    if (!branch.reserve(at + 1)) return undefined;
    const page = this.#pages[index];
    if (page !== undefined && at % this.#pool.pageTokens > 0) copyPage(page, branch.#pages[index]!);
    return branch;
  }

  /** Copies the pages of a branch for positions below `length`, where they differ. */
  takeBranch(
    branch: PageTable,
    length: number,
    copyPage: (from: number, to: number) => void,
  ): void {
    for (const [i, page] of branch.#pages.slice(0, this.#pool.pagesFor(length)).entries()) {
      if (page !== this.#pages[i]) copyPage(page, this.#pages[i]!);
    }
  }

  /** Appends a page; the table takes over its user. */
  append(page: number): void {
    this.#pages.push(page);
  }

  /** Takes over a slot with its user. */
  takeSlot(slot: number): void {
    this.#slot = slot;
  }

  /** Replaces a page by another one of the same content. */
  replace(index: number, page: number): void {
    this.#pool.share(page);
    this.#pool.release(this.#pages[index]!);
    this.#pages[index] = page;
  }

  /**
   * Frees every page, the last one first, so that a page is never reused before those that follow
   * it.
   */
  release(): void {
    const own = this.#pages.splice(0).slice(this.#borrowed);
    for (const page of own.reverse()) this.#pool.release(page);
    if (this.#slot !== undefined) this.#slots?.release(this.#slot);
    this.#slot = undefined;
    this.dropSavedState();
  }

  [Symbol.dispose](): void {
    this.release();
  }
}

/**
 * Accounts for the pages of a KV cache: which are free, and how many users each of the others has. It
 * touches no device; page numbers are the same in every layer.
 *
 * A page may be kept for what it holds. Without users it is then idle: free for the taking like any
 * other, but taken last, those that have been idle longest first.
 */
export class KvPages {
  readonly pageTokens: number;
  readonly nPages: number;
  readonly #empty: number[];
  readonly #users: Uint32Array;
  /** Pages that are kept, and whom to tell when one is taken. */
  readonly #kept = new Map<number, () => void>();
  /** Kept pages without users; a set gives its members in the order they were added. */
  readonly #idle = new Set<number>();

  constructor(nPages: number, pageTokens: number) {
    this.nPages = nPages;
    this.pageTokens = pageTokens;
    // The lowest page is handed out first, so that memory is touched only as far as it is used.
    this.#empty = Array.from({ length: nPages }, (_, i) => nPages - 1 - i);
    this.#users = new Uint32Array(nPages);
  }

  /** Pages without users, idle ones among them. */
  get freePages(): number {
    return this.#empty.length + this.#idle.size;
  }

  /** How many pages `length` positions take. */
  pagesFor(length: number): number {
    return Math.ceil(length / this.pageTokens);
  }

  /** A page with one user, or `undefined` when none is free. */
  allocate(): number | undefined {
    const page = this.#empty.pop() ?? this.#takeIdle();
    if (page !== undefined) this.#users[page] = 1;
    return page;
  }

  #takeIdle(): number | undefined {
    const [page] = this.#idle;
    if (page === undefined) return undefined;
    this.#idle.delete(page);
    const forget = this.#kept.get(page)!;
    this.#kept.delete(page);
    forget();
    return page;
  }

  /** Adds a user to a page that is in use or idle. */
  share(page: number): void {
    if (!this.#idle.delete(page)) this.#checkInUse(page);
    this.#users[page]!++;
  }

  /** Whether more than one user has the page, so that it must not be written. */
  isShared(page: number): boolean {
    this.#checkInUse(page);
    return this.#users[page]! > 1;
  }

  isIdle(page: number): boolean {
    return this.#idle.has(page);
  }

  /** Takes a user from a page; without users it is free. */
  release(page: number): void {
    this.#checkInUse(page);
    if (--this.#users[page]! > 0) return;
    if (this.#kept.has(page)) this.#idle.add(page);
    else this.#empty.push(page);
  }

  /** Keeps a page in use for what it holds; `forget` is called when it is taken for something else. */
  keep(page: number, forget: () => void): void {
    this.#checkInUse(page);
    this.#kept.set(page, forget);
  }

  /** Ends {@linkcode keep} for a page in use. */
  unkeep(page: number): void {
    this.#checkInUse(page);
    this.#kept.delete(page);
  }

  #checkInUse(page: number): void {
    if (!(this.#users[page]! > 0)) throw new RangeError(`KV page ${page} is not in use`);
  }
}

/** The pages one sequence uses, in the order of its positions. Dispose of it to free them. */
export class PageTable implements Disposable {
  readonly #pool: KvPages;
  readonly #pages: number[] = [];

  constructor(pool: KvPages) {
    this.#pool = pool;
  }

  get pages(): readonly number[] {
    return this.#pages;
  }

  /** How many positions the pages have room for. */
  get capacity(): number {
    return this.#pages.length * this.#pool.pageTokens;
  }

  /** Makes room for positions below `length`. When too few pages are free, takes none: false. */
  reserve(length: number): boolean {
    const missing = this.#pool.pagesFor(length) - this.#pages.length;
    if (missing > this.#pool.freePages) return false;
    for (let i = 0; i < missing; i++) this.#pages.push(this.#pool.allocate()!);
    return true;
  }

  /** Adds a page whose user the table becomes. */
  append(page: number): void {
    this.#pages.push(page);
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
  }

  [Symbol.dispose](): void {
    this.release();
  }
}

import { ForgeError } from "../errors.ts";

/**
 * Accounts for the pages of a KV cache: which are free, and how many users each of the others has.
 * It touches no device; page numbers are the same in every layer.
 */
export class KvPages {
  readonly pageTokens: number;
  readonly nPages: number;
  readonly #free: number[];
  readonly #users: Uint32Array;

  constructor(nPages: number, pageTokens: number) {
    this.nPages = nPages;
    this.pageTokens = pageTokens;
    // The lowest page is handed out first, so that memory is touched only as far as it is used.
    this.#free = Array.from({ length: nPages }, (_, i) => nPages - 1 - i);
    this.#users = new Uint32Array(nPages);
  }

  get freePages(): number {
    return this.#free.length;
  }

  /** A page with one user, or `undefined` when none is free. */
  allocate(): number | undefined {
    const page = this.#free.pop();
    if (page !== undefined) this.#users[page] = 1;
    return page;
  }

  /** Adds a user to a page in use. */
  share(page: number): void {
    this.#checkInUse(page);
    this.#users[page]!++;
  }

  /** Whether more than one user has the page, so that it must be copied before it is written. */
  isShared(page: number): boolean {
    this.#checkInUse(page);
    return this.#users[page]! > 1;
  }

  /** Takes a user from a page; without users it is free. */
  release(page: number): void {
    this.#checkInUse(page);
    if (--this.#users[page]! === 0) this.#free.push(page);
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

  /**
   * Makes room for positions below `length`.
   *
   * @throws {ForgeError} `bad_input` when the cache has too few pages left; none is taken then.
   */
  reserve(length: number): void {
    const missing = Math.ceil(length / this.#pool.pageTokens) - this.#pages.length;
    if (missing > this.#pool.freePages) {
      const total = this.#pool.nPages * this.#pool.pageTokens;
      throw new ForgeError(
        "bad_input",
        `the KV cache of ${total} tokens is full; open the model with a larger context`,
      );
    }
    for (let i = 0; i < missing; i++) this.#pages.push(this.#pool.allocate()!);
  }

  /** Frees every page. */
  release(): void {
    for (const page of this.#pages.splice(0)) this.#pool.release(page);
  }

  [Symbol.dispose](): void {
    this.release();
  }
}

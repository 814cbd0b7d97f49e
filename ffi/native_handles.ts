import { ForgeError } from "../src/errors.ts";
import type { Symbols } from "./abi.ts";
import type { Library } from "./library.ts";
import { checkStatus } from "./status.ts";
import { readText } from "./status.ts";

/**
 * The live handles of one device. Converts statuses to errors, and keeps the library open until the
 * last call in progress has returned.
 */
export class NativeHandles {
  readonly #library: Library;
  readonly #live = new Set<number>();
  #callsInProgress = 0;
  #closing = false;

  constructor(library: Library) {
    this.#library = library;
  }

  get symbols(): Symbols {
    if (this.#closing) throw new ForgeError("device", `the ${this.#library.kind} device is closed`);
    return this.#library.symbols;
  }

  /** Registers a new handle. */
  adopt(handle: number): number {
    this.#live.add(handle);
    return handle;
  }

  release(handle: number): void {
    if (this.#live.delete(handle)) this.#library.symbols.forge_release(handle);
  }

  /**
   * Makes a non-blocking call and checks its status like {@linkcode check}. The library stays open
   * until then.
   */
  async call(
    operation: string,
    handle: number,
    start: (symbols: Symbols) => Promise<number>,
  ): Promise<void> {
    const promise = start(this.symbols);
    this.#callsInProgress++;
    try {
      this.check(await promise, operation, handle);
    } finally {
      this.#callsInProgress--;
      if (this.#closing) this.#closeWhenIdle();
    }
  }

  /** Throws unless `status` is 0, with the error text that the library stores for `handle`. */
  check(status: number, operation: string, handle: number): void {
    checkStatus(status, operation, () =>
      readText((buffer, capacity) => {
        this.#library.symbols.forge_error_text(handle, buffer, capacity);
      }));
  }

  /** Releases all handles and closes the library once no call is in progress. */
  close(): void {
    if (this.#closing) return;
    this.#closing = true;
    this.#closeWhenIdle();
  }

  #closeWhenIdle(): void {
    if (this.#callsInProgress > 0) return;
    for (const handle of this.#live) this.#library.symbols.forge_release(handle);
    this.#live.clear();
    this.#library.close();
  }
}

/**
 * Accounts for numbered places on a device: which are free, and how many users each of the others has. It
 * touches no device; the numbers are the same in every layer.
 *
 * A place may be kept for what it holds. Without users it is then idle: free for the taking like any
 * other, but taken last, those that have been idle longest first.
 */
export class Pool {
  readonly size: number;
  readonly #what: string;
  readonly #empty: number[];
  readonly #users: Uint32Array;
  /** Places that are kept, and whom to tell when one is taken. */
  readonly #kept = new Map<number, () => void>();
  /** Kept places without users; a set gives its members in the order they were added. */
  readonly #idle = new Set<number>();

  /** @param what a place is called in messages */
  constructor(size: number, what: string) {
    this.size = size;
    this.#what = what;
    // The lowest place is handed out first, so that memory is touched only as far as it is used.
    this.#empty = Array.from({ length: size }, (_, i) => size - 1 - i);
    this.#users = new Uint32Array(size);
  }

  /** How many places have no users, idle ones among them. */
  get free(): number {
    return this.#empty.length + this.#idle.size;
  }

  /** A place with one user, or `undefined` when none is free. */
  allocate(): number | undefined {
    const place = this.#empty.pop() ?? this.#takeIdle();
    if (place !== undefined) this.#users[place] = 1;
    return place;
  }

  #takeIdle(): number | undefined {
    const [place] = this.#idle;
    if (place === undefined) return undefined;
    this.#idle.delete(place);
    const forget = this.#kept.get(place)!;
    this.#kept.delete(place);
    forget();
    return place;
  }

  /** Adds a user to a place that is in use or idle. */
  share(place: number): void {
    if (!this.#idle.delete(place)) this.#checkInUse(place);
    this.#users[place]!++;
  }

  /** Whether more than one user has the place, so that it must not be written. */
  isShared(place: number): boolean {
    this.#checkInUse(place);
    return this.#users[place]! > 1;
  }

  isIdle(place: number): boolean {
    return this.#idle.has(place);
  }

  /** Takes a user from a place; without users it is free. */
  release(place: number): void {
    this.#checkInUse(place);
    if (--this.#users[place]! > 0) return;
    if (this.#kept.has(place)) this.#idle.add(place);
    else this.#empty.push(place);
  }

  /** Keeps a place in use for what it holds; `forget` is called when it is taken for something else. */
  keep(place: number, forget: () => void): void {
    this.#checkInUse(place);
    this.#kept.set(place, forget);
  }

  /** Ends {@linkcode keep}, whose `forget` is not called. */
  unkeep(place: number): void {
    this.#kept.delete(place);
    if (this.#idle.delete(place)) this.#empty.push(place);
  }

  #checkInUse(place: number): void {
    if (!(this.#users[place]! > 0)) throw new RangeError(`${this.#what} ${place} is not in use`);
  }
}

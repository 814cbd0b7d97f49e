/**
 * Counts the users of numbered places on a device, such as KV pages. It touches no device; a number
 * means the same place in every layer.
 *
 * A place can be kept for its content. Without users it is then idle: it can be allocated like any
 * free place, but only after all empty ones, least recently used first.
 */
export class Pool {
  readonly size: number;
  /** Called when a place loses its last user. */
  onFree: () => void = () => {};
  readonly #what: string;
  readonly #empty: number[];
  readonly #users: Uint32Array;
  /** Kept places, with the callback for their reuse. */
  readonly #kept = new Map<number, () => void>();
  /**
   * Kept places without users. A set iterates in order of insertion, which is the order of reuse.
   */
  readonly #idle = new Set<number>();

  /** @param what name of a place in messages */
  constructor(size: number, what: string) {
    this.size = size;
    this.#what = what;
    // The lowest place is allocated first, so that memory which is never used is never touched.
    this.#empty = Array.from({ length: size }, (_, i) => size - 1 - i);
    this.#users = new Uint32Array(size);
  }

  /** Number of places without users, idle ones included. */
  get free(): number {
    return this.#empty.length + this.#idle.size;
  }

  /** Allocates a place with one user; returns `undefined` if none is free. */
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

  /** True if a place has several users, so that it must not be written. */
  isShared(place: number): boolean {
    this.#checkInUse(place);
    return this.#users[place]! > 1;
  }

  isIdle(place: number): boolean {
    return this.#idle.has(place);
  }

  /** Removes a user from a place; without users it is free. */
  release(place: number): void {
    this.#checkInUse(place);
    if (--this.#users[place]! > 0) return;
    if (this.#kept.has(place)) this.#idle.add(place);
    else this.#empty.push(place);
    this.onFree();
  }

  /** Keeps a place for its content; `forget` is called when the place is reused. */
  keep(place: number, forget: () => void): void {
    this.#checkInUse(place);
    this.#kept.set(place, forget);
  }

  /** Ends {@linkcode keep} without a call of its `forget`. */
  unkeep(place: number): void {
    this.#kept.delete(place);
    if (this.#idle.delete(place)) this.#empty.push(place);
  }

  #checkInUse(place: number): void {
    if (!(this.#users[place]! > 0)) throw new RangeError(`${this.#what} ${place} is not in use`);
  }
}

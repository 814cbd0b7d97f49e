/**
 * Finds stop strings in text that arrives in pieces. It holds back only the longest suffix that may
 * still become a stop string. The stop string that ends first counts, and the longest of several
 * that end together, so that the result does not depend on the pieces.
 */
export class StopMatcher {
  readonly #stops: readonly string[];
  #held = "";
  #stopped = false;

  /** @param stops strings that end the text; empty ones are ignored */
  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== "");
  }

  /** True if a stop string has ended the text. Text after it is dropped. */
  get stopped(): boolean {
    return this.#stopped;
  }

  /** Adds a piece and returns the text that is now certain. */
  push(piece: string): string {
    if (this.#stopped) return "";
    const text = this.#held + piece;
    const stop = this.#findStop(text);
    this.#stopped = stop !== undefined;
    const certain = stop ?? text.length - this.#heldLength(text);
    this.#held = this.#stopped ? "" : text.slice(certain);
    return text.slice(0, certain);
  }

  /** Returns the text held back, at the end of the text. */
  flush(): string {
    const text = this.#held;
    this.#held = "";
    return text;
  }

  /** Returns the start of the stop string that ends first. */
  #findStop(text: string): number | undefined {
    let found: { readonly start: number; readonly end: number } | undefined;
    for (const stop of this.#stops) {
      const start = text.indexOf(stop);
      if (start < 0) continue;
      const end = start + stop.length;
      if (found === undefined || end < found.end || (end === found.end && start < found.start)) {
        found = { start, end };
      }
    }
    return found?.start;
  }

  /** Returns the length of the longest suffix of `text` that is a prefix of a stop string. */
  #heldLength(text: string): number {
    const longest = Math.max(0, ...this.#stops.map((stop) => stop.length - 1));
    for (let length = Math.min(longest, text.length); length > 0; length--) {
      const suffix = text.slice(text.length - length);
      if (this.#stops.some((stop) => stop.startsWith(suffix))) return length;
    }
    return 0;
  }
}

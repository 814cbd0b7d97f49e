/** A run that is expected to take longer, in milliseconds, leaves the thread to others. */
const SHORT_MS = 5;

/** Prompts are worth two wakings, however short: these many tokens are decoded, one of each sequence. */
const MOST_TOKENS = 64;

/** The longest that runs keep the thread to themselves: timers, signals and files come to their turn. */
const HELD_MS = 12;

/**
 * Which runs of a step are called like any function, on the thread of the program. A call that leaves it
 * wakes two threads on its way there and back, which costs a small model as much as some of its layers.
 */
export class ShortRuns {
  #lastTokens = 0;
  #lastMs = Infinity;
  #heldMs = 0;

  /** Whether a run of so many tokens may hold the thread, as far as the last run tells. */
  mayHold(nTokens: number): boolean {
    return nTokens <= Math.min(this.#lastTokens, MOST_TOKENS) && this.#lastMs <= SHORT_MS &&
      this.#heldMs + this.#lastMs <= HELD_MS;
  }

  /** Takes note of a run, and whether it held the thread. */
  ended(nTokens: number, ms: number, held: boolean): void {
    this.#lastTokens = nTokens;
    this.#lastMs = ms;
    this.#heldMs = held ? this.#heldMs + ms : 0;
  }
}

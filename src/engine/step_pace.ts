/** How long one run of decoding steps may take: its reader sees tokens 50 times a second. */
const RUN_MS = 20;

/** The most steps of one run: beyond it, what a run costs besides is no longer seen. */
const MOST_STEPS = 64;

/**
 * How many steps that only decode go into one run. A run costs some hundred microseconds beside those
 * of the device: two threads wake up, and code that plans, decodes text and answers is no longer in any
 * cache once weights have passed through. Short steps share that; with long ones tokens come one by one.
 */
export class StepPace {
  readonly #most: number;
  /** Milliseconds of the last step, by the rows it computed. */
  readonly #costs = new Map<number, number>();

  /** @param most steps that a run has; with 1, every token is told as soon as it is known */
  constructor(most: number = MOST_STEPS) {
    this.#most = most;
  }

  /** How many steps of so many rows one run is to have. */
  steps(rows: number): number {
    const cost = this.#costs.get(rows);
    if (cost === undefined) return 1;
    return Math.max(1, Math.min(this.#most, Math.floor(RUN_MS / cost)));
  }

  /** Takes note of what a step has cost. */
  measure(rows: number, milliseconds: number): void {
    this.#costs.set(rows, milliseconds);
  }
}

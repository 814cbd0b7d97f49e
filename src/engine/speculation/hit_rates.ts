/** What is expected of matches of each length before anything was seen. */
const EXPECTED = [0.2, 0.3, 0.45, 0.55, 0.65, 0.75, 0.85] as const;

/** How many observations what was expected counts for. */
const PRIOR_WEIGHT = 4;

/** Older observations fade: as if there were never more than this. */
const MEMORY = 40;

/**
 * How often guesses come true, by the length of the match that they come from. Recent ones count most.
 */
export class HitRates {
  readonly #prior: HitRates | undefined;
  readonly #hits = new Float64Array(EXPECTED.length);
  readonly #tries = new Float64Array(EXPECTED.length);

  /** @param prior what is expected as long as little was seen, and learns along */
  constructor(prior?: HitRates) {
    this.#prior = prior;
  }

  /** The probability that a guess comes true. @param length tokens that match before it, 1 or more */
  rate(length: number): number {
    const level = levelOf(length);
    const expected = this.#prior?.rate(length) ?? EXPECTED[level]!;
    return (this.#hits[level]! + PRIOR_WEIGHT * expected) / (this.#tries[level]! + PRIOR_WEIGHT);
  }

  /** Takes note of what became of a guess. */
  note(length: number, isHit: boolean): void {
    const level = levelOf(length);
    const kept = this.#tries[level]! < MEMORY ? 1 : 1 - 1 / MEMORY;
    this.#tries[level] = this.#tries[level]! * kept + 1;
    this.#hits[level] = this.#hits[level]! * kept + (isHit ? 1 : 0);
    this.#prior?.note(length, isHit);
  }
}

/** 1, 2, 3 to 4, 5 to 8, and so on. */
function levelOf(length: number): number {
  return Math.min(EXPECTED.length - 1, Math.ceil(Math.log2(Math.max(1, length))));
}

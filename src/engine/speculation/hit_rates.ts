/** How many observations what was expected counts for. */
const PRIOR_WEIGHT = 4;

/** Older observations fade: as if there were never more than this. */
const MEMORY = 40;

/** How often guesses of one kind come true. Recent ones count most. */
export class HitRate {
  readonly #expected: number | HitRate;
  #hits = 0;
  #tries = 0;

  /** @param expected what is expected as long as little was seen; a rate learns along */
  constructor(expected: number | HitRate) {
    this.#expected = expected;
  }

  /** The probability that a guess comes true. */
  get value(): number {
    const expected = typeof this.#expected === "number" ? this.#expected : this.#expected.value;
    return (this.#hits + PRIOR_WEIGHT * expected) / (this.#tries + PRIOR_WEIGHT);
  }

  /** Takes note of what became of a guess. */
  note(isHit: boolean): void {
    const kept = this.#tries < MEMORY ? 1 : 1 - 1 / MEMORY;
    this.#tries = this.#tries * kept + 1;
    this.#hits = this.#hits * kept + (isHit ? 1 : 0);
    if (typeof this.#expected !== "number") this.#expected.note(isHit);
  }
}

/** What is expected of matches of 1, 2, 3 to 4, 5 to 8 tokens and so on before anything was seen. */
const EXPECTED = [0.2, 0.3, 0.45, 0.55, 0.65, 0.75, 0.85] as const;

/** How often guesses come true, by the length of the match that they come from. */
export class HitRates {
  readonly #levels: readonly HitRate[];

  /** @param prior what is known from other texts; it learns along */
  constructor(prior?: HitRates) {
    const expected: readonly (number | HitRate)[] = prior === undefined ? EXPECTED : prior.#levels;
    this.#levels = expected.map((each) => new HitRate(each));
  }

  /** The rate of matches of so many tokens, 1 or more. */
  of(length: number): HitRate {
    const level = Math.ceil(Math.log2(length));
    return this.#levels[Math.min(level, this.#levels.length - 1)]!;
  }
}

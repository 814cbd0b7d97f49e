/** Weight of the prior, in observations. */
const PRIOR_WEIGHT = 4;

/** Most observations that count; older ones decay. */
const MEMORY = 40;

/** Acceptance rate of one kind of draft tokens. Recent observations count most. */
export class HitRate {
  readonly #expected: number | HitRate;
  #hits = 0;
  #tries = 0;

  /** @param expected prior rate; a `HitRate` is updated with every observation, too */
  constructor(expected: number | HitRate) {
    this.#expected = expected;
  }

  /** Probability that a draft token is accepted. */
  get value(): number {
    const expected = typeof this.#expected === "number" ? this.#expected : this.#expected.value;
    return (this.#hits + PRIOR_WEIGHT * expected) / (this.#tries + PRIOR_WEIGHT);
  }

  /** Records whether a draft token was accepted. */
  note(isHit: boolean): void {
    const kept = this.#tries < MEMORY ? 1 : 1 - 1 / MEMORY;
    this.#tries = this.#tries * kept + 1;
    this.#hits = this.#hits * kept + (isHit ? 1 : 0);
    if (typeof this.#expected !== "number") this.#expected.note(isHit);
  }
}

/** Prior rates of matches of 1, 2, 3 to 4, 5 to 8 tokens and so on. */
const EXPECTED = [0.2, 0.3, 0.45, 0.55, 0.65, 0.75, 0.85] as const;

/** Acceptance rates by the length of the match that draft tokens come from. */
export class HitRates {
  readonly #levels: readonly HitRate[];

  /** @param prior rates of other texts; they are updated, too */
  constructor(prior?: HitRates) {
    const expected: readonly (number | HitRate)[] = prior === undefined ? EXPECTED : prior.#levels;
    this.#levels = expected.map((each) => new HitRate(each));
  }

  /** Returns the rate of matches of `length` tokens, at least 1. */
  of(length: number): HitRate {
    const level = Math.ceil(Math.log2(length));
    return this.#levels[Math.min(level, this.#levels.length - 1)]!;
  }
}

/** Ranges of probabilities whose rates are measured apart. */
const N_RANGES = 10;

/** Acceptance rates of a drafter's choices by its own probabilities. */
export class ChoiceRates {
  readonly #first = rangesOf(N_RANGES);
  readonly #others = rangesOf(N_RANGES);

  /** Returns the rate of choices of a probability; `isFirst` for the one that was sampled. */
  of({ probability, isFirst }: { probability: number; isFirst: boolean }): HitRate {
    const range = Math.min(N_RANGES - 1, Math.floor(probability * N_RANGES));
    return (isFirst ? this.#first : this.#others)[range]!;
  }

  /** Records the token that one of the choices was, or was not. */
  note(
    choice: { token: number; probability: number; isFirst: boolean },
    actual: number,
  ): void {
    this.of(choice).note(choice.token === actual);
  }
}

/** Returns a rate for each range, which is expected in its middle. */
function rangesOf(count: number): HitRate[] {
  return Array.from({ length: count }, (_, i) => new HitRate((i + 0.5) / count));
}

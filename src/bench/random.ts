/**
 * Reproducible random numbers by Marsaglia's xorshift ("Xorshift RNGs", 2003): good enough for
 * random weights and tokens.
 */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = (seed ^ 0x9e3779b9) | 1;
  }

  /** Returns a number in [0, 1). */
  uniform(): number {
    let x = this.#state;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.#state = x;
    return (x >>> 0) / 2 ** 32;
  }

  /** Returns an integer from 0 to `limit - 1`. */
  below(limit: number): number {
    return Math.floor(this.uniform() * limit);
  }

  /** Samples the normal distribution with mean 0 by the Box-Muller transform. */
  normal(deviation: number): number {
    const radius = Math.sqrt(-2 * Math.log(1 - this.uniform()));
    return deviation * radius * Math.cos(2 * Math.PI * this.uniform());
  }
}

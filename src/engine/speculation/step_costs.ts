/** Most rows of a step that is measured; larger steps get no drafts. */
export const MOST_ROWS = 32;

/** Assumed cost of each further row before a measurement, as a share of a step of one row. */
const ROW_SHARE = 0.08;

/**
 * Weights of a new measurement: a faster step shows what is possible, a slower one may have been
 * disturbed.
 */
const FASTER = 0.8, SLOWER = 0.08;

/**
 * Number of steps of other sizes after which a measurement counts half, so that it is tried again.
 */
const HALF_LIFE = 64;

/** Measured durations of decoding steps by their number of rows. */
export class StepCosts {
  readonly #milliseconds = new Float64Array(MOST_ROWS + 1);
  /** Step at which each was measured last. */
  readonly #measured = new Float64Array(MOST_ROWS + 1);
  #now = 0;
  /** Rows of the last step. */
  #latest = 0;

  /** Records a step. */
  measure(rows: number, milliseconds: number): void {
    if (rows < 1 || rows > MOST_ROWS || !(milliseconds > 0)) return;
    const known = this.#milliseconds[rows]!;
    this.#milliseconds[rows] = known === 0
      ? milliseconds
      : known + (milliseconds < known ? FASTER : SLOWER) * (milliseconds - known);
    this.#measured[rows] = ++this.#now;
    this.#latest = rows;
  }

  /**
   * Returns the milliseconds of a step of 1 to {@linkcode MOST_ROWS} rows: as measured,
   * interpolated between two measured sizes, or in proportion to the nearest one. Never more than a
   * larger step took.
   */
  of(rows: number): number {
    let cost = this.#near(rows);
    for (let more = rows + 1; more <= MOST_ROWS; more++) {
      const known = this.#known(more);
      if (known > 0 && known < cost) cost = known;
    }
    return cost;
  }

  #near(rows: number): number {
    let below = rows, above = rows;
    while (below > 0 && this.#milliseconds[below] === 0) below--;
    while (above <= MOST_ROWS && this.#milliseconds[above] === 0) above++;
    const [low, high] = [this.#known(below), above > MOST_ROWS ? 0 : this.#known(above)];
    if (below === above) return low;
    if (low > 0 && high > 0) return low + (rows - below) / (above - below) * (high - low);
    if (low > 0) return low * growth(rows) / growth(below);
    if (high > 0) return high * growth(rows) / growth(above);
    return growth(rows);
  }

  /**
   * Returns the cost of a number of rows; 0 if it was never measured. An old measurement decays
   * towards the cost that the latest step implies, if that is less: it may have been disturbed.
   */
  #known(rows: number): number {
    const measured = this.#milliseconds[rows]!;
    if (measured === 0 || rows === this.#latest) return measured;
    const expected = this.#milliseconds[this.#latest]! * growth(rows) / growth(this.#latest);
    const fresh = 0.5 ** ((this.#now - this.#measured[rows]!) / HALF_LIFE);
    return measured <= expected ? measured : expected + fresh * (measured - expected);
  }
}

/** Returns the assumed cost of a step, in steps of one row. */
function growth(rows: number): number {
  return 1 + ROW_SHARE * (rows - 1);
}

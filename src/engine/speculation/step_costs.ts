/** Steps of more rows are not told apart; nothing is drafted for them. */
export const MOST_ROWS = 32;

/** What a further row is taken to cost, as a share of a step of one row, before it was measured. */
const ROW_SHARE = 0.08;

/** A faster step than known says what is possible; a slower one may have been disturbed. */
const FASTER = 0.8, SLOWER = 0.08;

/** After so many steps of other sizes a cost is half forgotten, so that it is tried again. */
const HALF_LIFE = 64;

/** What steps that decode cost by their rows, as they were measured. */
export class StepCosts {
  readonly #milliseconds = new Float64Array(MOST_ROWS + 1);
  /** When each was measured last, in steps. */
  readonly #measured = new Float64Array(MOST_ROWS + 1);
  #now = 0;
  /** The rows of the last step. */
  #latest = 0;

  /** Takes note of a step. */
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
   * Milliseconds of a step of 1 to {@linkcode MOST_ROWS} rows: as measured; between two that were, on the
   * line between them; beyond all, in proportion to the nearest. Never more than further rows took.
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
   * What is known of the cost of so many rows; 0 for nothing. What was seen long ago gives way to what
   * the latest steps make one expect, if that is less: it may have been a disturbance.
   */
  #known(rows: number): number {
    const measured = this.#milliseconds[rows]!;
    if (measured === 0 || rows === this.#latest) return measured;
    const expected = this.#milliseconds[this.#latest]! * growth(rows) / growth(this.#latest);
    const fresh = 0.5 ** ((this.#now - this.#measured[rows]!) / HALF_LIFE);
    return measured <= expected ? measured : expected + fresh * (measured - expected);
  }
}

/** What a step of some rows is taken to cost, in steps of one row. */
function growth(rows: number): number {
  return 1 + ROW_SHARE * (rows - 1);
}

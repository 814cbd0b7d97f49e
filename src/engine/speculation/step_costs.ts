/** Steps of more rows are not told apart; nothing is drafted for them. */
export const MOST_ROWS = 32;

/** What a further row is taken to cost, as a share of a step of one row, before it was measured. */
const ROW_SHARE = 0.08;

/** A faster step than known says what is possible; a slower one may have been disturbed. */
const FASTER = 0.5, SLOWER = 0.08;

/** What steps that decode cost by their rows, as they were measured. */
export class StepCosts {
  readonly #milliseconds = new Float64Array(MOST_ROWS + 1);

  /** Takes note of a step. */
  measure(rows: number, milliseconds: number): void {
    if (rows < 1 || rows > MOST_ROWS || !(milliseconds > 0)) return;
    const known = this.#milliseconds[rows]!;
    this.#milliseconds[rows] = known === 0
      ? milliseconds
      : known + (milliseconds < known ? FASTER : SLOWER) * (milliseconds - known);
  }

  /**
   * Milliseconds of a step of 1 to {@linkcode MOST_ROWS} rows: as measured; between two that were, on the
   * line between them; beyond all, in proportion to the nearest. Never more than further rows took.
   */
  of(rows: number): number {
    let cost = this.#near(rows);
    for (const known of this.#milliseconds.subarray(rows + 1)) {
      if (known > 0 && known < cost) cost = known;
    }
    return cost;
  }

  #near(rows: number): number {
    const known = this.#milliseconds;
    if (known[rows]! > 0) return known[rows]!;
    let below = rows, above = rows;
    while (below > 0 && known[below] === 0) below--;
    while (above <= MOST_ROWS && known[above] === 0) above++;
    if (below > 0 && above <= MOST_ROWS) {
      const share = (rows - below) / (above - below);
      return known[below]! + share * (known[above]! - known[below]!);
    }
    if (below > 0) return known[below]! * growth(rows) / growth(below);
    if (above <= MOST_ROWS) return known[above]! * growth(rows) / growth(above);
    return growth(rows);
  }
}

/** What a step of some rows is taken to cost, in steps of one row. */
function growth(rows: number): number {
  return 1 + ROW_SHARE * (rows - 1);
}

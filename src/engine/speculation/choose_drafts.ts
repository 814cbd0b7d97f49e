/** What may be drafted for one sequence: the odds of one guess after another, descending. */
export type Odds = readonly number[];

/** A step with drafts must give this many times the tokens a millisecond of one without. */
const MIN_GAIN = 1.05;

/**
 * How many tokens to draft for each sequence of a step so that it gives the most tokens a millisecond. A
 * row that is computed anyway gives one token a sequence, a guess as many as its odds.
 *
 * @param odds of each sequence
 * @param rows that are computed anyway
 * @param most rows to add
 * @param cost milliseconds of a step of so many rows
 */
export function chooseDrafts(
  odds: readonly Odds[],
  rows: number,
  most: number,
  cost: (rows: number) => number,
): number[] {
  const ranked = odds.flatMap((list, sequence) => list.map((value) => ({ sequence, value })))
    .sort((a, b) => b.value - a.value);
  let tokens = odds.length;
  let bestRate = MIN_GAIN * tokens / cost(rows);
  let bestCount = 0;
  for (const [i, { value }] of ranked.slice(0, most).entries()) {
    tokens += value;
    const rate = tokens / cost(rows + i + 1);
    if (rate <= bestRate) continue;
    bestRate = rate;
    bestCount = i + 1;
  }
  const counts = odds.map(() => 0);
  for (const { sequence } of ranked.slice(0, bestCount)) counts[sequence]!++;
  return counts;
}

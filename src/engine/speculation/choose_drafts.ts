/** Draft tokens that may be computed for one sequence. */
export interface Candidate {
  /** Probability of acceptance of each draft token with all before it, descending. */
  readonly odds: readonly number[];
  /** True if each draft token takes a run of the draft model. */
  readonly takesRounds: boolean;
}

/** Least gain in tokens per millisecond of a step with drafts over one without. */
const MIN_GAIN = 1.05;

/**
 * Returns the number of draft tokens for each sequence that gives a step the most expected tokens
 * per millisecond. A sequence gives one token without drafts; a draft token adds its probability of
 * acceptance.
 *
 * @param rows rows of the step without drafts
 * @param most most rows to add
 * @param cost milliseconds of a step of `rows` rows after `rounds` runs of a draft model
 */
export function chooseDrafts(
  candidates: readonly Candidate[],
  rows: number,
  most: number,
  cost: (rows: number, rounds: number) => number,
): number[] {
  const ranked = candidates
    .flatMap(({ odds, takesRounds }, sequence) =>
      odds.map((value, i) => ({ sequence, value, round: takesRounds ? i + 1 : 0 }))
    )
    .sort((a, b) => b.value - a.value);
  const counts = candidates.map(() => 0);
  if (ranked.length === 0) return counts;
  const mostRounds = ranked.reduce((most, { round }) => Math.max(most, round), 0);
  let bestRate = MIN_GAIN * candidates.length / cost(rows, 0);
  let best: typeof ranked = [];
  for (let rounds = 0; rounds <= mostRounds; rounds++) {
    const within = ranked.filter(({ round }) => round <= rounds).slice(0, most);
    let tokens = candidates.length;
    for (const [i, { value }] of within.entries()) {
      tokens += value;
      const rate = tokens / cost(rows + i + 1, rounds);
      if (rate <= bestRate) continue;
      bestRate = rate;
      best = within.slice(0, i + 1);
    }
  }
  for (const { sequence } of best) counts[sequence]!++;
  return counts;
}

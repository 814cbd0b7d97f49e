/** What may be drafted for one sequence. */
export interface Candidate {
  /** The odds of one guess after another, descending. */
  readonly odds: readonly number[];
  /** Whether each of the guesses takes a round of a draft model. */
  readonly takesRounds: boolean;
}

/** A step with drafts must give this many times the tokens a millisecond of one without. */
const MIN_GAIN = 1.05;

/**
 * How many tokens to draft for each sequence of a step so that it gives the most tokens a millisecond. A
 * row that is computed anyway gives one token a sequence, a guess as many as its odds.
 *
 * @param rows that are computed anyway
 * @param most rows to add
 * @param cost milliseconds of a step of so many rows behind so many rounds of a draft model
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

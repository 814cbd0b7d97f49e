/** Draft tokens that may be computed for one sequence. */
export interface Candidate {
  /** Probability of acceptance of each draft token with all before it, descending. */
  readonly odds: readonly number[];
  /** True if each draft token takes a run of the draft model. */
  readonly takesRounds: boolean;
  /**
   * Probability that the second choice for a position is right, if a branch may have it and the
   * tokens before are right. @default 0
   */
  readonly secondRate?: number | undefined;
  /**
   * Tokens before the draft that are computed again, with the accepted draft tokens, if one is
   * rejected. 0 if none are.
   */
  readonly replayed: number;
}

/** Least gain in tokens per millisecond of a step with drafts over one without. */
const MIN_GAIN = 1.05;

/**
 * Returns the number of draft tokens for each sequence that gives a step the most expected tokens
 * per millisecond. A sequence gives one token without drafts; a draft token adds its probability of
 * acceptance, and so does a second choice, which is counted only for the comparison. Rows that the
 * next step is expected to compute again count as rows of this one.
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
    .flatMap(({ odds, takesRounds, replayed, secondRate = 0 }, sequence) =>
      odds.flatMap((value, i) => {
        const before = odds[i - 1] ?? 1;
        const round = takesRounds ? i + 1 : 0;
        // This draft token is the first to be rejected with the difference of the odds.
        const again = replayed === 0 ? 0 : (replayed + i) * (before - value);
        const token = { sequence, value, round, again, isSecond: false };
        if (secondRate === 0) return [token];
        return [token, { ...token, value: before * secondRate, isSecond: true }];
      })
    )
    .sort((a, b) => b.value - a.value);
  const counts = candidates.map(() => 0);
  if (ranked.length === 0) return counts;
  const mostRounds = ranked.reduce((most, { round }) => Math.max(most, round), 0);
  let bestRate = MIN_GAIN * candidates.length / cost(rows, 0);
  let best: typeof ranked = [];
  for (let rounds = 0; rounds <= mostRounds; rounds++) {
    const within = ranked.filter(({ round }) => round <= rounds).slice(0, most);
    let tokens = candidates.length, rowsAgain = 0;
    for (const [i, { value, again }] of within.entries()) {
      tokens += value;
      rowsAgain += again;
      const rate = tokens / cost(rows + i + 1 + Math.round(rowsAgain), rounds);
      if (rate <= bestRate) continue;
      bestRate = rate;
      best = within.slice(0, i + 1);
    }
  }
  for (const { sequence, isSecond } of best) if (!isSecond) counts[sequence]!++;
  return counts;
}

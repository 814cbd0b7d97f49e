/** What a program under comparison is told, and what it answers, as one line of JSON each. */

/** The work of one round. */
export interface RoundTask {
  readonly model: string;
  readonly threads: number;
  /** Ids of the prompt. */
  readonly prompt: readonly number[];
  /** Tokens to choose after it, the first being the prompt's. */
  readonly nGen: number;
}

/** How long it took, after the same work was done once to warm up. */
export interface RoundResult {
  /** From the prompt to the choice of the first token. */
  readonly prefill_ms: number;
  /** From there to the choice of the last token. */
  readonly decode_ms: number;
}

/** @throws {SyntaxError} for anything else */
export function parseRoundResult(text: string): RoundResult {
  const { prefill_ms, decode_ms } = JSON.parse(text);
  if (!(prefill_ms > 0 && decode_ms > 0)) throw new SyntaxError(`no times in ${text}`);
  return { prefill_ms, decode_ms };
}

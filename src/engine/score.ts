import { type Runner, UNSAMPLED } from "./runner.ts";

/**
 * The natural log-probability of each token but the first, given all before it.
 *
 * @returns one number fewer than there are tokens
 * @throws {ForgeError} `bad_input` when the tokens do not fit the context
 */
export async function scoreTokens(
  runner: Runner,
  tokens: ArrayLike<number>,
  signal?: AbortSignal,
): Promise<Float32Array> {
  using table = runner.newSequence();
  const scores = new Float32Array(Math.max(0, tokens.length - 1));
  const chunk = runner.limits.maxOutputs;
  for (let start = 0; start < scores.length; start += chunk) {
    const end = Math.min(start + chunk, scores.length);
    const ids = Array.from({ length: end - start }, (_, i) => tokens[start + i]!);
    const requests = ids.map((_, row) => ({
      ...UNSAMPLED,
      row,
      forcedToken: tokens[start + row + 1]!,
    }));
    const outputs = await runner.run(table, ids, start, requests, signal);
    outputs.forEach(({ logprob }, i) => scores[start + i] = logprob);
  }
  return scores;
}

/** The logits after the last token, `[vocabSize]`. */
export async function lastLogits(runner: Runner, tokens: ArrayLike<number>): Promise<Float32Array> {
  using table = runner.newSequence();
  const chunk = runner.limits.maxTokens;
  for (let start = 0;; start += chunk) {
    const ids = Array.prototype.slice.call(tokens, start, start + chunk) as number[];
    if (start + chunk >= tokens.length) return await runner.logits(table, ids, start);
    await runner.run(table, ids, start, []);
  }
}

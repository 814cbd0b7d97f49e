import type { OutputRequest } from "../backend.ts";
import type { PageTable } from "../engine/kv_pages.ts";
import { type Runner, UNSAMPLED } from "../engine/runner.ts";
import { Random } from "./random.ts";
import type { Workload } from "./workload.ts";

/** What of a runner is measured. */
export type MeasuredRunner = Pick<Runner, "limits" | "newSequence" | "run" | "vocabSize">;

/** The request of every step that chooses a token: the largest logit. */
const GREEDY: OutputRequest = { ...UNSAMPLED, row: 0, forcedToken: undefined };

/**
 * Measures a workload over and over, after one warm-up (the whole prompt, and one decoded token), and
 * yields the nanoseconds of each repetition.
 *
 * Tokens are random. A repetition starts with just the first `nDepth` positions filled: those behind
 * are written anew before anything reads them. A prompt ends with the choice of a token, and so does
 * each decode step, which feeds one token and waits for the choice of the next.
 *
 * @throws {ForgeError} as {@linkcode Runner.run}
 */
export async function* measure(
  runner: MeasuredRunner,
  workload: Workload,
  repetitions: number,
  signal?: AbortSignal,
): AsyncGenerator<number, void, undefined> {
  const { nPrompt, nGen, nDepth } = workload;
  using table = runner.newSequence();
  const random = new Random(nPrompt + nGen);
  const tokens = Int32Array.from(
    { length: nDepth + nPrompt + nGen },
    () => random.below(runner.vocabSize),
  );
  const prefill = (start: number, end: number) =>
    prefillTokens(runner, table, tokens, start, end, signal);
  const decode = async (start: number, end: number) => {
    for (let at = start; at < end; at++) {
      const next = tokens.subarray(at, at + 1);
      await runner.run([{ table, tokens: next, start: at, outputs: [GREEDY] }], signal);
    }
  };

  const promptEnd = nDepth + nPrompt;
  await prefill(0, promptEnd);
  await decode(promptEnd, promptEnd + Math.min(1, nGen));
  for (let repetition = 0; repetition < repetitions; repetition++) {
    const start = performance.now();
    await prefill(nDepth, promptEnd);
    await decode(promptEnd, promptEnd + nGen);
    yield Math.round((performance.now() - start) * 1e6);
  }
}

/** Computes the tokens from `start` to `end` in chunks; the last chunk chooses a token. */
async function prefillTokens(
  runner: MeasuredRunner,
  table: PageTable,
  tokens: Int32Array,
  start: number,
  end: number,
  signal?: AbortSignal,
): Promise<void> {
  const { maxTokens } = runner.limits;
  for (let at = start; at < end; at += maxTokens) {
    const chunk = tokens.subarray(at, Math.min(at + maxTokens, end));
    const outputs = at + maxTokens >= end ? [{ ...GREEDY, row: chunk.length - 1 }] : [];
    await runner.run([{ table, tokens: chunk, start: at, outputs }], signal);
  }
}

import type { OutputRequest } from "../backend.ts";
import type { PageTable } from "../engine/cache/kv_pages.ts";
import { type Chunk, type Runner, UNSAMPLED } from "../engine/runner.ts";
import { ForgeError } from "../errors.ts";
import { Random } from "./random.ts";
import type { Workload } from "./workload.ts";

/** The part of a runner that is measured. */
export type MeasuredRunner = Pick<Runner, "limits" | "newSequence" | "run" | "vocabSize">;

/** Times of one repetition in nanoseconds. */
export interface Sample {
  /** All prompts, including the choice of the token after each. */
  readonly prefill: number;
  /** All decoding after the prompts. */
  readonly decode: number;
}

/** Output request of every step that chooses a token: the largest logit. */
const GREEDY: OutputRequest = { ...UNSAMPLED, row: 0, forcedToken: undefined };

/** A measured sequence. */
interface Sequence {
  readonly table: PageTable;
  readonly tokens: Int32Array;
}

/**
 * Measures a workload repeatedly and yields the times of each repetition, after one warm-up (one
 * token, the whole prompt and one decoded token).
 *
 * Tokens are random. At the start of a repetition only the first `nDepth` positions count as
 * filled; later ones are overwritten before they are read. A prompt ends with the choice of a
 * token. Each decode step feeds one token of each sequence and waits for the choice of the next
 * ones.
 *
 * @throws {ForgeError} as {@linkcode Runner.run}; `usage` for too many sequences
 */
export async function* measure(
  runner: MeasuredRunner,
  workload: Workload,
  repetitions: number,
  signal?: AbortSignal,
): AsyncGenerator<Sample, void, undefined> {
  const { nPrompt, nGen, nDepth, nParallel = 1 } = workload;
  const { maxTokens, maxSequences } = runner.limits;
  if (nParallel > maxSequences) {
    throw new ForgeError(
      "usage",
      `--parallel is ${nParallel}; valid for this model is 1 to ${maxSequences}`,
    );
  }
  const batch = Math.min(maxTokens, workload.nBatch ?? maxTokens);
  const random = new Random(nPrompt + nGen);
  using stack = new DisposableStack();
  const sequences = Array.from({ length: nParallel }, (): Sequence => ({
    table: stack.use(runner.newSequence()),
    tokens: Int32Array.from(
      { length: nDepth + nPrompt + nGen },
      () => random.below(runner.vocabSize),
    ),
  }));
  const prefill = async (start: number, end: number) => {
    for (const chunks of promptSteps(sequences, start, end, batch)) {
      await runner.run(chunks, { signal });
    }
  };
  const decode = async (start: number, end: number) => {
    for (let at = start; at < end; at++) {
      const chunks = sequences.map(({ table, tokens }) => ({
        table,
        tokens: tokens.subarray(at, at + 1),
        start: at,
        outputs: [GREEDY],
      }));
      await runner.run(chunks, { signal });
    }
  };

  const promptEnd = nDepth + nPrompt;
  // Weights may be packed in the second step, so the first step is a short one.
  await decode(0, 1);
  await prefill(0, promptEnd);
  await decode(promptEnd, promptEnd + Math.min(1, nGen));
  for (let repetition = 0; repetition < repetitions; repetition++) {
    const start = performance.now();
    await prefill(nDepth, promptEnd);
    const prefilled = performance.now();
    await decode(promptEnd, promptEnd + nGen);
    yield {
      prefill: Math.round((prefilled - start) * 1e6),
      decode: Math.round((performance.now() - prefilled) * 1e6),
    };
  }
}

/**
 * Yields the runs that compute the tokens from `start` to `end` of every sequence, one sequence
 * after another, with up to `batch` tokens per run. The last token of each sequence chooses the
 * next one.
 */
function* promptSteps(
  sequences: readonly Sequence[],
  start: number,
  end: number,
  batch: number,
): Generator<Chunk[]> {
  let chunks: Chunk[] = [];
  let room = batch;
  for (const { table, tokens } of sequences) {
    for (let at = start; at < end;) {
      const count = Math.min(room, end - at);
      const outputs = at + count === end ? [{ ...GREEDY, row: count - 1 }] : [];
      chunks.push({ table, tokens: tokens.subarray(at, at + count), start: at, outputs });
      at += count;
      room -= count;
      if (room > 0) continue;
      yield chunks;
      chunks = [];
      room = batch;
    }
  }
  if (chunks.length > 0) yield chunks;
}

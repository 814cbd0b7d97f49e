import type { OutputRequest } from "../backend.ts";
import type { PageTable } from "../engine/cache/kv_pages.ts";
import { type Chunk, type Runner, UNSAMPLED } from "../engine/runner.ts";
import { ForgeError } from "../errors.ts";
import { Random } from "./random.ts";
import type { Workload } from "./workload.ts";

/** What of a runner is measured. */
export type MeasuredRunner = Pick<Runner, "limits" | "newSequence" | "run" | "vocabSize">;

/** What one repetition took, in nanoseconds. */
export interface Sample {
  /** All prompts, to the choice of the token after each of them. */
  readonly prefill: number;
  /** All decoding after them. */
  readonly decode: number;
}

/** The request of every step that chooses a token: the largest logit. */
const GREEDY: OutputRequest = { ...UNSAMPLED, row: 0, forcedToken: undefined };

/** A sequence that is measured. */
interface Sequence {
  readonly table: PageTable;
  readonly tokens: Int32Array;
}

/**
 * Measures a workload over and over, after one warm-up (one token, the whole prompt, and one decoded
 * token), and yields what each repetition took.
 *
 * Tokens are random. A repetition starts with just the first `nDepth` positions filled: those behind
 * are written anew before anything reads them. A prompt ends with the choice of a token, and so does
 * each decode step, which feeds one token of each sequence and waits for the choice of the next ones.
 *
 * @throws {ForgeError} as {@linkcode Runner.run}; `usage` for more sequences than it takes.
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
      `--parallel is ${nParallel}; this model can decode at most ${maxSequences} sequences at once`,
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
  // Weights may be packed when a step runs for the second time: the first run is a short one.
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
 * The runs that compute the tokens from `start` to `end` of every sequence, one sequence after another,
 * up to `batch` tokens a run; each sequence's last token chooses the next one.
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

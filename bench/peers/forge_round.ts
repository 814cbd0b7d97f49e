/** One round of forge: reads a task from stdin and prints a result. */
import type { StepResult } from "../../src/backend.ts";
import { type BenchModel, openBenchModel } from "../../src/bench/bench_model.ts";
import { openBackend } from "../../src/engine/load/open_backend.ts";
import { openTokenizer } from "../../src/engine/load/tokenizer.ts";
import { type Chunk, UNSAMPLED } from "../../src/engine/runner.ts";
import { StepPace } from "../../src/engine/schedule/ahead.ts";
import { ForgeError } from "../../src/errors.ts";
import { openCheckpoint } from "../../src/formats/checkpoint.ts";
import { FIRST_PROMPT, FIRST_TOKEN, type RoundTask, type RoundTimes } from "./round.ts";

const GREEDY = { ...UNSAMPLED, row: 0, forcedToken: undefined };

/** A sequence and its next token. */
interface Sequence extends Disposable {
  readonly table: Chunk["table"];
  length: number;
  next: number;
}

/** The work of a round, on a model opened for a number of sequences and a length. */
class Session implements Disposable {
  readonly #model: BenchModel;
  readonly #pace = new StepPace();

  private constructor(model: BenchModel) {
    this.#model = model;
  }

  static async open(task: RoundTask, contextLength: number, maxSequences = 1): Promise<Session> {
    const { model: name, device, threads } = task;
    const options = { name, device, threads, contextLength, maxSequences };
    return new Session(await openBenchModel(name, options));
  }

  newSequence(): Sequence {
    const table = this.#model.runner.newSequence();
    return { table, length: 0, next: 0, [Symbol.dispose]: () => table[Symbol.dispose]() };
  }

  /** Adds a prompt to a sequence and chooses a token. */
  async prefill(sequence: Sequence, prompt: readonly number[]): Promise<void> {
    const { runner } = this.#model;
    const { maxTokens } = runner.limits;
    for (let at = 0; at < prompt.length; at += maxTokens) {
      const tokens = prompt.slice(at, at + maxTokens);
      const isLast = at + maxTokens >= prompt.length;
      const outputs = isLast ? [{ ...GREEDY, row: tokens.length - 1 }] : [];
      const { table, length: start } = sequence;
      const [results] = await runner.run([{ table, tokens, start, outputs }]);
      sequence.length += tokens.length;
      if (isLast) sequence.next = chosen(results?.[0]);
    }
  }

  /** Feeds each sequence its next token and samples another one, `count` times, like the engine. */
  async decode(sequences: readonly Sequence[], count: number): Promise<void> {
    for (let left = count; left > 0;) {
      const nSteps = Math.min(left, this.#pace.steps(sequences.length));
      const begin = performance.now();
      const chunks = sequences.map(({ table, length: start, next }) => ({
        table,
        tokens: [next],
        start,
        outputs: [GREEDY],
      }));
      const results = await this.#model.runner.run(chunks, { nSteps });
      this.#pace.measure(sequences.length, (performance.now() - begin) / nSteps);
      sequences.forEach((sequence, s) => {
        sequence.length += nSteps;
        sequence.next = chosen(results[s]?.at(-1));
      });
      left -= nSteps;
    }
  }

  peakMemory(): number {
    return this.#model.peakMemory();
  }

  [Symbol.dispose](): void {
    this.#model[Symbol.dispose]();
  }
}

function chosen(result: StepResult | undefined): number {
  if (result === undefined || result instanceof ForgeError) throw result;
  return result.token;
}

async function timed(work: () => Promise<void>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

async function main(): Promise<void> {
  const task = JSON.parse(await new Response(Deno.stdin.readable).text()) as RoundTask;
  const alone = await measureAlone(task);
  const parallel = task.nParallel > 0 ? await measureParallel(task) : {};
  const depth = task.nDepth > 0 ? await measureDepth(task) : {};
  const times: RoundTimes = { ...alone, ...parallel, ...depth };
  console.log(JSON.stringify(times));
}

async function measureAlone(task: RoundTask) {
  const { tokens, nPrompt, nGen } = task;
  using session = await Session.open(task, nPrompt + nGen);
  // Load the vocabulary, as the other programs do.
  openTokenizer(openCheckpoint(task.model));
  {
    using first = session.newSequence();
    await session.prefill(first, tokens.slice(0, FIRST_PROMPT));
    console.log(FIRST_TOKEN);
  }
  let [prefill_ms, decode_ms] = [0, 0];
  for (let time = 0; time < 2; time++) {
    using sequence = session.newSequence();
    prefill_ms = await timed(() => session.prefill(sequence, tokens.slice(0, nPrompt)));
    decode_ms = await timed(() => session.decode([sequence], nGen - 1));
  }
  const peak_bytes = session.peakMemory();
  return { prefill_ms, decode_ms, peak_bytes, ...await measureReading(session, task) };
}

/**
 * Decodes once more, between two measurements of the read bandwidth. On a machine that shares its
 * memory with others, an earlier measurement says little.
 */
async function measureReading(session: Session, task: RoundTask) {
  const { tokens, nPrompt, nGen, decodeBytes, threads } = task;
  using sequence = session.newSequence();
  await session.prefill(sequence, tokens.slice(0, nPrompt));
  const before = readBandwidth(threads);
  const decode_ms = await timed(() => session.decode([sequence], nGen - 1));
  const after = readBandwidth(threads);
  if (before === 0 || after === 0) return {};
  const read = decodeBytes * (nGen - 1) / decode_ms * 1e3;
  return { read_share: read / ((before + after) / 2) };
}

/** Current read bandwidth of the processor in bytes per second; 0 if unknown. */
function readBandwidth(threads: number): number {
  const device = openBackend("cpu", threads);
  try {
    return device.readBandwidth();
  } finally {
    device.close();
  }
}

async function measureParallel(task: RoundTask) {
  const { tokens, nGen, nParallel, nParallelPrompt } = task;
  using session = await Session.open(task, nParallelPrompt + nGen + 1, nParallel);
  const sequences = Array.from({ length: nParallel }, () => session.newSequence());
  for (const [i, sequence] of sequences.entries()) {
    await session.prefill(sequence, tokens.slice(i, i + nParallelPrompt));
  }
  await session.decode(sequences, 1);
  return { parallel_ms: await timed(() => session.decode(sequences, nGen)) };
}

async function measureDepth(task: RoundTask) {
  const { tokens, nDepth, nPrompt, nGen } = task;
  using session = await Session.open(task, nDepth + nPrompt + nGen);
  using sequence = session.newSequence();
  await session.prefill(sequence, tokens.slice(0, nDepth));
  const prompt = tokens.slice(nDepth, nDepth + nPrompt);
  return {
    depth_prefill_ms: await timed(() => session.prefill(sequence, prompt)),
    depth_decode_ms: await timed(() => session.decode([sequence], nGen - 1)),
  };
}

if (import.meta.main) await main();

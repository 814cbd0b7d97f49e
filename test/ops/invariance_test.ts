/**
 * The bits of the logits of a sequence do not depend on the rest of the batch, its pages, or the
 * number of threads. On the CPU they do not depend on the division of its prompt into runs either;
 * GPUs have other kernels for runs of up to 16 tokens than for longer ones.
 */
import type { Backend } from "../../src/backend.ts";
import { devices, deviceTest, isGpu, openDevice } from "../support/devices.ts";
import { assertSameBits, type Matrix, matrixOfRows, rowOf, stack } from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import {
  randomTinyWeights,
  TinyDecoder,
  type TinyInputs,
  type TinyLimits,
} from "../support/tiny_decoder.ts";

/** Devices that compute a token in the same way in runs of any length. */
const uniform = devices.filter((device) => !isGpu(device));
const gpus = devices.filter(isGpu);

const pageTokens = 16;
const limits: TinyLimits = {
  maxTokens: 420,
  maxSequences: 5,
  maxPages: 30,
  nPages: 64,
  pageTokens,
};

/** Sequences of random tokens; the longest is longer than one split of attention. */
function randomSequences(random: Random): number[][] {
  return [1, 37, 300, 17, 64].map((length) =>
    Array.from({ length }, () => random.int(0, TinyDecoder.vocabulary - 1))
  );
}

/** Distinct random pages for each sequence. */
function randomPages(random: Random, sequences: readonly (readonly number[])[]): number[][] {
  const pages = random.permutation(limits.nPages);
  return sequences.map((tokens) => pages.splice(0, Math.ceil(tokens.length / pageTokens)));
}

/** The logits of each sequence, run alone in a single run, in pages from 0 on. */
async function alone(model: TinyDecoder, sequences: readonly number[][]): Promise<Matrix[]> {
  const results: Matrix[] = [];
  for (const tokens of sequences) {
    const pages = Array.from({ length: Math.ceil(tokens.length / pageTokens) }, (_, i) => i);
    results.push(await model.runChunks(tokens, tokens.length, pages));
  }
  return results;
}

deviceTest("logits are the same alone and in a batch", async (device, random) => {
  const model = await TinyDecoder.load(device, randomTinyWeights(random), limits);
  const sequences = randomSequences(random);
  const expected = stack(await alone(model, sequences));
  const batch = {
    tokens: sequences.flat(),
    positions: sequences.flatMap((tokens) => tokens.map((_, position) => position)),
    sequences: sequences.flatMap((tokens, sequence) => tokens.map(() => sequence)),
    pageTables: randomPages(random, sequences),
  };
  assertSameBits(await model.run(batch), expected, "one batch");

  const order = random.permutation(batch.tokens.length);
  const shuffled = await model.run({
    tokens: order.map((row) => batch.tokens[row]!),
    positions: order.map((row) => batch.positions[row]!),
    sequences: order.map((row) => batch.sequences[row]!),
    pageTables: batch.pageTables,
  });
  assertSameBits(
    shuffled,
    matrixOfRows(order.length, expected.cols, (row) => rowOf(expected, order[row]!)),
    "a batch in random order",
  );
}, uniform);

deviceTest(
  "logits are the same in a batch and in chunks with Q8_0 and Q4_0 caches",
  async (device, random) => {
    const kvTypes = ["Q8_0", "Q4_0"] as const;
    const model = await TinyDecoder.load(device, randomTinyWeights(random), limits, { kvTypes });
    const sequences = randomSequences(random).slice(1);
    const expected = await alone(model, sequences);
    const pageTables = randomPages(random, sequences);
    const together = await model.run({
      tokens: sequences.flat(),
      positions: sequences.flatMap((tokens) => tokens.map((_, position) => position)),
      sequences: sequences.flatMap((tokens, sequence) => tokens.map(() => sequence)),
      pageTables,
    });
    assertSameBits(together, stack(expected), "one batch");
    for (const chunk of [1, 7, 33]) {
      const logits = await model.runChunks(sequences[2]!, chunk, pageTables[2]!);
      assertSameBits(logits, expected[2]!, `chunks of ${chunk}`);
    }
  },
  uniform,
);

deviceTest("logits are the same for every way to cut a prompt", async (device, random) => {
  const model = await TinyDecoder.load(device, randomTinyWeights(random), limits);
  const sequences = randomSequences(random);
  const expected = await alone(model, sequences);
  const pages = randomPages(random, sequences);
  for (const chunk of [1, 2, 3, 7, 16, 33, 255]) {
    for (const [i, tokens] of sequences.entries()) {
      // Long prompts in short pieces are slow, and single tokens test the same.
      if (chunk > 1 && chunk < 16 && tokens.length > 100) continue;
      const logits = await model.runChunks(tokens, chunk, pages[i]!);
      assertSameBits(logits, expected[i]!, `${tokens.length} tokens in chunks of ${chunk}`);
    }
  }
}, uniform);

deviceTest("logits are the same decoded together, at different lengths", async (device, random) => {
  const model = await TinyDecoder.load(device, randomTinyWeights(random), limits);
  const sequences = randomSequences(random).map((tokens) => tokens.slice(0, 64));
  const expected = await alone(model, sequences);
  const pageTables = randomPages(random, sequences);
  // Each sequence starts at a random run and takes 1 to 5 tokens a run.
  const done = sequences.map(() => 0);
  while (done.some((count, i) => count < sequences[i]!.length)) {
    const tokens: number[] = [], positions: number[] = [], owners: number[] = [];
    sequences.forEach((sequence, i) => {
      const count = random.chance(0.6) ? random.pick([1, 1, 1, 5]) : 0;
      for (let n = 0; n < count && done[i]! < sequence.length; n++) {
        tokens.push(sequence[done[i]!]!);
        positions.push(done[i]!++);
        owners.push(i);
      }
    });
    if (tokens.length === 0) continue;
    const logits = await model.run({ tokens, positions, sequences: owners, pageTables });
    assertSameBits(
      logits,
      matrixOfRows(
        logits.rows,
        logits.cols,
        (row) => rowOf(expected[owners[row]!]!, positions[row]!),
      ),
      `a run of ${tokens.length} tokens`,
    );
  }
}, uniform);

for (const device of devices.filter(({ kind }) => kind === "cpu")) {
  const name = "logits are the same for every number of threads";
  Deno.test(`${name} (${device.name})`, async () => {
    const random = new Random(name);
    const weights = randomTinyWeights(random);
    const sequences = randomSequences(random);
    let expected: Matrix | undefined;
    for (const threads of [1, 2, 3, 7]) {
      using backend = openDevice(device, threads);
      const model = await TinyDecoder.load(backend, weights, limits);
      const logits = stack([
        ...await alone(model, sequences),
        await model.runChunks(sequences[1]!, 1, [5, 6, 7]),
      ]);
      assertSameBits(logits, expected ??= logits, `${threads} threads`);
    }
  });
}

const GPU_PAGES = 20;

/** Tokens of a sequence: its prompt, and tokens decoded one at a time. */
interface Sequence {
  readonly prompt: readonly number[];
  readonly decoded: readonly number[];
  readonly pages: readonly number[];
}

/** Consecutive tokens of a sequence. */
interface Piece {
  readonly sequence: Sequence;
  readonly begin: number;
  readonly end: number;
}

function inputsOf(pieces: readonly Piece[]): TinyInputs {
  const tokens: number[] = [], positions: number[] = [], sequences: number[] = [];
  pieces.forEach(({ sequence, begin, end }, i) => {
    const all = [...sequence.prompt, ...sequence.decoded];
    for (let position = begin; position < end; position++) {
      tokens.push(all[position]!);
      positions.push(position);
      sequences.push(i);
    }
  });
  return { tokens, positions, sequences, pageTables: pieces.map(({ sequence }) => sequence.pages) };
}

function randomPrompts(random: Random, lengths: readonly number[]): Sequence[] {
  const pages = random.permutation(GPU_PAGES);
  const tokens = (n: number) =>
    Array.from({ length: n }, () => random.int(0, TinyDecoder.vocabulary - 1));
  return lengths.map((length) => ({
    prompt: tokens(length),
    decoded: tokens(3),
    pages: pages.splice(0, Math.ceil((length + 3) / pageTokens)),
  }));
}

async function checkNeighbours(
  device: Backend,
  random: Random,
  maxSequences: number,
): Promise<void> {
  const model = await TinyDecoder.load(device, randomTinyWeights(random), {
    maxTokens: 70,
    maxSequences,
    maxPages: 8,
    nPages: GPU_PAGES,
    pageTokens: pageTokens,
  });
  const sequences = randomPrompts(random, [45, 17, 20]);
  const last = sequences.at(-1)!;

  const alone: Matrix[] = [];
  for (const sequence of sequences) {
    const { length } = sequence.prompt;
    const parts = [await model.run(inputsOf([{ sequence, begin: 0, end: length }]))];
    for (let begin = length; begin < length + sequence.decoded.length; begin++) {
      parts.push(await model.run(inputsOf([{ sequence, begin, end: begin + 1 }])));
    }
    alone.push(stack(parts));
  }
  const expected = (pieces: readonly Piece[]) => {
    const rows = pieces.flatMap(({ sequence, begin, end }) =>
      Array.from(
        { length: end - begin },
        (_, i) => rowOf(alone[sequences.indexOf(sequence)]!, begin + i),
      )
    );
    return matrixOfRows(rows.length, TinyDecoder.vocabulary, (row) => rows[row]!);
  };
  const compare = async (what: string, pieces: readonly Piece[]) =>
    assertSameBits(
      await model.run(inputsOf(pieces)),
      expected(pieces),
      `${what}, at most ${maxSequences} sequences`,
    );

  const next = (sequence: Sequence, n: number): Piece => {
    const begin = sequence.prompt.length + n;
    return { sequence, begin, end: begin + 1 };
  };
  await compare("decoded together", sequences.map((sequence) => next(sequence, 0)));
  await compare("decoded next to a prompt", [
    ...sequences.slice(0, -1).map((sequence) => next(sequence, 1)),
    { sequence: last, begin: 0, end: last.prompt.length },
  ]);
  const [first] = sequences as [Sequence];
  const cut = 21;
  await compare("the beginning of a prompt beside another", [
    { sequence: last, begin: 0, end: last.prompt.length },
    { sequence: first, begin: 0, end: cut },
  ]);
  await compare("the rest of a prompt beside a decoded token", [
    next(last, 2),
    { sequence: first, begin: cut, end: first.prompt.length },
  ]);
}

// Few sequences and many sequences use different product kernels.
for (const maxSequences of [5, 12]) {
  deviceTest(
    `decoded tokens and long pieces of prompts are the same with others, of ${maxSequences}`,
    (device, random) => checkNeighbours(device, random, maxSequences),
    gpus,
  );
}

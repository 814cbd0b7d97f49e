/**
 * The results of a sequence on a GPU (its kind is the argument) do not depend, in any bit, on other
 * sequences in its steps: decoded tokens for any other work in the step, and prompts for any
 * division into pieces of more than 16 tokens. Run in a separate process.
 */
import { openDevice } from "./devices.ts";
import { assertSameBits, type Matrix, matrixOfRows, rowOf, stack } from "./matrix.ts";
import { Random } from "./random.ts";
import { randomTinyWeights, TinyDecoder, type TinyInputs } from "./tiny_decoder.ts";

const kind = Deno.args[0] === "metal" ? "metal" : "cuda";
const PAGE_TOKENS = 16;
const N_PAGES = 20;

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

function randomSequences(random: Random, lengths: readonly number[]): Sequence[] {
  const pages = random.permutation(N_PAGES);
  const tokens = (n: number) =>
    Array.from({ length: n }, () => random.int(0, TinyDecoder.vocabulary - 1));
  return lengths.map((length) => ({
    prompt: tokens(length),
    decoded: tokens(3),
    pages: pages.splice(0, Math.ceil((length + 3) / PAGE_TOKENS)),
  }));
}

/** Few sequences and many sequences use different product kernels. */
async function check(maxSequences: number): Promise<void> {
  const random = new Random(`invariance of ${maxSequences}`);
  using device = openDevice({ name: kind, kind, selector: "" });
  const model = await TinyDecoder.load(device, randomTinyWeights(random), {
    maxTokens: 70,
    maxSequences,
    maxPages: 8,
    nPages: N_PAGES,
    pageTokens: PAGE_TOKENS,
  });
  const sequences = randomSequences(random, [45, 17, 20]);
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
  await compare("decoded beside a prompt", [
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

await check(5);
await check(12);

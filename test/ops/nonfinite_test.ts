/** NaN and infinities, as broken weights produce them, affect only their own sequence. */
import { assert } from "@std/assert";
import { TENSOR_TYPES } from "../../src/formats/tensor_info.ts";
import { deviceTest, isEmulated, isGpu } from "../support/devices.ts";
import { assertSameBits, type Matrix, rowsOf } from "../support/matrix.ts";
import type { Random } from "../support/random.ts";
import { drawn } from "../support/thorough.ts";
import { randomTinyWeights, TinyDecoder, type TinyWeights } from "../support/tiny_decoder.ts";

const limits = { maxTokens: 60, maxSequences: 3, maxPages: 3, nPages: 9, pageTokens: 8 };
const length = 20;

/** The token that is embedded as NaN or infinities. */
const bad = 0;

/** Weights whose embedding of the bad token is multiplied by the float16 of these bits. */
function poisonedWeights(random: Random, bits: number): TinyWeights {
  const weights = randomTinyWeights(random);
  const { type, bytes } = weights.embedding;
  new DataView(bytes.buffer).setUint16(TENSOR_TYPES[type].blockBytes - 2, bits, true);
  return weights;
}

const notFinite = [["NaN", 0x7e00], ["infinity", 0x7c00]] as const;

for (const [name, bits] of notFinite) {
  deviceTest(`${name} in one sequence of a batch`, async (device, random) => {
    const weights = poisonedWeights(random, bits);
    const sequences = [0, 1, 2].map(() =>
      Array.from({ length }, () => random.int(bad + 1, TinyDecoder.vocabulary - 1))
    );
    const run = (model: TinyDecoder, batch: readonly (readonly number[])[]) =>
      model.run({
        tokens: batch.flat(),
        positions: batch.flatMap((tokens) => tokens.map((_, position) => position)),
        sequences: batch.flatMap((tokens, sequence) => tokens.map(() => sequence)),
        pageTables: [[0, 3, 6], [7, 1, 4], [5, 8, 2]],
      });
    const decode = async (model: TinyDecoder, pages: readonly number[]) => {
      const logits: Matrix[] = [];
      for (const [position, token] of sequences[1]!.entries()) {
        const inputs = { tokens: [token], positions: [position], sequences: [0] };
        logits.push(await model.run({ ...inputs, pageTables: [[...pages]] }));
      }
      return logits;
    };
    const clean = await run(await TinyDecoder.load(device, weights, limits), sequences);
    const decoded = await decode(await TinyDecoder.load(device, weights, limits), [0, 3, 6]);
    assert(clean.data.every(Number.isFinite), "without the bad token, all is finite");

    const model = await TinyDecoder.load(device, weights, limits);
    const broken = sequences[1]!.with(7, bad);
    const mixed = await run(model, [sequences[0]!, broken, sequences[2]!]);
    assertSameBits(rowsOf(mixed, 0, length), rowsOf(clean, 0, length), "the sequence before");
    assertSameBits(rowsOf(mixed, 2 * length, 60), rowsOf(clean, 2 * length, 60), "and after");
    // The logits of the bad token and of the tokens that attend to it.
    assert(rowsOf(mixed, length + 7, 2 * length).data.every(Number.isNaN), "the bad rows");

    // Pages of a finished bad sequence do not affect the next one, even where it has not written to
    // them yet.
    for (const [position, logits] of (await decode(model, [7, 1, 4])).entries()) {
      assertSameBits(logits, decoded[position]!, `position ${position} in used pages`);
    }
  });
}

for (const [name, bits] of notFinite) {
  for (const kvTypes of [["F16", "F32"], ["Q8_0", "Q8_0"]] as const) {
    deviceTest(`${name} in a prompt, caches ${kvTypes}`, async (device, random) => {
      const weights = poisonedWeights(random, bits);
      const model = await TinyDecoder.load(device, weights, limits, { kvTypes });
      const tokens = Array.from({ length }, () => random.int(bad + 1, TinyDecoder.vocabulary - 1));
      const run = (prompt: readonly number[], pages: readonly number[]) =>
        model.runChunks(prompt, length, pages);
      const clean = await run(tokens, [0, 3, 6]);
      const positions = [0, 1, random.int(2, length - 2), length - 1];
      for (const position of drawn(`${name} ${kvTypes}`, positions, isEmulated ? 1 / 4 : 1)) {
        const broken = await run(tokens.with(position, bad), [7, 1, 4]);
        const before = `the positions before ${position}`;
        // Tensor cores multiply later positions of a tile by 0, and NaN times 0 is NaN.
        if (!isGpu(device)) {
          assertSameBits(rowsOf(broken, 0, position), rowsOf(clean, 0, position), before);
        }
        assert(rowsOf(broken, position, length).data.every(Number.isNaN), "those that see it");
      }
    });
  }
}

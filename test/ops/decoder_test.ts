/** A whole decoder, with all operations, on every device. */
import {
  devices,
  deviceTest,
  isEmulated,
  isGpu,
  openDevice,
  referenceDevice,
} from "../support/devices.ts";
import { assertClose, assertSameBits, type Matrix } from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { randomTinyWeights, TinyDecoder, type TinyOptions } from "../support/tiny_decoder.ts";

const limits = { maxTokens: 64, maxSequences: 1, maxPages: 4, nPages: 4, pageTokens: 16 };

// The weights and tokens do not depend on the seed of the run: if two experts are almost equally
// probable, devices may choose differently, and results differ widely. For the same reason there
// are no quantised weights, for which devices may round activations.
const random = new Random("decoder", 1);
const weights = randomTinyWeights(random, "F32");
const tokens = Array.from({ length: 64 }, () => random.int(0, TinyDecoder.vocabulary - 1));

/**
 * For products with factors in float16, which CUDA computes in runs of any length, other GPUs in
 * runs of more than 16 tokens: scores of these random weights are large, so an error of 2^-11 of a
 * score of 20 changes a probability by 1%.
 */
const MATRIX_UNITS = { absolute: 3e-2, relative: 3e-2 };
/** A cache of F16 may round a number in either direction. */
const ROUNDED_CACHE = { absolute: 1e-4, relative: 3e-4 };
/** With caches of F16, GPUs round queries and probabilities to float16 in runs of any length. */
const GPU_OPTIONS = { kvTypes: ["F32", "F32"] } as const;

async function referenceLogits(options: TinyOptions): Promise<Matrix> {
  using device = openDevice(referenceDevice);
  const decoder = await TinyDecoder.load(device, weights, limits, options);
  return await decoder.runChunks(tokens, 64, [0, 1, 2, 3]);
}

for (const device of devices.filter(({ kind }) => kind !== "reference")) {
  Deno.test(`a whole decoder gives the result of the reference (${device.name})`, async () => {
    using backend = openDevice(device);
    // Products with activations rounded to BF16 have a test of their own.
    if (device.kind === "cpu") backend.setProducts("f32");
    const options = isGpu(device) ? GPU_OPTIONS : {};
    const decoder = await TinyDecoder.load(backend, weights, limits, options);
    const expected = await referenceLogits(options);
    for (const chunk of isEmulated ? [64, 13] : [64, 1, 13]) {
      const logits = await decoder.runChunks(tokens, chunk, [2, 0, 3, 1]);
      const rounds = device.kind === "cuda" || isGpu(device) && chunk > 16;
      const tolerance = rounds ? MATRIX_UNITS : ROUNDED_CACHE;
      assertClose(logits, expected, tolerance, `chunks of ${chunk}`);
    }
  });
}

deviceTest("values that share memory do not disturb each other", async (device) => {
  const pages = [0, 1, 2, 3];
  const shared = await TinyDecoder.load(device, weights, limits);
  const separate = await TinyDecoder.load(device, weights, limits, { keepAll: true });
  const expected = await separate.runChunks(tokens, 64, pages);
  const actual = await shared.runChunks(tokens, 64, pages);
  // CUDA normalizes in the products that read a norm, unless it is kept, and rounds in other
  // places.
  if (device.kind === "cuda") assertClose(actual, expected, MATRIX_UNITS, "logits");
  else assertSameBits(actual, expected, "logits");
});

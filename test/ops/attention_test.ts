/** Attention over paged caches: prefill, decoding and mixtures of them. */
import type { AttentionMask, KvShape } from "../../src/backend.ts";
import {
  devices,
  deviceTest,
  isEmulated,
  multipliesBf16,
  type TestDevice,
} from "../support/devices.ts";
import {
  assertSameBits,
  type Matrix,
  matrixOfRows,
  rowOf,
  stack,
  type Tolerance,
} from "../support/matrix.ts";
import { opTest } from "../support/operations.ts";
import { drawn } from "../support/thorough.ts";
import {
  type AttentionCase,
  attentionCase,
  firstRows,
  freeOutlines,
  latentOutlines,
  maskedOutlines,
  type Outline,
  outlines,
  randomOutline,
  runAttention,
} from "./attention_cases.ts";
import { attend, normalizeAndRotate, type Preparation } from "./plain_attention.ts";

/** Rounds the elements of one head as a cache does. */
type Rounding = (head: Float64Array) => Float64Array;

/** Whole levels of one scale for 32 elements; the last block of a head may be shorter. */
function roundBlocks(
  head: Float64Array,
  [lowest, highest]: readonly [number, number],
  scaleOf: (high: number, low: number) => number,
): Float64Array {
  const rounded = new Float64Array(head.length);
  for (let begin = 0; begin < head.length; begin += 32) {
    const block = head.slice(begin, begin + 32).map(Math.fround);
    const scale = Math.f16round(Math.fround(scaleOf(Math.max(...block), Math.min(...block))));
    const inverse = scale === 0 ? 0 : Math.fround(1 / scale);
    rounded.set(
      block.map((value) => {
        const level = roundToEven(Math.fround(value * inverse));
        return Math.max(lowest, Math.min(highest, level)) * scale;
      }),
      begin,
    );
  }
  return rounded;
}

function roundQ8(head: Float64Array): Float64Array {
  return roundBlocks(head, [-127, 127], (high, low) => Math.max(high, -low) / 127);
}

/** The number of the largest magnitude becomes level -8. */
function roundQ4(head: Float64Array): Float64Array {
  return roundBlocks(head, [-8, 7], (high, low) => (high >= -low ? high : low) / -8);
}

/** The nearest bfloat16, ties to even. */
function roundBf16(value: number): number {
  const bits = new Uint32Array(Float32Array.of(value).buffer);
  bits[0] = (bits[0]! + 0x7fff + (bits[0]! >>> 16 & 1)) & 0xffff0000;
  return new Float32Array(bits.buffer)[0]!;
}

function roundToEven(value: number): number {
  const below = Math.floor(value);
  const rest = value - below;
  return rest === 0.5 ? 2 * Math.round(value / 2) : rest < 0.5 ? below : below + 1;
}

const roundings: Readonly<Record<KvShape["type"], Rounding>> = {
  F32: (head) => head.map(Math.fround),
  F16: (head) => head.map((value) => Math.f16round(Math.fround(value))),
  BF16: (head) => head.map(roundBf16),
  Q8_0: roundQ8,
  Q4_0: roundQ4,
};

/** The parts of a row of `qkv`: one array for each head. */
function heads(values: Float64Array, headDim: number, round: Rounding): Float64Array[] {
  return Array.from(
    { length: values.length / headDim },
    (_, head) => round(values.slice(head * headDim, (head + 1) * headDim)),
  );
}

/** The positions that a token sees. */
function visible(
  { window = Infinity, chunked, causal, keyLengths }: AttentionCase,
  sequence: number,
  position: number,
) {
  const first = chunked ? position - position % window : Math.max(0, position - window + 1);
  const end = causal ? position + 1 : Math.min(keyLengths[sequence]!, position + window);
  return { first, end: Math.max(first, end) };
}

/** The number that a mask adds to a score. */
function maskBias(
  mask: AttentionMask | undefined,
  token: number,
  head: number,
  position: number,
): number {
  if (mask === undefined) return 0;
  const { nHeads, nPositions, values } = mask;
  const row = token * nHeads + (nHeads === 1 ? 0 : head);
  if (values instanceof Float32Array) return values[row * nPositions + position]!;
  const word = values[row * Math.ceil(nPositions / 32) + (position >> 5)]!;
  return (word >>> (position & 31) & 1) !== 0 ? 0 : -Infinity;
}

function plain(inputs: AttentionCase): Matrix {
  const { shape, nHeads, invFreq, ropeLayout, kNorm, sinks } = inputs;
  const { kHeadDim, vHeadDim, nKvHeads } = shape;
  const qCols = nHeads * kHeadDim, kCols = nKvHeads * kHeadDim;
  const store = roundings[shape.type];
  const first = firstRows(inputs);
  const prepared = inputs.lengths.map((length, sequence) =>
    Array.from({ length }, (_, position) => {
      const row = rowOf(inputs.qkv, first[sequence]! + position);
      const options: Omit<Preparation, "norm"> = {
        headDim: kHeadDim,
        position,
        eps: 1e-5,
        weightOffset: inputs.weightOffset,
        invFreq,
        ropeLayout,
        rotatesEnd: shape.valuesInKeys,
      };
      const q = normalizeAndRotate(row.subarray(0, qCols), { ...options, norm: undefined });
      const k = normalizeAndRotate(row.subarray(qCols, qCols + kCols), { ...options, norm: kNorm });
      const keys = heads(k, kHeadDim, store);
      return {
        q: heads(q, kHeadDim, (head) => head),
        k: keys,
        v: shape.valuesInKeys
          ? keys.map((key) => key.subarray(0, vHeadDim))
          : heads(Float64Array.from(row.subarray(qCols + kCols)), vHeadDim, store),
      };
    })
  );
  const now = inputs.runs.at(-1)!;
  return matrixOfRows(now.length, nHeads * vHeadDim, (row) => {
    const { sequence, position } = now[row]!;
    const tokens = prepared[sequence]!;
    const { first, end } = visible(inputs, sequence, position);
    const seen = tokens.slice(first, end);
    return Array.from({ length: nHeads }, (_, head) => {
      const kvHead = Math.floor(head * nKvHeads / nHeads);
      const keys = seen.map(({ k }) => k[kvHead]!), values = seen.map(({ v }) => v[kvHead]!);
      const biases = seen.map((_, i) => maskBias(inputs.attentionMask, row, head, first + i));
      const options = { ...inputs, sink: sinks?.[head], biases };
      return Array.from(attend(tokens[position]!.q[head]!, keys, values, vHeadDim, options));
    }).flat();
  });
}

function attentionTest(
  name: string,
  options: {
    readonly type: KvShape["type"];
    readonly prepared: boolean;
    /** Runs one of this many outlines. @default 1 */
    readonly every?: number;
    /** @default the common ones; on an emulated GPU a half of them */
    readonly outlines?: readonly Outline[];
    /** @default all devices */
    readonly only?: readonly TestDevice[];
  },
  tolerances: {
    readonly tolerance: Tolerance;
    readonly gpuTolerance?: Tolerance;
    readonly referenceTolerance?: Tolerance;
  },
): void {
  opTest<AttentionCase>(name, {
    cases: (random) =>
      (options.outlines ?? drawn(name, outlines, isEmulated ? 1 / 2 : 1))
        .filter((_, i) => i % (options.every ?? 1) === 0)
        .map((outline) => [JSON.stringify(outline), attentionCase(random, outline, options)]),
    run: runAttention,
    plain,
    only: options.only,
    ...tolerances,
  });
}

// A score of 256 products has an error of some 1e-6, and so has the weight of its value,
// relatively.
const tolerance: Tolerance = { absolute: 4e-6, relative: 2e-5 };

attentionTest("attention", { type: "F32", prepared: true }, {
  tolerance,
  referenceTolerance: { absolute: 1e-6, relative: 2e-6 },
});

// Tensor cores multiply queries, probabilities and values rounded to 16 bits.
const gpuTolerance: Tolerance = { absolute: 2e-3, relative: 4e-3 };
// A bfloat16 has three bits fewer than a float16.
const gpuToleranceBf16: Tolerance = { absolute: 1.6e-2, relative: 3.2e-2 };

attentionTest("attention over an F16 cache", { type: "F16", prepared: false }, {
  tolerance,
  gpuTolerance,
});

opTest<AttentionCase>("attention of random shapes", {
  cases: (random) =>
    Array.from({ length: isEmulated ? 3 : 30 }, () => {
      const outline = randomOutline(random);
      return [
        JSON.stringify(outline),
        attentionCase(random, outline, { type: "F16", prepared: false }),
      ] as const;
    }),
  run: runAttention,
  plain,
  tolerance,
  gpuTolerance,
});

const inPairs = devices.filter(multipliesBf16);
const inFloats = devices.filter((device) => !multipliesBf16(device));

attentionTest("attention over a BF16 cache", {
  type: "BF16",
  prepared: false,
  every: 3,
  only: inFloats,
}, {
  tolerance,
  gpuTolerance: gpuToleranceBf16,
});

// Queries and the weights of the softmax are rounded to BF16. The second positions of some pairs
// are hidden, and hold NaN.
for (
  const [name, cases] of Object.entries({
    causal: outlines,
    free: freeOutlines,
    masked: maskedOutlines,
  })
) {
  attentionTest(`attention in pairs of BF16, ${name}`, {
    type: "BF16",
    prepared: false,
    outlines: cases,
    only: inPairs,
  }, { tolerance: gpuToleranceBf16, referenceTolerance: { absolute: 1e-6, relative: 2e-6 } });
}

for (const type of ["Q8_0", "Q4_0"] as const) {
  attentionTest(`attention over a ${type} cache`, {
    type,
    prepared: false,
    every: type === "Q8_0" ? 1 : 2,
  }, {
    tolerance,
    gpuTolerance,
    referenceTolerance: { absolute: 1e-6, relative: 2e-6 },
  });
}

// A rotated key may round to a neighbouring float16: this changes a score by up to 2e-3, and the
// result by half of that. On GPUs this error adds to the others.
attentionTest("attention over an F16 cache of rotated keys", { type: "F16", prepared: true }, {
  tolerance: { absolute: 2e-3, relative: 4e-3 },
  referenceTolerance: { absolute: 2e-3, relative: 4e-3 },
  gpuTolerance: { absolute: 4e-3, relative: 8e-3 },
});

for (const type of ["F32", "F16", "Q8_0"] as const) {
  const options = { type, prepared: false };
  const tolerances = {
    tolerance,
    referenceTolerance: { absolute: 1e-6, relative: 2e-6 },
    ...(type === "F32" ? {} : { gpuTolerance }),
  };
  attentionTest(`attention without causality over ${type}`, {
    ...options,
    outlines: freeOutlines,
  }, tolerances);
  attentionTest(`attention with masks over ${type}`, {
    ...options,
    outlines: maskedOutlines,
  }, tolerances);
}

for (const type of ["F32", "F16", "BF16", "Q8_0", "Q4_0"] as const) {
  const rounds = type !== "F32";
  attentionTest(`attention over values in ${type} keys`, {
    type,
    prepared: !rounds,
    outlines: latentOutlines,
  }, {
    tolerance,
    referenceTolerance: { absolute: 1e-6, relative: 2e-6 },
    ...(rounds ? { gpuTolerance: type === "BF16" ? gpuToleranceBf16 : gpuTolerance } : {}),
  });
}

// Positions around 1024, from where on an emulated GPU takes longer splits of the keys. Each
// token's window begins at another position, within a split.
for (
  const [type, window, only] of [
    ["F16", undefined, devices],
    ["F16", 700, devices],
    ["BF16", 701, inPairs],
  ] as const
) {
  deviceTest(
    `attention of a token does not depend on the tokens of its run, ${type}, window ${
      window ?? "none"
    }`,
    async (device, random) => {
      const outline: Outline = {
        sequences: [[1022, 4]],
        headDim: 64,
        nKvHeads: 1,
        group: 2,
        pageTokens: 16,
        ...(window === undefined ? {} : { window }),
      };
      const inputs = attentionCase(random, outline, { type, prepared: false });
      const history = Array.from({ length: 1022 }, (_, position) => ({ sequence: 0, position }));
      const now = Array.from({ length: 4 }, (_, i) => ({ sequence: 0, position: 1022 + i }));
      const together = await runAttention(device, { ...inputs, runs: [history, now] });
      const alone: Matrix[] = [];
      for (const [i, token] of now.entries()) {
        const runs = [[...history, ...now.slice(0, i)], [token]];
        alone.push(await runAttention(device, { ...inputs, runs }));
      }
      assertSameBits(stack(alone), together, "four tokens");
    },
    only,
  );
}

/** Random inputs of attention. */
import type {
  AttentionMask,
  Backend,
  KvShape,
  RopeLayout,
  StepInputs,
  Value,
} from "../../src/backend.ts";
import { type Matrix, randomMatrix } from "../support/matrix.ts";
import type { Random } from "../support/random.ts";
import { runStep, type StepGraph } from "../support/step_graph.ts";
import { f32Vector } from "../support/weights.ts";

/** A token of a batch. */
export interface Token {
  readonly sequence: number;
  readonly position: number;
}

export interface AttentionCase {
  readonly shape: KvShape;
  readonly nHeads: number;
  readonly scale: number;
  readonly window: number | undefined;
  readonly chunked: boolean;
  readonly softcap: number | undefined;
  readonly sinks: Float32Array | undefined;
  /** Preparation of keys before they are stored; queries are rotated alike. */
  readonly kNorm: Float32Array | undefined;
  readonly weightOffset: number;
  readonly invFreq: Float32Array | undefined;
  readonly ropeLayout: RopeLayout;
  /** One row for every position of every sequence, sequence after sequence. */
  readonly qkv: Matrix;
  readonly lengths: readonly number[];
  readonly pageTables: readonly (readonly number[])[];
  /** False if tokens see `keyLengths` positions of their sequence. */
  readonly causal: boolean;
  readonly keyLengths: readonly number[];
  /** Of the tokens of the last run. */
  readonly attentionMask: AttentionMask | undefined;
  /** True if the step takes masks, as it must for one. */
  readonly masked: boolean;
  /** The tokens of earlier runs, then those of the run whose results are compared. */
  readonly runs: readonly (readonly Token[])[];
}

/** The fixed properties of a case; all others are random. */
export interface Outline {
  /** For each sequence: tokens already in the cache, and tokens of the run. */
  readonly sequences: readonly (readonly [history: number, now: number])[];
  readonly headDim: number;
  readonly vHeadDim?: number;
  /** True if values are the first elements of the keys. */
  readonly valuesInKeys?: boolean;
  readonly nKvHeads: number;
  readonly group: number;
  readonly pageTokens: number;
  readonly window?: number;
  /** True if the window divides positions into chunks. */
  readonly chunked?: true;
  readonly softcap?: number;
  readonly sinks?: boolean;
  readonly causal?: false;
  /** The positions that each sequence shows without causality. @default all */
  readonly keys?: readonly number[];
  /** True if the tokens of a run are in a random order. @default a random choice */
  readonly shuffled?: boolean;
  /** A mask that hides half of the positions, and all of them of some tokens. */
  readonly mask?: "bits" | "numbers" | "bits of heads" | "numbers of heads";
}

export const outlines: readonly Outline[] = [
  { sequences: [[0, 1]], headDim: 8, nKvHeads: 1, group: 1, pageTokens: 16 },
  { sequences: [[0, 7]], headDim: 16, nKvHeads: 2, group: 1, pageTokens: 1 },
  { sequences: [[0, 70]], headDim: 64, nKvHeads: 2, group: 2, pageTokens: 16 },
  { sequences: [[0, 33], [0, 1], [0, 17]], headDim: 32, nKvHeads: 1, group: 3, pageTokens: 7 },
  { sequences: [[40, 1]], headDim: 128, nKvHeads: 2, group: 4, pageTokens: 32 },
  { sequences: [[700, 1]], headDim: 64, nKvHeads: 1, group: 8, pageTokens: 64 },
  {
    sequences: [[256, 1], [255, 1], [257, 1], [511, 1]],
    headDim: 16,
    nKvHeads: 1,
    group: 7,
    pageTokens: 64,
  },
  {
    sequences: [[5, 1], [100, 1], [1, 1], [63, 1], [300, 1]],
    headDim: 80,
    nKvHeads: 1,
    group: 5,
    pageTokens: 16,
  },
  { sequences: [[250, 30], [9, 1], [0, 20]], headDim: 24, nKvHeads: 2, group: 2, pageTokens: 48 },
  // Neighbours that share a task on either side of the end of a split.
  {
    sequences: [[255, 2]],
    headDim: 16,
    nKvHeads: 1,
    group: 2,
    pageTokens: 64,
    window: 3,
    shuffled: false,
  },
  { sequences: [[520, 9]], headDim: 32, nKvHeads: 1, group: 6, pageTokens: 100 },
  { sequences: [[20, 5], [3, 40]], headDim: 256, nKvHeads: 1, group: 2, pageTokens: 16 },
  { sequences: [[70, 1], [9, 1], [5, 20]], headDim: 192, nKvHeads: 1, group: 3, pageTokens: 16 },
  { sequences: [[30, 12]], headDim: 48, vHeadDim: 24, nKvHeads: 2, group: 2, pageTokens: 8 },
  {
    sequences: [[11, 1], [40, 6]],
    headDim: 24,
    vHeadDim: 40,
    nKvHeads: 3,
    group: 1,
    pageTokens: 32,
  },
  { sequences: [[90, 30]], headDim: 64, nKvHeads: 1, group: 4, pageTokens: 16, window: 1 },
  {
    sequences: [[0, 70], [300, 1]],
    headDim: 32,
    nKvHeads: 2,
    group: 1,
    pageTokens: 16,
    window: 20,
  },
  {
    sequences: [[0, 70], [31, 2], [95, 5]],
    headDim: 64,
    nKvHeads: 2,
    group: 2,
    pageTokens: 16,
    window: 32,
    chunked: true,
    shuffled: false, // so that libflash_attn would take the prompt
  },
  {
    sequences: [[1500, 1], [1049, 3], [299, 1]],
    headDim: 128,
    nKvHeads: 1,
    group: 4,
    pageTokens: 64,
    window: 300,
    chunked: true,
  },
  { sequences: [[600, 3]], headDim: 16, nKvHeads: 1, group: 2, pageTokens: 256, window: 300 },
  { sequences: [[40, 20]], headDim: 64, nKvHeads: 1, group: 2, pageTokens: 16, window: 1000 },
  { sequences: [[40, 20]], headDim: 64, nKvHeads: 2, group: 2, pageTokens: 16, softcap: 0.5 },
  { sequences: [[1300, 2]], headDim: 16, nKvHeads: 1, group: 2, pageTokens: 16 },
  {
    sequences: [[300, 2]],
    headDim: 40,
    nKvHeads: 1,
    group: 4,
    pageTokens: 16,
    softcap: 50,
    window: 64,
  },
  // With a small soft-cap the positions outside the window would keep much of their weight, and no
  // window begins at a multiple of a vector's lanes.
  {
    sequences: [[300, 1], [37, 9]],
    headDim: 32,
    nKvHeads: 1,
    group: 2,
    pageTokens: 16,
    softcap: 1.5,
    window: 21,
  },
  {
    sequences: [[40, 20], [0, 3]],
    headDim: 64,
    nKvHeads: 2,
    group: 4,
    pageTokens: 16,
    sinks: true,
  },
  {
    sequences: [[600, 1]],
    headDim: 64,
    nKvHeads: 1,
    group: 8,
    pageTokens: 16,
    sinks: true,
    window: 128,
  },
];

/** Heads whose values are in their keys, as latent attention has them. */
export const latentOutlines: readonly Outline[] = ([
  { sequences: [[0, 1]], headDim: 24, vHeadDim: 16, nKvHeads: 1, group: 1, pageTokens: 16 },
  { sequences: [[40, 9]], headDim: 40, vHeadDim: 32, nKvHeads: 1, group: 4, pageTokens: 16 },
  { sequences: [[0, 7], [30, 1]], headDim: 21, vHeadDim: 5, nKvHeads: 2, group: 3, pageTokens: 7 },
  { sequences: [[300, 3]], headDim: 64, vHeadDim: 48, nKvHeads: 1, group: 16, pageTokens: 64 },
  // Several blocks of heads; several splits of two such blocks.
  { sequences: [[40, 1]], headDim: 36, vHeadDim: 28, nKvHeads: 1, group: 100, pageTokens: 100 },
  { sequences: [[300, 1]], headDim: 36, vHeadDim: 28, nKvHeads: 1, group: 40, pageTokens: 100 },
  {
    sequences: [[70, 1], [9, 1], [5, 20]],
    headDim: 192,
    vHeadDim: 128,
    nKvHeads: 1,
    group: 8,
    pageTokens: 16,
  },
  { sequences: [[33, 2]], headDim: 576, vHeadDim: 512, nKvHeads: 1, group: 16, pageTokens: 64 },
  // In several splits, and a prompt, by the kernels of a GPU for these widths.
  {
    sequences: [[300, 1], [3, 17]],
    headDim: 288,
    vHeadDim: 256,
    nKvHeads: 1,
    group: 3,
    pageTokens: 16,
    sinks: true,
  },
  {
    sequences: [[60, 5]],
    headDim: 48,
    vHeadDim: 32,
    nKvHeads: 1,
    group: 3,
    pageTokens: 16,
    window: 20,
    softcap: 20,
    sinks: true,
  },
] satisfies Outline[]).map((outline) => ({ ...outline, valuesInKeys: true }));

/** Attention that sees positions after its own, and attention with masks. */
export const freeOutlines: readonly Outline[] = ([
  { sequences: [[0, 70], [0, 5]], headDim: 64, nKvHeads: 2, group: 2, pageTokens: 16 },
  // Fewer keys than positions, as in attention to another text; none at all.
  {
    sequences: [[60, 3], [9, 20], [30, 1], [5, 2]],
    keys: [40, 29, 31, 0],
    headDim: 64,
    nKvHeads: 1,
    group: 3,
    pageTokens: 7,
    sinks: true,
  },
  { sequences: [[0, 90], [40, 9]], headDim: 32, nKvHeads: 1, group: 2, pageTokens: 16, window: 21 },
  {
    sequences: [[1100, 4], [3, 25]],
    headDim: 128,
    nKvHeads: 1,
    group: 2,
    pageTokens: 16,
    window: 300,
    softcap: 3,
  },
  // No tile of matrix units.
  {
    sequences: [[30, 20], [0, 3]],
    keys: [50, 1],
    headDim: 24,
    nKvHeads: 2,
    group: 2,
    pageTokens: 8,
  },
  // Runs of a token or two that see later positions, in more splits than they have before them.
  {
    sequences: [[0, 270], [3, 5]],
    shuffled: true,
    headDim: 64,
    nKvHeads: 1,
    group: 1,
    pageTokens: 50,
  },
] satisfies Outline[]).map((outline) => ({ ...outline, causal: false }));

export const maskedOutlines: readonly Outline[] = [
  {
    sequences: [[290, 7], [40, 1]],
    headDim: 64,
    nKvHeads: 2,
    group: 2,
    pageTokens: 16,
    mask: "bits",
  },
  {
    sequences: [[50, 30], [300, 2], [0, 3]],
    headDim: 64,
    nKvHeads: 2,
    group: 2,
    pageTokens: 7,
    mask: "numbers of heads",
    sinks: true,
  },
  {
    sequences: [[1200, 3], [9, 1]],
    headDim: 128,
    nKvHeads: 1,
    group: 2,
    pageTokens: 64,
    mask: "numbers",
    window: 100,
    softcap: 5,
  },
  {
    sequences: [[0, 40], [33, 9]],
    headDim: 256,
    nKvHeads: 1,
    group: 2,
    pageTokens: 16,
    mask: "bits of heads",
    causal: false,
    window: 30,
  },
  // Prompts and decoded tokens of one run; libflash_attn takes the prompts, or all of them.
  {
    sequences: [[50, 30], [300, 2], [0, 20]],
    headDim: 96,
    nKvHeads: 2,
    group: 2,
    pageTokens: 16,
    mask: "numbers of heads",
    sinks: true,
    softcap: 9,
    shuffled: false,
  },
  {
    sequences: [[0, 40], [33, 20], [70, 1]],
    keys: [40, 29, 71],
    headDim: 192,
    nKvHeads: 1,
    group: 3,
    pageTokens: 16,
    mask: "bits",
    causal: false,
    shuffled: false,
  },
  {
    sequences: [[20, 5], [0, 20]],
    keys: [9, 20],
    headDim: 40,
    nKvHeads: 2,
    group: 1,
    pageTokens: 16,
    mask: "numbers",
    causal: false,
  },
];

/** An outline of any shape and options, with sizes at and next to the edges of blocks. */
export function randomOutline(random: Random): Outline {
  const near = (...edges: readonly number[]) =>
    Math.max(1, random.pick(edges) + random.pick([-1, 0, 0, 1]));
  const sequences = Array.from({ length: random.int(1, 4) }, () =>
    [
      random.chance(0.3) ? 0 : near(16, 32, 64, 128, 256),
      random.chance(0.5) ? random.int(1, 3) : near(8, 16, 32, 64),
    ] as const);
  const headDim = random.pick([8, 16, 24, 32, 48, 64, 80, 96, 128, 192, 256]);
  const keys = sequences.map(([history, now]) => random.int(0, history + now));
  const mask = random.pick(["bits", "numbers", "bits of heads", "numbers of heads"] as const);
  const isCausal = random.chance(0.8), hasWindow = random.chance(0.5);
  return {
    sequences,
    headDim,
    vHeadDim: random.chance(0.8) ? headDim : random.pick([16, 40, 64]),
    nKvHeads: random.int(1, 3),
    group: random.pick([1, 1, 2, 3, 4, 7, 8]),
    pageTokens: random.pick([1, 7, 16, 32, 64, 100, 256]),
    ...(hasWindow ? { window: near(1, 16, 32, 64, 256) } : {}),
    ...(hasWindow && isCausal && random.chance(0.3) ? { chunked: true as const } : {}),
    ...(isCausal ? {} : { causal: false as const }),
    ...(isCausal || random.chance(0.5) ? {} : { keys }),
    ...(random.chance(0.5) ? {} : { softcap: random.pick([1.5, 30]) }),
    ...(random.chance(0.3) ? { sinks: true } : {}),
    ...(random.chance(0.3) ? { mask } : {}),
  };
}

/** A mask of the outline's kind. */
function randomMask(
  random: Random,
  kind: NonNullable<Outline["mask"]>,
  nTokens: number,
  nHeads: number,
  nPositions: number,
): AttentionMask {
  const ofHeads = kind.endsWith("heads");
  const rows = nTokens * (ofHeads ? nHeads : 1);
  const hidden = Array.from({ length: rows }, () => random.chance(0.1));
  const isBits = kind.startsWith("bits");
  const stride = isBits ? Math.ceil(nPositions / 32) : nPositions;
  const values = isBits
    ? Uint32Array.from({ length: rows * stride }, () => random.int(0, 2 ** 32 - 1))
    : random.normals(rows * stride, 2).map((bias) => random.chance(0.5) ? -Infinity : bias);
  hidden.forEach((isHidden, row) => {
    if (isHidden) values.fill(isBits ? 0 : -Infinity, row * stride, (row + 1) * stride);
  });
  return { nHeads: ofHeads ? nHeads : 1, nPositions, values };
}

/** Splits tokens into runs; their order within a run is random. */
function shuffledRuns(random: Random, runs: readonly (readonly Token[])[]): Token[][] {
  return runs.map((run) => random.permutation(run.length).map((i) => run[i]!));
}

/** A case of an outline; with `prepared`, keys are rotated and possibly normalised. */
export function attentionCase(
  random: Random,
  outline: Outline,
  options: { readonly type: KvShape["type"]; readonly prepared: boolean },
): AttentionCase {
  const { sequences, headDim, vHeadDim = headDim, nKvHeads, group, pageTokens } = outline;
  const { valuesInKeys = false } = outline;
  const nHeads = nKvHeads * group;
  const lengths = sequences.map(([history, now]) => history + now);
  const pageCounts = lengths.map((length) => Math.ceil(length / pageTokens));
  const nPages = pageCounts.reduce((sum, count) => sum + count, 0) + 2;
  const pages = random.permutation(nPages);
  const history: Token[] = [], now: Token[] = [];
  sequences.forEach(([before, count], sequence) => {
    for (let position = 0; position < before + count; position++) {
      (position < before ? history : now).push({ sequence, position });
    }
  });
  const ordered = history.length > 0 ? [history, now] : [now];
  const cols = headDim * (nHeads + nKvHeads) + (valuesInKeys ? 0 : vHeadDim * nKvHeads);
  const rotated = valuesInKeys ? headDim - vHeadDim : headDim;
  return {
    shape: {
      type: options.type,
      nPages,
      pageTokens,
      nKvHeads,
      kHeadDim: headDim,
      vHeadDim,
      valuesInKeys,
    },
    nHeads,
    // Large enough for scores of several units, so that the softmax is not uniform.
    scale: random.pick([1, 3]) / Math.sqrt(headDim),
    window: outline.window,
    chunked: outline.chunked ?? false,
    softcap: outline.softcap,
    sinks: outline.sinks ? random.normals(nHeads, 3) : undefined,
    kNorm: options.prepared
      ? random.pick([undefined, random.normals(headDim), random.normals(headDim * nKvHeads)])
      : undefined,
    weightOffset: random.pick([0, 1]),
    invFreq: options.prepared
      ? Float32Array.from(
        { length: rotated >> random.int(1, 2) },
        (_, i) => 1000 ** (-2 * i / headDim),
      )
      : undefined,
    ropeLayout: random.pick(["half", "interleaved"]),
    qkv: randomMatrix(random, lengths.reduce((sum, length) => sum + length, 0), cols),
    lengths,
    pageTables: pageCounts.map((count) => pages.splice(0, count)),
    causal: outline.causal ?? true,
    keyLengths: outline.keys ?? lengths,
    attentionMask: outline.mask &&
      randomMask(random, outline.mask, now.length, nHeads, Math.max(...lengths)),
    masked: outline.mask !== undefined || random.chance(0.3),
    runs: outline.shuffled ?? random.chance(0.5) ? shuffledRuns(random, ordered) : ordered,
  };
}

/** The first row of each sequence in `qkv`. */
export function firstRows({ lengths }: AttentionCase): number[] {
  let row = 0;
  return lengths.map((length) => (row += length) - length);
}

function inputsOf(inputs: AttentionCase, tokens: readonly Token[]): StepInputs {
  const first = firstRows(inputs);
  return {
    tokens: tokens.map(({ sequence, position }) => first[sequence]! + position),
    positions: tokens.map(({ position }) => position),
    sequences: tokens.map(({ sequence }) => sequence),
    pageTables: inputs.pageTables,
    keyLengths: inputs.keyLengths,
    outputs: [],
  };
}

/**
 * Returns the results of the last run of a case.
 *
 * @param isSpoiled fill the cache with NaN first: elements that no token has written must not reach
 * a result
 */
export async function runAttention(
  device: Backend,
  inputs: AttentionCase,
  isSpoiled = true,
): Promise<Matrix> {
  const { shape, nHeads, scale, window, softcap, sinks, invFreq, ropeLayout, causal } = inputs;
  const { attentionMask, masked, chunked } = inputs;
  const kv = device.createKv(shape);
  const page = new Uint8Array(kv.pageBytes).fill(0xff);
  for (let i = 0; isSpoiled && i < shape.nPages; i++) kv.writePage(i, page);

  const append = (graph: StepGraph): Value => {
    const frequencies = graph.optionalWeight(invFreq && f32Vector(invFreq));
    return graph.recorder.ropeAppend(graph.input(inputs.qkv), kv, {
      nHeads,
      kNorm: graph.optionalWeight(inputs.kNorm && f32Vector(inputs.kNorm)),
      eps: 1e-5,
      weightOffset: inputs.weightOffset,
      rope: frequencies && graph.recorder.ropeTable(frequencies, 1),
      ropeLayout,
    });
  };
  for (const tokens of inputs.runs.slice(0, -1)) {
    await runStep(device, inputsOf(inputs, tokens), (graph) => ({
      value: append(graph),
      cols: nHeads * shape.kHeadDim,
    }));
  }
  const now = { ...inputsOf(inputs, inputs.runs.at(-1)!), attentionMask };
  return runStep(device, now, (graph) => ({
    value: graph.recorder.attention(append(graph), kv, {
      nHeads,
      scale,
      window,
      softcap,
      sinks: graph.optionalWeight(sinks && f32Vector(sinks)),
      causal,
      chunked,
      masked,
    }),
    cols: nHeads * shape.vHeadDim,
  }));
}

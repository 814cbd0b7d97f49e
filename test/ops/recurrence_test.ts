/**
 * Operations with recurrent state: convolutions over tokens, the gated delta rule, and the scan of
 * Mamba-2.
 */
import type { Activation, Backend } from "../../src/backend.ts";
import { devices, deviceTest, isEmulated, openDevice } from "../support/devices.ts";
import { assertSameBits, type Matrix, matrixOf, randomMatrix } from "../support/matrix.ts";
import { opTest } from "../support/operations.ts";
import { Random } from "../support/random.ts";
import {
  randomSchedule,
  runSchedule,
  type Schedule,
  totalRows,
  wholeSchedule,
} from "../support/recurrence.ts";
import { f32Vector, randomWeight, type TestWeight } from "../support/weights.ts";
import { activate } from "./plain_activations.ts";
import {
  type DeltaShape,
  plainConv1d,
  plainDeltaRule,
  plainSelectiveScan,
  type ScanShape,
} from "./plain_recurrence.ts";

/** A size at or next to one of the edges of blocks. */
function near(random: Random, edges: readonly number[]): number {
  return random.pick(edges) + random.pick([-1, 0, 0, 1]);
}

/** Some cases of random shapes, with the lengths of their sequences. */
function randomCases<Case>(
  random: Random,
  make: (lengths: number[]) => Case,
): (readonly [string, Case])[] {
  return Array.from({ length: isEmulated ? 1 : 6 }, (_, i) => {
    const lengths = Array.from({ length: random.int(1, 3) }, () => near(random, [2, 16, 32, 64]));
    return [`random shape ${i}`, make(lengths)];
  });
}

interface ConvCase {
  readonly schedule: Schedule;
  readonly x: Matrix;
  readonly weight: TestWeight;
  readonly bias: TestWeight | undefined;
  readonly activation: Activation;
}

function convCase(random: Random, cols: number, width: number, lengths: number[]): ConvCase {
  const schedule = randomSchedule(random, lengths);
  return {
    schedule,
    x: randomMatrix(random, totalRows(schedule), cols),
    weight: randomWeight(random, random.pick(["F32", "F16"]), cols, width),
    bias: random.chance(0.4) ? f32Vector(random.normals(cols)) : undefined,
    activation: random.pick(["silu", "identity"] as const),
  };
}

function runConv(device: Backend, { schedule, x, weight, bias, activation }: ConvCase) {
  const shape = { rows: weight.cols - 1, cols: x.cols };
  return runSchedule(
    device,
    schedule,
    shape,
    x.cols,
    (graph, state) =>
      graph.recorder.causalConv1d(graph.input(x), graph.weight(weight), state, {
        bias: graph.optionalWeight(bias),
        activation,
      }),
  );
}

opTest<ConvCase>("causal_conv1d", {
  cases: (random) => [
    ["1 column", convCase(random, 1, 2, [1])],
    ["4 wide", convCase(random, 40, 4, [1, 9, 30])],
    ["odd columns", convCase(random, 37, 3, [2, 17])],
    ["wider than its runs", convCase(random, 24, 9, [12, 3, 5])],
    ["long", convCase(random, 128, 4, [150, 70])],
    ...randomCases(
      random,
      (lengths) => convCase(random, near(random, [8, 16, 64, 128]), random.int(2, 9), lengths),
    ),
  ],
  run: runConv,
  plain({ schedule, x, weight, bias, activation }, read) {
    const sums = plainConv1d(schedule, x, read(weight), bias && read(bias).data);
    const { rows, cols, data } = sums;
    return matrixOf(rows, cols, (row, col) => activate(activation, data[row * cols + col]!));
  },
  tolerance: { absolute: 2e-6, relative: 2e-6 },
  referenceTolerance: { absolute: 1e-6, relative: 1e-6 },
});

interface DeltaCase {
  readonly schedule: Schedule;
  readonly shape: DeltaShape;
  readonly qkv: Matrix;
  readonly ba: Matrix;
  readonly rate: Float32Array<ArrayBuffer>;
  readonly dtBias: Float32Array<ArrayBuffer>;
  readonly scale: number;
  readonly eps: number;
}

function deltaCase(random: Random, shape: DeltaShape, lengths: number[]): DeltaCase {
  const schedule = randomSchedule(random, lengths);
  const { nKHeads, nVHeads, kDim, vDim } = shape;
  const rows = totalRows(schedule);
  return {
    schedule,
    shape,
    qkv: randomMatrix(random, rows, 2 * nKHeads * kDim + nVHeads * vDim),
    ba: randomMatrix(random, rows, 2 * nVHeads, 2),
    rate: Float32Array.from({ length: nVHeads }, () => -Math.exp(random.normal())),
    dtBias: random.normals(nVHeads),
    scale: Math.fround(1 / Math.sqrt(kDim)),
    eps: Math.fround(1e-6),
  };
}

function runDelta(device: Backend, inputs: DeltaCase) {
  const { schedule, shape, qkv, ba, rate, dtBias, scale, eps } = inputs;
  const { nKHeads, nVHeads, kDim, vDim, headOrder } = shape;
  const stateShape = { rows: nVHeads * kDim, cols: vDim };
  return runSchedule(
    device,
    schedule,
    stateShape,
    nVHeads * vDim,
    (graph, state) =>
      graph.recorder.gatedDeltaRule(graph.input(qkv), graph.input(ba), state, {
        rate: graph.weight(f32Vector(rate)),
        dtBias: graph.weight(f32Vector(dtBias)),
        nKHeads,
        headOrder,
        scale,
        eps,
      }),
  );
}

const grouped = { headOrder: "grouped" } as const, tiled = { headOrder: "tiled" } as const;

opTest<DeltaCase>("gated_delta_rule", {
  cases: (random) => [
    ["1 x 1", deltaCase(random, { nKHeads: 1, nVHeads: 1, kDim: 1, vDim: 1, ...grouped }, [3])],
    [
      "two value heads a key head",
      deltaCase(random, { nKHeads: 2, nVHeads: 4, kDim: 16, vDim: 16, ...grouped }, [20, 1, 7]),
    ],
    [
      "tiled heads",
      deltaCase(random, { nKHeads: 2, nVHeads: 6, kDim: 8, vDim: 32, ...tiled }, [9, 14]),
    ],
    [
      "odd sizes",
      deltaCase(random, { nKHeads: 3, nVHeads: 3, kDim: 7, vDim: 21, ...tiled }, [5, 80]),
    ],
    [
      "as large as in models",
      deltaCase(random, { nKHeads: 1, nVHeads: 2, kDim: 128, vDim: 128, ...grouped }, [90]),
    ],
    ...randomCases(random, (lengths) => {
      const nKHeads = random.int(1, 3), nVHeads = nKHeads * random.int(1, 3);
      const kDim = near(random, [8, 16, 32, 64]), vDim = near(random, [8, 16, 32, 64]);
      const order = random.pick([grouped, tiled]);
      return deltaCase(random, { nKHeads, nVHeads, kDim, vDim, ...order }, lengths);
    }),
  ],
  run: runDelta,
  plain: ({ schedule, shape, ...inputs }) => plainDeltaRule(schedule, shape, inputs),
  tolerance: { absolute: 1e-5, relative: 1e-5 },
  // The state is rounded to float32 after each token.
  referenceTolerance: { absolute: 2e-6, relative: 2e-6 },
});

interface ScanCase {
  readonly schedule: Schedule;
  readonly shape: ScanShape;
  readonly xbc: Matrix;
  readonly dt: Matrix;
  readonly gate: Matrix | undefined;
  readonly rate: Float32Array<ArrayBuffer>;
  readonly dtBias: Float32Array<ArrayBuffer>;
  readonly skip: Float32Array<ArrayBuffer>;
  readonly dtLimits: readonly [number, number];
}

function scanCase(
  random: Random,
  shape: ScanShape,
  lengths: number[],
  dtLimits: readonly [number, number] = [0, Infinity],
): ScanCase {
  const schedule = randomSchedule(random, lengths);
  const { nHeads, nGroups, headDim, dState } = shape;
  const rows = totalRows(schedule), inner = nHeads * headDim;
  return {
    schedule,
    shape,
    xbc: randomMatrix(random, rows, inner + 2 * nGroups * dState),
    dt: randomMatrix(random, rows, nHeads, 2),
    gate: random.chance(0.5) ? randomMatrix(random, rows, inner, 3) : undefined,
    rate: Float32Array.from({ length: nHeads }, () => -Math.exp(random.normal())),
    dtBias: random.normals(nHeads),
    skip: random.normals(nHeads),
    dtLimits,
  };
}

function runScan(device: Backend, inputs: ScanCase) {
  const { schedule, shape, xbc, dt, gate, rate, dtBias, skip, dtLimits } = inputs;
  const { nHeads, nGroups, headDim, dState } = shape;
  return runSchedule(
    device,
    schedule,
    { rows: nHeads * dState, cols: headDim },
    nHeads * headDim,
    (graph, state) =>
      graph.recorder.selectiveScan(graph.input(xbc), graph.input(dt), state, {
        rate: graph.weight(f32Vector(rate)),
        dtBias: graph.weight(f32Vector(dtBias)),
        skip: graph.weight(f32Vector(skip)),
        nGroups,
        dtLimits,
        gate: gate && graph.input(gate),
      }),
  );
}

/** Time steps whose exponentials float32 cannot hold, and some that are zero. */
function longSteps(random: Random): ScanCase {
  const inputs = scanCase(random, { nHeads: 3, nGroups: 1, headDim: 8, dState: 4 }, [6, 2]);
  const { rows, cols } = inputs.dt;
  return {
    ...inputs,
    xbc: randomMatrix(random, rows, inputs.xbc.cols, 0.25),
    dt: matrixOf(rows, cols, (row, col) => ((row + col) % 3 === 0 ? -1 : 1) * random.int(95, 130)),
  };
}

opTest<ScanCase>("selective_scan", {
  cases: (random) => [
    ["long time steps", longSteps(random)],
    ["1 x 1", scanCase(random, { nHeads: 1, nGroups: 1, headDim: 1, dState: 1 }, [3])],
    [
      "two groups of two heads",
      scanCase(random, { nHeads: 4, nGroups: 2, headDim: 16, dState: 16 }, [20, 1, 7]),
    ],
    [
      "limits of the time steps",
      scanCase(random, { nHeads: 6, nGroups: 3, headDim: 8, dState: 32 }, [9, 14], [0.5, 1.5]),
    ],
    [
      "odd sizes",
      scanCase(random, { nHeads: 3, nGroups: 1, headDim: 21, dState: 7 }, [5, 80]),
    ],
    [
      "as large as in models",
      scanCase(random, { nHeads: 2, nGroups: 1, headDim: 64, dState: 128 }, [90]),
    ],
    [
      "the largest state",
      scanCase(random, { nHeads: 1, nGroups: 1, headDim: 128, dState: 256 }, [70]),
    ],
    ...randomCases(random, (lengths) => {
      const nGroups = random.int(1, 3), nHeads = nGroups * random.int(1, 3);
      const headDim = near(random, [8, 16, 32, 64]), dState = near(random, [8, 16, 32, 64]);
      return scanCase(random, { nHeads, nGroups, headDim, dState }, lengths);
    }),
  ],
  run: runScan,
  plain: ({ schedule, shape, ...inputs }) => plainSelectiveScan(schedule, shape, inputs),
  // Sums of 256 products pass through values that are hundreds of times larger than some results.
  tolerance: { absolute: 3e-4, relative: 2e-5 },
  // The state is rounded to float32 after each token.
  referenceTolerance: { absolute: 3e-5, relative: 2e-6 },
});

for (const device of devices) {
  Deno.test(`state does not depend on pieces, batch or threads (${device.name})`, async () => {
    const random = new Random("invariance of state");
    const lengths = [75, 4, 33];
    const whole = wholeSchedule(lengths);
    const conv = { ...convCase(random, 40, 4, lengths), schedule: whole };
    const shape = { nKHeads: 2, nVHeads: 4, kDim: 16, vDim: 24, ...grouped };
    const delta = { ...deltaCase(random, shape, lengths), schedule: whole };
    using one = openDevice(device, 1);
    using three = openDevice(device, 3);
    const scanned = { nHeads: 4, nGroups: 2, headDim: 24, dState: 20 };
    const scan = { ...scanCase(random, scanned, lengths), schedule: whole };
    const expected = {
      conv: await runConv(one, conv),
      delta: await runDelta(one, delta),
      scan: await runScan(one, scan),
    };
    for (let round = 0; round < 4; round++) {
      const schedule = randomSchedule(random, lengths);
      const what = `round ${round}`;
      assertSameBits(await runConv(three, { ...conv, schedule }), expected.conv, what);
      assertSameBits(await runDelta(three, { ...delta, schedule }), expected.delta, what);
      assertSameBits(await runScan(three, { ...scan, schedule }), expected.scan, what);
    }
  });
}

deviceTest("normalising zeros gives zeros", async (device) => {
  const random = new Random("zeros");
  const shape = { nKHeads: 1, nVHeads: 1, kDim: 8, vDim: 8, ...grouped };
  const inputs = deltaCase(random, shape, [3]);
  const zeros = matrixOf(3, inputs.qkv.cols, (_, col) => col < 16 ? 0 : 1);
  const out = await runDelta(device, { ...inputs, qkv: zeros });
  assertSameBits(out, matrixOf(3, 8, () => 0), "queries and keys of zeros");
});

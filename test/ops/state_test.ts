/** Recurrent state as slots: copies, reads, writes and refusals. */
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import { InputBlock } from "../../ffi/step_block.ts";
import type { Backend, Recorder, StateShape, Step, StepInputs, Value } from "../../src/backend.ts";
import { ForgeError } from "../../src/errors.ts";
import { devices, deviceTest } from "../support/devices.ts";
import { matrixOf, randomMatrix } from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { floatWord, oddWords, RawBorder, status } from "../support/raw_border.ts";
import { StepGraph } from "../support/step_graph.ts";
import { f32Vector, f32Weight } from "../support/weights.ts";

const shape: StateShape = { nSlots: 5, rows: 3, cols: 20 };

deviceTest("slots start as zeros and keep what is written", (device, random) => {
  const state = device.createState(shape);
  assert(state.slotBytes >= 3 * 20 * 4);
  const slots = Array.from({ length: shape.nSlots }, () => random.bytes(state.slotBytes));
  slots.forEach((_, slot) => assertEquals(state.readSlot(slot), new Uint8Array(state.slotBytes)));
  for (const slot of random.permutation(shape.nSlots)) state.writeSlot(slot, slots[slot]!);
  state.copySlot(2, 4);
  state.copySlot(0, 0);
  slots[4] = slots[2]!;
  slots.forEach((bytes, slot) => assertEquals(state.readSlot(slot), bytes, `slot ${slot}`));
});

deviceTest("unknown slots and buffers of the wrong size are rejected", (device) => {
  const state = device.createState(shape);
  const data = new Uint8Array(state.slotBytes);
  const refused = (call: () => unknown, message: string) => assertThrows(call, ForgeError, message);
  refused(() => state.readSlot(5), "state slot 5 of 5");
  refused(() => state.writeSlot(9, data), "state slot 9 of 5");
  refused(() => state.copySlot(0, 5), "state slot 5 of 5");
  refused(() => state.copySlot(7, 1), "state slot 7 of 5");
  refused(() => state.writeSlot(0, data.subarray(1)), "the buffer has");
  refused(() => device.createState({ ...shape, nSlots: 0 }), "0 slots; valid is 1 to 65536");
  refused(() => device.createState({ ...shape, nSlots: 2 ** 16 + 1 }), "65537 slots; valid is");
  for (const nSlots of [1, 2 ** 16]) device.createState({ nSlots, rows: 1, cols: 1 });
  refused(() => device.createState({ ...shape, rows: 0 }), "matrices of [0, 20]");
  refused(() => device.createState({ ...shape, cols: 2 ** 25 }), "matrices of [3, 33554432]");
  refused(
    () => device.createState({ nSlots: 2 ** 16, rows: 2 ** 24, cols: 2 ** 24 }),
    "is too large",
  );
  refused(
    () => device.createState({ nSlots: 2 ** 10, rows: 2 ** 24, cols: 2 ** 11 }),
    "a state cache of 1024 slots of [16777216, 2048] is too large",
  );
});

/** A recording with a value: `x`, 8 columns of 4 tokens. */
function begin(device: Backend) {
  const recorder = device.record({ maxTokens: 4, maxOutputs: 2, maxSequences: 2, maxPages: 1 });
  const graph = new StepGraph(device, recorder);
  const tokens = (cols: number) => graph.input(matrixOf(4, cols, () => 1));
  const x = tokens(8);
  return {
    recorder,
    x,
    tokens,
    outputs: (cols: number) => recorder.gatherOutputs(tokens(cols)),
    matrix: (rows: number, cols: number) => graph.weight(f32Weight(matrixOf(rows, cols, () => 1))),
    vector: (cols: number) => graph.weight(f32Vector(new Float32Array(cols))),
    state: (rows: number, cols: number) => device.createState({ nSlots: 2, rows, cols }),
  };
}

type Parts = ReturnType<typeof begin>;
const unknown = 99 as Value;
const silu = { activation: "silu" } as const;
const normOptions = { eps: 1e-6, ...silu };

/** The delta rule of 2 key heads and 4 value heads of 3 x 5, with one thing changed. */
function delta(
  p: Parts,
  change: Partial<Parameters<Recorder["gatedDeltaRule"]>[3]> = {},
  values: { qkv?: Value; ba?: Value; state?: ReturnType<Parts["state"]> } = {},
) {
  const { qkv = p.tokens(2 * 2 * 3 + 4 * 5), ba = p.tokens(8), state = p.state(12, 5) } = values;
  return p.recorder.gatedDeltaRule(qkv, ba, state, {
    rate: p.vector(4),
    dtBias: p.vector(4),
    nKHeads: 2,
    headOrder: "grouped",
    scale: 1,
    eps: 1e-6,
    ...change,
  });
}

/** The scan of 4 heads of 3 x 5 in 2 groups, with one thing changed. */
function scan(
  p: Parts,
  change: Partial<Parameters<Recorder["selectiveScan"]>[3]> = {},
  values: { xbc?: Value; dt?: Value; state?: ReturnType<Parts["state"]> } = {},
) {
  const { xbc = p.tokens(4 * 5 + 2 * 2 * 3), dt = p.tokens(4), state = p.state(12, 5) } = values;
  return p.recorder.selectiveScan(xbc, dt, state, {
    rate: p.vector(4),
    dtBias: p.vector(4),
    skip: p.vector(4),
    nGroups: 2,
    ...change,
  });
}

const refusals: readonly (readonly [message: string, record: (parts: Parts) => unknown])[] = [
  ["sigmoid_gate: x is 99", (p) => p.recorder.sigmoidGate(unknown, p.x)],
  ["sigmoid_gate: gate is 99", (p) => p.recorder.sigmoidGate(p.x, unknown)],
  ["gate has 3 columns; expected the rows of x", (p) => p.recorder.sigmoidGate(p.x, p.tokens(3))],
  ["gate has 8 columns", (p) => p.recorder.sigmoidGate(p.x, p.outputs(8))],
  ["gate has 16 columns", (p) => p.recorder.sigmoidGate(p.x, p.tokens(16))],
  ["residual has 7 columns", (p) => p.recorder.sigmoidGate(p.x, p.x, p.tokens(7))],
  [
    "gated_rms_norm: gate has 4 columns; expected 8",
    (p) => p.recorder.gatedRmsNorm(p.x, p.tokens(4), p.vector(8), normOptions),
  ],
  [
    "gated_rms_norm: gate has 8 columns",
    (p) => p.recorder.gatedRmsNorm(p.x, p.outputs(8), p.vector(8), normOptions),
  ],
  [
    "weight is [1, 3]; expected [1, 8], a divisor of these columns, or a row for each group",
    (p) => p.recorder.gatedRmsNorm(p.x, p.x, p.vector(3), normOptions),
  ],
  [
    "weight is [3, 4]; expected [1, 8]",
    (p) => p.recorder.gatedRmsNorm(p.x, p.x, p.matrix(3, 4), normOptions),
  ],
  [
    "causal_conv1d: x is 99",
    (p) => p.recorder.causalConv1d(unknown, p.matrix(8, 4), p.state(3, 8), silu),
  ],
  [
    "x must have tokens for rows",
    (p) => p.recorder.causalConv1d(p.outputs(8), p.matrix(8, 4), p.state(3, 8), silu),
  ],
  [
    "the weight has 7 rows, x has 8 columns",
    (p) => p.recorder.causalConv1d(p.x, p.matrix(7, 4), p.state(3, 8), silu),
  ],
  [
    "the weight is 1 tokens wide; valid is 2 to 64",
    (p) => p.recorder.causalConv1d(p.x, p.matrix(8, 1), p.state(1, 8), silu),
  ],
  [
    "the weight is 65 tokens wide",
    (p) => p.recorder.causalConv1d(p.x, p.matrix(8, 65), p.state(64, 8), silu),
  ],
  [
    "state is [4, 8]; expected [3, 8]",
    (p) => p.recorder.causalConv1d(p.x, p.matrix(8, 4), p.state(4, 8), silu),
  ],
  [
    "bias is [1, 4]; expected [1, 8]",
    (p) =>
      p.recorder.causalConv1d(p.x, p.matrix(8, 4), p.state(3, 8), { ...silu, bias: p.vector(4) }),
  ],
  ["another operation of this step has the state already", (p) => {
    const state = p.state(3, 8);
    const y = p.recorder.causalConv1d(p.x, p.matrix(8, 4), state, silu);
    p.recorder.causalConv1d(y, p.matrix(8, 4), state, silu);
  }],
  ["gated_delta_rule: qkv is 99", (p) => delta(p, {}, { qkv: unknown })],
  ["must have tokens for rows", (p) => delta(p, {}, { ba: p.outputs(8) })],
  ["must have tokens for rows", (p) => delta(p, {}, { qkv: p.outputs(32) })],
  ["qkv has 31 columns; the state implies 32", (p) => delta(p, {}, { qkv: p.tokens(31) })],
  ["qkv has 33 columns; the state implies 32", (p) => delta(p, {}, { qkv: p.tokens(33) })],
  ["ba has 4 columns; expected 8", (p) => delta(p, {}, { ba: p.tokens(4) })],
  ["a state of 13 rows is not for 4 value heads", (p) => delta(p, {}, { state: p.state(13, 5) })],
  ["rate has 2 rows", (p) => delta(p, { rate: p.matrix(2, 4) })],
  ["dt_bias is [1, 3]; expected [1, 4]", (p) => delta(p, { dtBias: p.vector(3) })],
  ["4 value heads are no multiple of 3 key heads", (p) => delta(p, { nKHeads: 3 })],
  ["no multiple of 0 key heads", (p) => delta(p, { nKHeads: 0 })],
  ["scale is inf", (p) => delta(p, { scale: Infinity })],
  ["eps nan", (p) => delta(p, { eps: NaN })],
  ["eps -1", (p) => delta(p, { eps: -1 })],
  ["selective_scan: xbc is 99", (p) => scan(p, {}, { xbc: unknown })],
  ["xbc and dt must have tokens for rows", (p) => scan(p, {}, { dt: p.outputs(4) })],
  ["xbc and dt must have tokens for rows", (p) => scan(p, {}, { xbc: p.outputs(32) })],
  ["gate has 20 columns", (p) => scan(p, { gate: p.outputs(20) })],
  ["xbc has 31 columns; the state implies 32", (p) => scan(p, {}, { xbc: p.tokens(31) })],
  ["xbc has 33 columns; the state implies 32", (p) => scan(p, {}, { xbc: p.tokens(33) })],
  ["dt has 5 columns; expected 4, one for each head", (p) => scan(p, {}, { dt: p.tokens(5) })],
  ["a state of 13 rows is not for 4 heads", (p) => scan(p, {}, { state: p.state(13, 5) })],
  ["rate has 2 rows", (p) => scan(p, { rate: p.matrix(2, 4) })],
  ["dt_bias is [1, 3]; expected [1, 4]", (p) => scan(p, { dtBias: p.vector(3) })],
  ["skip is [1, 3]; expected [1, 4]", (p) => scan(p, { skip: p.vector(3) })],
  ["4 heads are no multiple of 3 groups", (p) => scan(p, { nGroups: 3 })],
  ["no multiple of 0 groups", (p) => scan(p, { nGroups: 0 })],
  ["gate has 19 columns; expected 20", (p) => scan(p, { gate: p.tokens(19) })],
  ["dt is held within 2 and 1", (p) => scan(p, { dtLimits: [2, 1] })],
  ["dt is held within -1 and 1", (p) => scan(p, { dtLimits: [-1, 1] })],
  ["dt is held within nan", (p) => scan(p, { dtLimits: [NaN, 1] })],
];

deviceTest("contradictory recordings", (device) => {
  for (const [message, record] of refusals) {
    assertThrows(() => record(begin(device)), ForgeError, message);
  }
});

/** A step with a convolution over 4 tokens and 3 slots. */
async function recordStep(device: Backend): Promise<Step> {
  const limits = { maxTokens: 6, maxOutputs: 1, maxSequences: 3, maxPages: 1 };
  const graph = new StepGraph(device, device.record(limits));
  const x = graph.input(randomMatrix(new Random("x"), 10, 8));
  const weight = graph.weight(f32Weight(matrixOf(8, 4, () => 1)));
  const state = device.createState({ nSlots: 3, rows: 3, cols: 8 });
  graph.recorder.keep(graph.recorder.causalConv1d(x, weight, state, silu));
  return await graph.recorder.finish();
}

const good: StepInputs = {
  tokens: [1, 2, 3],
  positions: [0, 1, 7],
  sequences: [0, 0, 1],
  pageTables: [[0], [0]],
  slots: [2, 0],
  outputs: [],
};

const runRefusals: readonly (readonly [message: string, change: Partial<StepInputs>])[] = [
  ["slots[1] is 3; valid is 0 to 2", { slots: [2, 3] }],
  ["slots[0] is -1", { slots: [-1, 0] }],
  ["two sequences have the slot 1", { slots: [1, 1] }],
  ["two sequences have the slot 0", { slots: [] }],
  ["got 1 state slots", { slots: [1] }],
  ["positions[1] is 2 after 0", { positions: [0, 2, 7] }],
  ["positions[1] is 0 after 0", { positions: [0, 0, 7] }],
  ["the tokens of sequence 0 do not follow one another", { sequences: [0, 1, 0] }],
];

deviceTest("invalid inputs of a step with state", async (device) => {
  const step = await recordStep(device);
  await step.run(good);
  for (const [message, change] of runRefusals) {
    await assertRejects(() => step.run({ ...good, ...change }), ForgeError, message);
  }
  await step.run(good);
  step.release();
});

for (const device of devices) {
  Deno.test(`random slots, positions and lengths (${device.name})`, async () => {
    const random = new Random("random slots");
    using border = new RawBorder(device);
    const { symbols: s } = border;
    const step = border.make((out) => s.forge_step_begin(border.device, 6, 1, 3, 1, out));
    const x = border.record(
      step,
      "embed",
      border.upload(randomMatrix(random, 10, 8)),
      floatWord(1),
    );
    const bytes = new BigUint64Array(1);
    const state = border.make((out) => s.forge_state_create(border.device, 3, 3, 8, out, bytes));
    const weight = border.upload(randomMatrix(random, 8, 4));
    border.record(step, "causal_conv1d", x, weight, 0, state, 1);
    assertEquals(await s.forge_step_end(step, bytes), status.ok);
    const counts = new Map<number, number>();
    for (let i = 0; i < 3000; i++) {
      const block = new InputBlock().pack(good).slice();
      for (let n = random.int(0, 2); n > 0; n--) {
        const at = random.int(8, block.length - 1);
        block[at] = random.chance(0.5) ? random.int(0, 3) : random.pick(oddWords);
      }
      const result = await border.run(step, block);
      counts.set(result, (counts.get(result) ?? 0) + 1);
    }
    const ran = counts.get(status.ok) ?? 0, refused = counts.get(status.invalidArgument) ?? 0;
    assertEquals(ran + refused, 3000, Deno.inspect(counts));
    assert(ran > 500 && refused > 500, `${ran} ran, ${refused} were refused`);
  });
}

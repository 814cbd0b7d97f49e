/** Steps of devices that divide a model: what each records and runs, and how all stop. */
import { assert, assertEquals, assertRejects, assertThrows } from "@std/assert";
import {
  DeviceGroup,
  devicesOf,
  type OutputRequest,
  Recorder,
  type StateCache,
  type StateShape,
  type Step,
  type StepInputs,
  type StepResult,
  type Value,
} from "../../../src/backend.ts";
import { ForgeError } from "../../../src/errors.ts";
import { FakeBackend } from "./fakes.ts";

/** Behaviour of one device. */
interface Behaviour {
  /** Numbers of the values that it records. */
  readonly value?: number;
  /** Error of the end of its recording, or of its run. */
  readonly unfinished?: Error;
  readonly failure?: Error;
  /** Tokens of its results. @default [7] */
  readonly tokens?: readonly number[];
}

const CANCELLED = new ForgeError("cancelled", "stopped");

/** A device whose steps note what is called; a run without a failure waits for it elsewhere. */
class FakeDevice extends FakeBackend {
  readonly calls: string[] = [];
  readonly inputs: StepInputs[] = [];
  readonly memoryBound: number | undefined;
  free = 100;
  readonly #behaviour: Behaviour;

  constructor(behaviour: Behaviour = {}, memoryBound?: number) {
    super();
    this.#behaviour = behaviour;
    this.memoryBound = memoryBound;
  }

  override memory() {
    return { total: 1000, free: this.free };
  }

  override createState({ rows }: StateShape = { nSlots: 1, rows: 0, cols: 1 }): StateCache {
    this.calls.push(`state ${rows}`);
    return {
      handle: rows,
      slotBytes: 4,
      copySlot() {},
      readSlot: () => new Uint8Array(4),
      writeSlot() {},
    };
  }

  override record(): Recorder {
    const { value = 1, unfinished } = this.#behaviour;
    return new Recorder({
      record: (operation) => {
        this.calls.push(operation);
        return value as Value;
      },
      keep: (value) => void this.calls.push(`keep ${value}`),
      finish: () =>
        unfinished === undefined ? Promise.resolve(this.#step()) : Promise.reject(unfinished),
    });
  }

  override close(): void {
    this.calls.push("close");
  }

  #step(): Step {
    const { failure, tokens = [7] } = this.#behaviour;
    const results = tokens.map((token): StepResult => ({ token, logprob: 0, top: [] }));
    const note = (call: string) => void this.calls.push(call);
    let stop = () => {};
    const stopped = new Promise<void>((resolve) => stop = resolve);
    return {
      scratchBytes: 10,
      run: async (inputs) => {
        this.inputs.push(inputs);
        if (failure !== undefined) throw failure;
        if (!inputs.slots) return results;
        // A sequence with a slot stands for a run that waits for the other devices.
        await stopped;
        throw CANCELLED;
      },
      read: (value, cols, firstRow, nRows) => Float32Array.of(value, cols, firstRow, nRows),
      nativeTime: () => tokens[0]!,
      profile: (enabled) => note(`profile ${enabled}`),
      operationTimes: () =>
        tokens.map((begin) => ({ begin }) as ReturnType<Step["operationTimes"]>[0]),
      cancel: () => {
        note("cancel");
        stop();
      },
      release: () => note("release"),
    };
  }
}

const LIMITS = { maxTokens: 1, maxOutputs: 1, maxSequences: 1, maxPages: 1 };

const OUTPUT: OutputRequest = {
  row: 0,
  stream: 3,
  position: 5,
  history: [1, 2],
  nTop: 4,
  forcedToken: 9,
  sampling: {
    ...{ repeatPenalty: 2, presencePenalty: 1, frequencyPenalty: 1, temperature: 1 },
    ...{ topK: 5, topP: 0.5, minP: 0.1, seed: 8n },
  },
};

const INPUTS: StepInputs = {
  tokens: [1],
  positions: [0],
  sequences: [0],
  pageTables: [[0]],
  outputs: [OUTPUT],
};

const stepOf = (
  devices: readonly FakeDevice[],
  nStages = 1,
  onFailure?: (error: unknown) => void,
) => new DeviceGroup(devices, nStages, onFailure).record(LIMITS).finish();

Deno.test("the memory of a stage is what its fullest rank had free at first", () => {
  const stages = (
    frees: readonly number[],
    nStages: number,
    bounds: (number | undefined)[] = [],
  ) => {
    const devices = frees.map((_, i) => new FakeDevice({}, bounds[i]));
    for (const [i, free] of frees.entries()) devices[i]!.free = free;
    const group = new DeviceGroup(devices, nStages);
    const first = group.stageMemory();
    for (const device of devices) device.free = 1;
    assertEquals(group.stageMemory(), first);
    return first;
  };
  assertEquals(stages([9, 5, 6, 8], 2), [5, 6]);
  assertEquals(stages([9, 5, 6, 8], 4), [9, 5, 6, 8]);
  assertEquals(stages([9, 5, 6, 8], 2, [4, 7, undefined, 3]), [4, 3]);
  assertEquals(stages([9, 0, 6, 8], 2), [1, 1]);
});

Deno.test("the weights that a group reads from files are those of all its devices", () => {
  const reporting = (all: number, perToken: number) =>
    Object.assign(new FakeDevice(), { streamedBytes: () => ({ all, perToken }) });
  const devices = [reporting(5, 2), new FakeDevice(), reporting(30, 10)];
  assertEquals(new DeviceGroup(devices).streamedBytes(), { all: 35, perToken: 12 });
  assertEquals(new DeviceGroup([new FakeDevice()]).streamedBytes(), { all: 0, perToken: 0 });
});

Deno.test("recurrent state is on the only device of its stage", () => {
  const devices = [new FakeDevice(), new FakeDevice()];
  const staged = new DeviceGroup(devices, 2), shape = { nSlots: 1, cols: 1 };
  staged.createState({ ...shape, rows: 4, stage: 1 });
  staged.createState({ ...shape, rows: 5 });
  assertEquals(devices.map(({ calls }) => calls), [["state 5"], ["state 4"]]);
  const ranks = new DeviceGroup(devices);
  assertThrows(() => ranks.createState({ ...shape, rows: 6 }), ForgeError, "is not divided");
});

Deno.test("a group is its devices, and a device itself", () => {
  const devices = [new FakeDevice(), new FakeDevice()];
  assertEquals(devicesOf(new DeviceGroup(devices)).map((own, i) => own === devices[i]), [
    true,
    true,
  ]);
  assert(devicesOf(devices[0]!)[0] === devices[0]);
});

Deno.test("a group that closes because of an error says so", async () => {
  for (const error of [undefined, new Error("no more")]) {
    const devices = [new FakeDevice(), new FakeDevice()];
    const errors: unknown[] = [];
    await new DeviceGroup(devices, 2, (error) => errors.push(error)).close(error);
    assertEquals(errors, error === undefined ? [] : [error]);
    assertEquals(devices.map(({ calls }) => calls), [["close"], ["close"]]);
  }
});

Deno.test("what follows the layers is recorded by the ranks of the last stage", () => {
  const devices = [1, 2, 3, 3].map((value) => new FakeDevice({ value }));
  const recorder = new DeviceGroup(devices, 2).record(LIMITS);
  const value = recorder.softcap(0 as Value, 1);
  recorder.keep(value);
  const last = ["softcap", "keep 3"];
  assertEquals(devices.map(({ calls }) => calls), [[], [], last, last]);
  const other = new DeviceGroup(devices.slice(0, 2)).record(LIMITS);
  assertThrows(() => other.softcap(0 as Value, 1), RangeError, "the ranks differ: 1, 2");
});

Deno.test("a step that fits some devices only is released there", async () => {
  const unfinished = new Error("no memory");
  const devices = [{}, { unfinished }, {}].map((behaviour) => new FakeDevice(behaviour));
  assert(await assertRejects(() => stepOf(devices), Error) === unfinished);
  assertEquals(devices.map(({ calls }) => calls), [["release"], [], ["release"]]);
});

Deno.test("the last device samples, and the others only compute its rows", async () => {
  for (const nStages of [1, 2]) {
    const devices = [[3], [4]].map((tokens) => new FakeDevice({ tokens }));
    const step = await stepOf(devices, nStages);
    const [result] = await step.run({ ...INPUTS, endTokens: [2] });
    assert(result !== undefined && "token" in result && result.token === 4);
    const [first, last] = devices.map(({ inputs }) => inputs[0]!);
    assertEquals(last!.outputs, [OUTPUT]);
    const { sampling, ...output } = first!.outputs[0]!;
    assertEquals(output, { row: 0, stream: 3, position: 5, history: [], nTop: 0 });
    assertEquals(sampling, {
      ...{ repeatPenalty: 1, presencePenalty: 0, frequencyPenalty: 0, temperature: 0 },
      ...{ topK: 0, topP: 1, minP: 0, seed: 0n },
    });
  }
});

Deno.test("ranks choose the tokens of a series together, and stages run one step", async () => {
  const series = { ...INPUTS, nSteps: 3, endTokens: [2] };
  const run = async (tokens: readonly (readonly number[])[], nStages: number) => {
    const devices = tokens.map((tokens) => new FakeDevice({ tokens }));
    await (await stepOf(devices, nStages)).run(series);
    return devices.map(({ inputs: [own] }) => [own!.nSteps, own!.endTokens, own!.outputs[0]!.nTop]);
  };
  assertEquals(await run([[1, 2, 3], [1, 2, 3]], 1), [[3, [2], 4], [3, [2], 4]]);
  assertEquals(await run([[1], [2]], 2), [[1, undefined, 0], [1, undefined, 4]]);
  for (const other of [[1, 2, 4], [1, 2], [1, 2, 3, 4]]) {
    await assertRejects(() => run([other, [1, 2, 3]], 1), ForgeError, "chose different tokens");
  }
});

Deno.test("if one device fails, the others stop, and its error is thrown", async () => {
  const failure = new Error("a device fell off");
  const waiting = { ...INPUTS, slots: [0] };
  for (const index of [0, 1, 2]) {
    const devices = [0, 1, 2].map((i) => new FakeDevice(i === index ? { failure } : {}));
    const step = await stepOf(devices);
    assert(await assertRejects(() => step.run(waiting), Error) === failure);
    for (const { calls } of devices) assert(calls.includes("cancel"));
  }
  // Of a group in several processes, the failure ends the group, and nothing else stops it.
  const errors: unknown[] = [];
  const devices = [new FakeDevice({ failure }), new FakeDevice()];
  const step = await stepOf(devices, 1, (error) => errors.push(error));
  step.cancel();
  assert(await assertRejects(() => step.run(INPUTS), Error) === failure);
  assertEquals([errors, ...devices.map(({ calls }) => calls)], [[failure], [], []]);
});

Deno.test("facts about a step are of its last device, or of the last rank of each stage", async () => {
  const devices = [1, 2, 3, 4].map((token) => new FakeDevice({ tokens: [token] }));
  const step = await stepOf(devices, 2);
  assertEquals([step.scratchBytes, step.nativeTime()], [40, 4]);
  assertEquals([...step.read(6 as Value, 7, 8, 9)], [6, 7, 8, 9]);
  assertEquals(step.operationTimes().map(({ begin }) => begin), [2, 4]);
  step.profile(true);
  step.cancel();
  step.release();
  for (const { calls } of devices) assertEquals(calls, ["profile true", "cancel", "release"]);
});

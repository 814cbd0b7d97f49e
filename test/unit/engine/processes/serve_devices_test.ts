/** A device of another process, and the process that serves it, over a link in memory. */
import { assert, assertEquals, assertRejects } from "@std/assert";
import type {
  Backend,
  Device,
  Step,
  StepInputs,
  StepResult,
  Value,
} from "../../../../src/backend.ts";
import { Recorder } from "../../../../src/backend.ts";
import type { NativeBackend } from "../../../../ffi/native_backend.ts";
import { type LocalDevices, openBackend } from "../../../../src/engine/load/open_backend.ts";
import type { Link, Message } from "../../../../src/engine/processes/link.ts";
import { reportOf } from "../../../../src/engine/processes/messages.ts";
import { RemoteDevice, RemoteProcess } from "../../../../src/engine/processes/remote_device.ts";
import { serveDevices } from "../../../../src/engine/processes/serve_devices.ts";
import { Runner, UNSAMPLED } from "../../../../src/engine/runner.ts";
import { ForgeError } from "../../../../src/errors.ts";
import { type Checkpoint, openCheckpoint } from "../../../../src/formats/checkpoint.ts";
import type { JsonObject } from "../../../../src/formats/json.ts";
import { loadModel } from "../../../../src/models/registry.ts";
import { TempFolder } from "../../../support/temp_folder.ts";
import { writeRandomLlama } from "../../../support/tiny_llama.ts";
import { writeRandomMamba } from "../../../support/tiny_mamba.ts";
import { FakeBackend } from "../../models/fakes.ts";

/** One end of a link whose messages pass through JSON, as over a connection. */
class LinkEnd {
  peer: LinkEnd | undefined;
  receiver: Parameters<Link["listen"]>[0] | undefined;
  readonly address = "host";
  readonly sent: JsonObject[] = [];
  watches = false;

  listen(receiver: NonNullable<LinkEnd["receiver"]>): void {
    this.receiver = receiver;
  }

  send(body: JsonObject, bytes = new Uint8Array(0)): void {
    const message: Message = { body: JSON.parse(JSON.stringify(body)), bytes: bytes.slice() };
    this.sent.push(message.body);
    queueMicrotask(() => this.peer?.receiver?.onMessage(message));
  }

  watch(): void {
    this.watches = true;
  }

  close(): void {}

  finish(): Promise<void> {
    return Promise.resolve();
  }
}

/** Serves devices, and returns process 0's end of the link. */
function serve(devices: readonly Backend[], checkpoint: Checkpoint) {
  const host = new LinkEnd(), guest = new LinkEnd();
  [host.peer, guest.peer] = [guest, host];
  const joined: unknown[] = [], aborted: string[] = [];
  const local: LocalDevices = {
    devices: devices as readonly NativeBackend[],
    join: (part) => Promise.resolve(void joined.push(part)),
    abort: (reason) => void aborted.push(reason),
    close: () => {},
  };
  const served = serveDevices(guest as unknown as Link, local, checkpoint, { sessionLength: 128 });
  return { host, guest, joined, aborted, served };
}

const GROUP = { nDevices: 1, nStages: 1, first: 0, stageMemory: [1] };
const PROMPT = Int32Array.from({ length: 40 }, (_, i) => 2 + (i * i + 7 * i) % 90);

/** Returns tokens that a model chooses after a prompt, and after a copy of its pages and state. */
async function tokensOf(device: Device & Backend, checkpoint: Checkpoint): Promise<number[]> {
  const { lm } = loadModel(device, checkpoint, { sessionLength: 128 });
  const shape = { contextLength: 128, cacheTokens: 256, nSlots: 2, kvType: "F32" } as const;
  const runner = await Runner.open(device, lm, shape);
  using table = runner.newSequence();
  using other = runner.newSequence();
  for (const each of [table, other]) each.reserve(60);
  const output = (row: number) => ({ ...UNSAMPLED, row, forcedToken: undefined });
  const first = { table, tokens: PROMPT, start: 0, outputs: [3, 20, 39].map(output) };
  const results = (await runner.run([first])).flat();
  runner.copyPage(table.pages[0]!, other.pages[0]!);
  if (table.slot !== undefined) runner.copySlot(table.slot, other.slot!);
  const next = PROMPT.subarray(0, 9);
  const second = { table: other, tokens: next, start: 40, outputs: [0, 4, 8].map(output) };
  results.push(...(await runner.run([second])).flat());
  return results.map((result) => "token" in result ? result.token : -1);
}

Deno.test("another process computes what process 0 records, states included", async () => {
  for (const write of [writeRandomLlama, writeRandomMamba]) {
    using folder = new TempFolder();
    write(folder.path, { contextLength: 128 });
    const checkpoint = openCheckpoint(folder.path);
    const [own, reader, remote] = [0, 1, 2].map(() => openBackend("reference")) as [
      NativeBackend,
      NativeBackend,
      NativeBackend,
    ];
    const { host, guest, joined, aborted, served } = serve([remote], checkpoint);
    const guestOf = {
      link: host as unknown as Link,
      name: "process 1",
      devices: [reportOf(remote)],
    };
    const lost: ForgeError[] = [];
    const process = new RemoteProcess(
      guestOf as unknown as ConstructorParameters<typeof RemoteProcess>[0],
      (error) => lost.push(error),
    );
    await process.call({ op: "group", group: GROUP }, Uint8Array.of(7, 8));
    assertEquals(joined, [{ ...GROUP, keys: Uint8Array.of(7, 8) }]);
    const device = new RemoteDevice(process, 0, reader);
    assertEquals(await tokensOf(device, checkpoint), await tokensOf(own, checkpoint), write.name);
    assertEquals([host.watches, guest.watches], [true, true]);
    await device.close();
    await served;
    assertEquals([lost, aborted], [[], []]);
    for (const backend of [own, reader, remote]) backend.close();
  }
});

Deno.test("each device of a process loads its rank and stage of the group", async () => {
  using folder = new TempFolder();
  writeRandomLlama(folder.path, { contextLength: 128 });
  const checkpoint = openCheckpoint(folder.path);
  const devices = [new FakeBackend(), new FakeBackend()];
  const { host, guest } = serve(devices, checkpoint);
  const group = { nDevices: 4, nStages: 2, first: 1, stageMemory: [5, 5] };
  host.send({ op: "group", id: 3, group });
  await turn();
  assertEquals(guest.sent, [{ id: 3, value: {} }]);
  const places = [[1, 0], [0, 1]] as const;
  for (const [i, [rank, stage]] of places.entries()) {
    const own = new FakeBackend();
    const part = { rank: { index: rank, count: 2 }, stage: { index: stage, memory: [5, 5] } };
    loadModel(own, checkpoint, { sessionLength: 128, part });
    assert(own.mapped.length > 0);
    assertEquals(devices[i]!.mapped, own.mapped);
  }
});

/** A device whose steps note what is called, and whose recordings may fail. */
class NotingBackend extends FakeBackend {
  readonly calls: unknown[] = [];

  override record(): Recorder {
    const note = (...call: unknown[]) => void this.calls.push(call);
    const step = {
      scratchBytes: 12,
      run: ({ tokens }: StepInputs): Promise<StepResult[]> => {
        note("run", ...Array.from(tokens));
        const failed = new ForgeError("bad_model", "NaN");
        return Promise.resolve([{ token: 9, logprob: 0, top: [] }, failed]);
      },
      profile: (enabled: boolean) => note("profile", enabled),
      release: () => note("release"),
    } as unknown as Step;
    return new Recorder({
      record: (name, operands) => {
        note(name, operands);
        return 1 as Value;
      },
      keep: (value) => note("keep", value),
      finish: () =>
        this.calls.length > 0
          ? Promise.resolve(step)
          : Promise.reject(new ForgeError("device", "no memory")),
    });
  }
}

const CHECKPOINT = {} as Checkpoint;
const EMPTY = { limits: {}, operations: [], kept: [] };
const INPUTS = {
  op: "inputs",
  lengths: [1, null, null, null, null, null, null],
  ...{ pages: [], adapterScales: [], nSteps: 1, outputs: [] },
};

/** Lets messages, and the answers to them, arrive. */
const turn = () => new Promise((resolve) => setTimeout(resolve));

Deno.test("a served device does what it is told, and a step that does not fit is reported", async () => {
  const device = new NotingBackend();
  const { host, guest, served } = serve([new NotingBackend(), device], CHECKPOINT);
  const tell = (body: JsonObject) => host.send({ device: 1, ...body });
  tell({ op: "record", id: 1, step: 0, recorded: EMPTY });
  tell({ op: "upload", type: "F32", rows: 2, cols: 3 });
  await turn();
  const operations = [["embed", { weight: { handle: 1 }, scale: 2 }], ["sample", { max_top: 0 }]];
  tell({ op: "record", id: 2, step: 1, recorded: { ...EMPTY, operations, kept: [5] } });
  await turn();
  host.send(INPUTS, new Uint8Array(Int32Array.of(77).buffer));
  tell({ op: "profile", step: 1, enabled: true });
  tell({ op: "run", id: 3, step: 1 });
  await turn();
  tell({ op: "release", step: 1 });
  host.send({ op: "end" });
  await served;
  assertEquals(guest.sent, [
    { id: 1, error: { code: "device", message: "no memory" } },
    { id: 2, value: { scratchBytes: 12 } },
    { id: 3, value: { tokens: [9, -1] } },
  ]);
  assertEquals(device.calls, [
    ["embed", { weight: { handle: 0, rows: 2, cols: 3 }, scale: 2 }],
    ["sample", { max_top: 0 }],
    ["keep", 5],
    ["profile", true],
    ["run", 77],
    ["release"],
  ]);
});

Deno.test("a process that cannot do what it is told says so and ends", async () => {
  const on = (body: JsonObject) => ({ device: 0, ...body });
  const cases: [JsonObject, message: string, isTold?: boolean][] = [
    [{ op: "dance" }, "unknown message dance"],
    [on({ op: "dance" }), "unknown message dance"],
    [{ op: "run", device: 1 }, "unknown message run"],
    [on({ op: "weights", count: 2 }), "this process has 0 weights, process 0 expects 2"],
    [on({ op: "run", step: 0 }), "a run without inputs"],
    [on({ op: "release", step: 3 }), "process 0 named the unknown step 3"],
    [on({ op: "copyPage", handle: 1, from: 0, to: 1 }), "process 0 named object 1 of 0"],
    [{ ...INPUTS, lengths: [2] }, "inputs of 0 bytes; expected 8"],
    [{ op: "refuse", reason: "another version" }, "another version", false],
    [{ op: "abort", reason: "no power" }, "process 0 has failed: no power", false],
  ];
  for (const [body, message, isTold = true] of cases) {
    const { host, guest, aborted, served } = serve([new NotingBackend()], CHECKPOINT);
    const rejected = assertRejects(() => served, ForgeError);
    host.send({ op: "weights", device: 0, count: 0 });
    host.send(body);
    const error = await rejected;
    assertEquals([error.code, error.message], ["device", message]);
    assertEquals(aborted, [`ForgeError: ${message}`]);
    assertEquals(guest.sent, isTold ? [{ error: { code: "device", message } }] : []);
  }
  const { guest, served } = serve([], CHECKPOINT);
  guest.receiver!.onEnd("ended");
  await assertRejects(() => served, ForgeError, "process 0 (host) ended");
});

/** A device of another process: what it tells, and what is recorded for it. */
import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { ForgeError } from "../../../../src/errors.ts";
import type { Device } from "../../../../src/backend.ts";
import type { JsonObject } from "../../../../src/formats/json.ts";
import type { Link, Message } from "../../../../src/engine/processes/link.ts";
import { reportOf } from "../../../../src/engine/processes/messages.ts";
import { RemoteDevice, RemoteProcess } from "../../../../src/engine/processes/remote_device.ts";

import { FakeBackend, fakeCheckpoint } from "../../models/fakes.ts";

const info = { name: "gpu", threads: 1, features: [], kernels: "cuda" };

/** Opens a device of a process that answers every question, and returns what it was sent. */
function open(answer: JsonObject = { value: { scratchBytes: 3 } }, reader?: FakeBackend) {
  const sent: JsonObject[] = [];
  let listener: Parameters<Link["listen"]>[0] | undefined;
  const link = {
    listen: (to: typeof listener) => listener = to,
    send(body: JsonObject) {
      sent.push(body);
      const message: Message = {
        body: { id: body.id!, ...answer },
        bytes: new Uint8Array(0),
      };
      if (body.id !== undefined) queueMicrotask(() => listener!.onMessage(message));
    },
    watch: () => {},
    close: () => {},
    finish: () => Promise.resolve(),
  } as unknown as Link;
  const device = { info, memory: () => ({ total: 9, free: 7 }), memoryBound: 5 };
  const report = reportOf(device as unknown as Device) as unknown as JsonObject;
  const lost: ForgeError[] = [];
  const process = new RemoteProcess(
    { link, name: "process 1", devices: [report] },
    (error) => lost.push(error),
  );
  const end = (reason: string) => listener!.onEnd(reason);
  const tell = (body: JsonObject) => listener!.onMessage({ body, bytes: new Uint8Array(0) });
  return { process, device: new RemoteDevice(process, 0, reader as never), sent, lost, end, tell };
}

Deno.test("another process: its device has the memory that its bound leaves", () => {
  const { device } = open();
  assertEquals([device.info, device.memory()], [info, { total: 9, free: 5 }]);
  const unbounded = { info, memory: () => ({ total: 9, free: 7 }) } as unknown as Device;
  assertEquals(reportOf(unbounded).memory, { total: 9, free: 7 });
});

Deno.test("another process: values have numbers, and operations without a value none", async () => {
  const { device, sent } = open();
  const weight = device.uploadWeight("F32", 4, 8, new Uint8Array(128));
  const limits = { maxTokens: 1, maxSequences: 1, maxOutputs: 1, maxTop: 0 };
  device.createState({ nSlots: 1, rows: 1, cols: 1 });
  const recorder = device.record(limits as never);
  const [first, second] = [recorder.embed(weight), recorder.receive(8)];
  recorder.send(first);
  const third = recorder.embed(weight);
  recorder.sample(third, 0);
  assertEquals([first, second, third, recorder.receive(8)], [1, 2, 3, 4]);
  const step = await recorder.finish();
  assertEquals(step.scratchBytes, 3);
  const names = sent.map(({ op }) => op);
  assertEquals(names, ["weights", "state", "record"]);
  assertEquals(sent[0]!["count"], 1);
});

Deno.test("another process: once it is lost, its device fails", () => {
  const { device, lost, end } = open();
  end("has ended");
  const error = assertThrows(() => device.memory(), ForgeError, "process 1 has ended");
  assertEquals([lost.length, error.code], [1, "device"]);
  end("has ended again");
  assertEquals(lost.length, 1);
});

Deno.test("another process: its weights are read by a device of this one, and counted", () => {
  const values = [1, 2, 3, 4, 5, 6, 7, 8];
  let released = 0;
  class Reader extends FakeBackend {
    releaseWeight(): void {
      released++;
    }
  }
  const { device, sent } = open(undefined, new Reader({ x: values }));
  const { tensors } = fakeCheckpoint({
    tensors: { x: [4, 2], y: { type: "Q8_0", shape: [3, 64] } },
  });
  const tensor = tensors.get("x")!;
  const weight = device.mapWeight([{ tensor }], 2);
  assertEquals(weight, { handle: 1, rows: 4, cols: 2 });
  assertEquals([...device.readWeight(weight, 1, 2)], [3, 4, 5, 6]);
  // Weights that are read to make another one are not counted.
  const made = device.uploadWeight("F32", 1, 2, () => {
    const read = device.readWeight(device.mapWeight([{ tensor }], 2), 2, 1);
    return new Uint8Array(read.slice().buffer);
  });
  assertEquals(made, { handle: 2, rows: 1, cols: 2 });
  assertEquals([device.readWeight(made, 0, 1).length, released], [2, 2]);
  const parts = [{ tensor, firstRow: 1 }, { tensor, firstRow: 1, nRows: 2 }];
  const order = Uint32Array.from(values);
  const ordered = device.mapWeight(parts, 2, order);
  const columnOrder = { handle: 4, rows: 4, cols: 2 };
  assertEquals(ordered, { handle: 3, rows: 5, cols: 2, columnOrder });
  assertThrows(() => device.readWeight(columnOrder, 0, 1), TypeError, "the order of columns");
  assertEquals(device.mapWeight([{ tensor: tensors.get("y")! }], 64).rows, 3);
  assertEquals(sent, []);

  const heads = { nKvHeads: 2, kHeadDim: 8, vHeadDim: 4 };
  const shape = { type: "F16", nPages: 2, pageTokens: 16, ...heads } as const;
  const kv = device.createKv(shape);
  assertEquals([kv.handle, kv.pageBytes], [6, 16 * 2 * (8 + 4) * 2]);
  const state = device.createState({ nSlots: 2, rows: 3, cols: 5 });
  assertEquals([state.handle, state.slotBytes], [7, 4 * 3 * 5]);
  kv.copyPage(0, 1);
  state.copySlot(1, 0);
  assertEquals(device.uploadWeight("F32", 1, 2, new Uint8Array(8)).handle, 8);
  const on = (op: string, rest: JsonObject) => ({ op, ...rest, device: 0 });
  assertEquals(sent, [
    on("weights", { count: 5 }),
    on("kv", { shape }),
    on("state", { shape: { nSlots: 2, rows: 3, cols: 5 } }),
    on("copyPage", { handle: 6, from: 0, to: 1 }),
    on("copySlot", { handle: 7, from: 1, to: 0 }),
    on("upload", { type: "F32", rows: 1, cols: 2 }),
  ]);
  assertThrows(() => device.mapWeight([{ tensor }], 2), TypeError, "after its caches");
  for (const use of [() => kv.readPage(0), () => state.readSlot(0)]) {
    assertThrows(use, ForgeError, "the contents of other processes cannot be read");
  }
});

Deno.test("another process: its errors are those of what it was asked, or its end", async () => {
  const error = { code: "bad_model", message: "NaN" };
  const answering = open({ error });
  const failed = await assertRejects(() => answering.process.call({ op: "run" }), ForgeError);
  assertEquals([failed.code, failed.message], ["bad_model", "process 1: NaN"]);
  assertEquals(answering.lost, []);
  // Unasked, an error is the end, also of what was asked before.
  const { process, lost, tell, sent } = open();
  const asked = process.call({ op: "run" });
  tell({ id: 7, value: {} });
  tell({ error });
  assertEquals((await assertRejects(() => asked, ForgeError)).message, "process 1: NaN");
  assertEquals(lost.map(({ message }) => message), ["process 1: NaN"]);
  await assertRejects(() => process.call({ op: "run" }), ForgeError, "NaN");
  process.post({ op: "profile" });
  await process.end();
  assertEquals(sent.map(({ op }) => op), ["run"]);
  for (const reason of [undefined, new ForgeError("device", "no power")]) {
    const { process, sent, lost } = open();
    await Promise.all([process.end(reason), process.end(reason)]);
    assertEquals(sent, [
      reason === undefined ? { op: "end" } : { op: "abort", reason: "no power" },
    ]);
    assertThrows(() => process.check(), ForgeError, reason?.message ?? "the processes have ended");
    assertEquals(lost, []);
  }
});

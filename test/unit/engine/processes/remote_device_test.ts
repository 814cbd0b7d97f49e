/** A device of another process: what it tells, and what is recorded for it. */
import { assertEquals, assertThrows } from "@std/assert";
import { ForgeError } from "../../../../src/errors.ts";
import type { Device } from "../../../../src/backend.ts";
import type { JsonObject } from "../../../../src/formats/json.ts";
import type { Link, Message } from "../../../../src/engine/processes/link.ts";
import { reportOf } from "../../../../src/engine/processes/messages.ts";
import { RemoteDevice, RemoteProcess } from "../../../../src/engine/processes/remote_device.ts";

const info = { name: "gpu", threads: 1, features: [], kernels: "cuda" };

/** Opens a device of a process that answers every question, and returns what it was sent. */
function open() {
  const sent: JsonObject[] = [];
  let listener: Parameters<Link["listen"]>[0] | undefined;
  const link = {
    listen: (to: typeof listener) => listener = to,
    send(body: JsonObject) {
      sent.push(body);
      const message: Message = {
        body: { id: body.id!, value: { scratchBytes: 3 } },
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
  return { device: new RemoteDevice(process, 0, undefined as never), sent, lost, end };
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

/** Wrappers of the native library: statuses become errors, and calls keep the library open. */
import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import type { Value } from "../../../src/backend.ts";
import { ForgeError } from "../../../src/errors.ts";
import type { Library } from "../../../ffi/library.ts";
import { NativeKvCache, NativeStateCache } from "../../../ffi/native_caches.ts";
import { NativeHandles } from "../../../ffi/native_handles.ts";
import { NativeStep } from "../../../ffi/native_step.ts";
import { CONTROL_MASKS_PENDING, CONTROL_STOP } from "../../../ffi/step_block.ts";
import { UNSAMPLED } from "../../../src/engine/runner.ts";

/** Computes a step, as `forge_step_run` does. */
type RunStep = (
  ...parameters: [unknown, unknown, unknown, results: Int32Array, unknown, control: Int32Array]
) => Promise<number>;

/** A library that notes its calls, all of which return one status. */
function fakeLibrary(status = 0, run?: RunStep) {
  const calls: unknown[][] = [];
  const symbols = new Proxy({}, {
    get: (_, name: string) => (...values: unknown[]) => {
      if (name === "forge_step_run") return run!(...values as Parameters<RunStep>);
      calls.push([name, ...values.filter((value) => !ArrayBuffer.isView(value))]);
      if (name !== "forge_error_text") return status;
      (values[1] as Uint8Array).set(new TextEncoder().encode(`no luck with ${values[0]}\0`));
      return 0;
    },
  });
  const close = () => void calls.push(["close"]);
  const library = { kind: "reference", symbols, close } as unknown as Library;
  return { native: new NativeHandles(library), calls };
}

Deno.test("native: caches and steps pass their handles, and check what is returned", () => {
  const objects = (native: NativeHandles) => {
    const kv = new NativeKvCache(native, 21, 4), state = new NativeStateCache(native, 22, 8);
    const step = new NativeStep(native, 23, 0, 99);
    return { kv, state, step };
  };
  type Objects = ReturnType<typeof objects>;
  const data = new Uint8Array(4);
  const cases: [(of: Objects) => unknown, operation: string, ...call: unknown[]][] = [
    [({ kv }) => kv.copyPage(1, 2), "copying a KV page", "forge_kv_copy_page", 21, 1, 2],
    [({ kv }) => kv.readPage(3), "reading a KV page", "forge_kv_read_page", 21, 3, 4n],
    [({ kv }) => kv.writePage(3, data), "writing a KV page", "forge_kv_write_page", 21, 3, 4n],
    [
      ({ state }) => state.copySlot(1, 2),
      "copying a recurrent state",
      ...["forge_state_copy_slot", 22, 1, 2],
    ],
    [
      ({ state }) => state.readSlot(3),
      "reading a recurrent state",
      ...["forge_state_read_slot", 22, 3, 8n],
    ],
    [
      ({ state }) => state.writeSlot(3, data),
      "writing a recurrent state",
      ...["forge_state_write_slot", 22, 3, 4n],
    ],
    [
      ({ step }) => step.read(5 as Value, 6, 7, 2),
      "reading a value",
      ...["forge_step_read", 23, 5, 7n, 2n, 48n],
    ],
    [({ step }) => step.nativeTime(), "timing a step", "forge_step_time", 23],
    [({ step }) => step.profile(true), "profiling a step", "forge_step_profile", 23, 1],
    [({ step }) => step.profile(false), "profiling a step", "forge_step_profile", 23, 0],
    [
      ({ step }) => step.operationTimes(),
      "reading the times of a step",
      ...["forge_step_spans", 23, 0n],
    ],
  ];
  for (const [use, operation, ...call] of cases) {
    const failing = fakeLibrary(1);
    const error = assertThrows(() => use(objects(failing.native)), ForgeError);
    assertEquals([error.code, error.message], ["device", `${operation}: no luck with ${call[1]}`]);
    assertEquals(failing.calls[0], call);
    if (call[0] === "forge_step_spans") continue;
    const working = fakeLibrary();
    use(objects(working.native));
    assertEquals(working.calls, [call]);
  }
});

Deno.test("native: a library is closed once, after the last call in progress", async () => {
  const { native, calls } = fakeLibrary();
  for (const handle of [5, 6, 7]) assertEquals(native.adopt(handle), handle);
  native.release(6);
  native.release(6);
  native.release(8);
  assertEquals(calls, [["forge_release", 6]]);
  const [first, second] = [0, 1].map(() => Promise.withResolvers<number>());
  const running = [first, second].map((call) => native.call("a call", 5, () => call!.promise));
  native.close();
  native.close();
  assertThrows(() => native.symbols, ForgeError, "the reference device is closed");
  first!.resolve(0);
  await running[0];
  assertEquals(calls.length, 1);
  second!.resolve(3);
  await assertRejects(() => running[1]!, ForgeError, "a call: no luck with 5");
  assertEquals(calls.filter(([name]) => name !== "forge_error_text").slice(1), [
    ["forge_release", 5],
    ["forge_release", 7],
    ["close"],
  ]);
  const idle = fakeLibrary();
  await idle.native.call("a call", 1, () => Promise.resolve(0));
  assertEquals(idle.calls, []);
  idle.native.close();
  assertEquals(idle.calls, [["close"]]);
});

Deno.test("native: a run waits for masks that are filled while it computes", async () => {
  const { forcedToken: _, ...output } = { ...UNSAMPLED, row: 0 };
  const runWith = async (fillMask?: () => void) => {
    const pending: number[] = [];
    const { native } = fakeLibrary(0, async (_step, _block, _bytes, results, _size, control) => {
      pending.push(control[CONTROL_MASKS_PENDING]!);
      await Promise.resolve();
      pending.push(control[CONTROL_MASKS_PENDING]!);
      results[0] = 9;
      return 0;
    });
    const sampling = { ...output.sampling, mask: Uint32Array.of(1) };
    const [result] = await new NativeStep(native, 23, 0, 0).run({
      ...{ tokens: [1], positions: [0], sequences: [0], pageTables: [[0]] },
      outputs: [{ ...output, sampling, fillMask }],
    });
    return [pending, result instanceof ForgeError ? result.message : result!.token];
  };
  assertEquals(await runWith(), [[0, 0], 9]);
  assertEquals(await runWith(() => {}), [[60_000, 0], 9]);
  const failing = (error: Error) => () => {
    throw error;
  };
  assertEquals(await runWith(failing(new ForgeError("bad_input", "no token"))), [
    [60_000, 0],
    "no token",
  ]);
  assertEquals(await runWith(failing(new Error("a bug"))), [[60_000, 0], "Error: a bug"]);
});

Deno.test("native: a step runs once at a time, and is released after its run", async () => {
  const runs: { end: (status: number) => void; control: Int32Array }[] = [];
  const { native, calls } = fakeLibrary(
    0,
    (...[, , , , , control]) => new Promise((end) => runs.push({ end, control })),
  );
  native.adopt(23);
  const step = new NativeStep(native, 23, 0, 0);
  const inputs = { tokens: [1], positions: [0], sequences: [0], pageTables: [[0]], outputs: [] };
  step.cancel();
  const first = step.run(inputs);
  const { control, end } = runs[0]!;
  assertEquals(control[CONTROL_STOP], 0);
  step.cancel();
  assertEquals(control[CONTROL_STOP], 1);
  await assertRejects(() => step.run(inputs), ForgeError, "this step is already running");
  end(6);
  assertEquals((await assertRejects(() => first, ForgeError)).code, "cancelled");
  const second = step.run(inputs);
  assertEquals(control[CONTROL_STOP], 0);
  step.release();
  assertEquals(calls.filter(([name]) => name === "forge_release"), []);
  runs[1]!.end(0);
  await second;
  assertEquals(calls.filter(([name]) => name === "forge_release"), [["forge_release", 23]]);
  await assertRejects(() => step.run(inputs), ForgeError, "this step was released");
});

/** Invalid, mismatched and released handles return a status and never crash. */
import { assert, assertEquals } from "@std/assert";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { symbols } from "../../../ffi/abi.ts";
import { findLibrary, Library } from "../../../ffi/library.ts";
import { CONTROL_MASKS_PENDING, CONTROL_WORDS, InputBlock } from "../../../ffi/step_block.ts";
import { cString, readText } from "../../../ffi/status.ts";
import { readHeader } from "../../support/header.ts";
import { greedy, outputRow, tokenInputs } from "../../support/step_graph.ts";
import { TempFolder } from "../../support/temp_folder.ts";

const ignore = findLibrary("reference") === undefined;
if (ignore) console.error("skipping: the reference library is missing");

const statuses = readHeader().enums.find((values) => values.has("FORGE_OK"))!;
const OK = statuses.get("FORGE_OK");
const BAD_HANDLE = statuses.get("FORGE_BAD_HANDLE");
const INVALID_ARGUMENT = statuses.get("FORGE_INVALID_ARGUMENT");
const UNSUPPORTED = statuses.get("FORGE_UNSUPPORTED");

type Name = keyof typeof symbols;
type Argument = number | bigint | Uint8Array<ArrayBuffer>;

/** Functions whose first parameter is a handle. */
const handleFunctions = (Object.keys(symbols) as Name[])
  .filter((name) => symbols[name].parameters[0] === "u32");

/** Calls any function, with zeros for all arguments but the first. */
async function call(library: Library, name: Name, handle: number): Promise<number> {
  const others = symbols[name].parameters.slice(1).map((type): Argument =>
    type === "buffer" ? new Uint8Array(64) : type === "u64" ? 0n : 0
  );
  const fn = library.symbols[name] as (...values: Argument[]) => number | Promise<number>;
  return await fn(handle, ...others);
}

function openDevice(library: Library): number {
  const device = new Uint32Array(1);
  const message = new Uint8Array(100);
  const selector = new Uint8Array(1);
  assertEquals(library.symbols.forge_device_open(selector, 1, device, message, 100n), OK);
  return device[0]!;
}

function upload(library: Library, device: number, data = new Float32Array(4)): number {
  const weight = new Uint32Array(1);
  const { forge_weight_upload } = library.symbols;
  assertEquals(forge_weight_upload(device, 0, 1n, 4n, data, 16n, weight), OK);
  return weight[0]!;
}

function beginStep(library: Library, device: number): number {
  const step = new Uint32Array(1);
  assertEquals(library.symbols.forge_step_begin(device, 1, 1, 1, 1, step), OK);
  return step[0]!;
}

function errorText(library: Library, handle: number): string {
  return readText((buffer, capacity) => {
    assertEquals(library.symbols.forge_error_text(handle, buffer, capacity), OK);
  });
}

Deno.test({
  name: "handles: unknown and released handles return a status",
  ignore,
  async fn() {
    using library = Library.open("reference");
    const device = openDevice(library);
    const released = upload(library, device);
    assertEquals(library.symbols.forge_release(released), OK);
    const unknown = [0, 1, 7, 0xfffff, 0x7fffffff, 0xffffffff, device + 100, device ^ (3 << 20)];
    assert(handleFunctions.length >= 25);
    for (const name of handleFunctions) {
      for (const handle of [...unknown, released]) {
        assertEquals(await call(library, name, handle), BAD_HANDLE, `${name}(${handle})`);
      }
    }
    library.symbols.forge_release(device);
  },
});

Deno.test({
  name: "handles: a handle of another kind returns a status and names the kind",
  ignore,
  async fn() {
    using library = Library.open("reference");
    const device = openDevice(library);
    const weight = upload(library, device);
    const step = beginStep(library, device);
    const forAny: Name[] = ["forge_release", "forge_error_text"];
    for (const name of handleFunctions.filter((name) => !forAny.includes(name))) {
      const kind = readHeader().functions.get(name)!.parameters[0]!.name;
      for (const [other, handle] of Object.entries({ device, weight, step })) {
        if (other === kind) continue;
        assertEquals(await call(library, name, handle), BAD_HANDLE, `${name}(${other})`);
        assertEquals(
          errorText(library, handle),
          `handle ${handle} is not a live ${kindName(kind)}`,
        );
      }
    }
    for (const handle of [step, weight, device]) library.symbols.forge_release(handle);
  },
});

/** Names of handle kinds in messages, by parameter name. */
function kindName(parameter: string): string {
  if (parameter === "kv") return "KV cache";
  return parameter === "state" ? "state cache" : parameter;
}

/** Valid arguments of a call. Null buffers are optional. */
type Call = readonly [
  name: Name,
  handle: number,
  ...others: (number | bigint | ArrayBufferView | null)[],
];

Deno.test({
  name: "calls: null buffers, a missing device, and steps that are still recorded are errors",
  ignore,
  async fn() {
    using folder = new TempFolder();
    using library = Library.open("reference");
    const { symbols: s } = library;
    const words = (...values: readonly (number | bigint)[]) =>
      new Uint8Array(BigUint64Array.from(values, BigInt).buffer);
    const out = () => new Uint8Array(256);
    const handles: Uint32Array<ArrayBuffer>[] = [];
    const made = () => handles[handles.push(new Uint32Array(1)) - 1]!;
    const make = (call: (handle: Uint32Array<ArrayBuffer>) => number) => {
      const handle = made();
      assertEquals(call(handle), OK);
      return handle[0]!;
    };
    const device = openDevice(library);
    const weight = upload(library, device);
    const bytes = new BigUint64Array(1);
    const kv = make((handle) => s.forge_kv_create(device, 0, 1, 1, 1, 4, 4, 0, handle, bytes));
    const pageBytes = bytes[0]!;
    const state = make((handle) => s.forge_state_create(device, 1, 1, 8, handle, bytes));
    const slotBytes = bytes[0]!;
    const path = cString(folder.write("floats", new Uint8Array(128)));
    const file = make((handle) => s.forge_file_map(device, path, handle, out()));
    const begin = () => {
      const step = beginStep(library, device);
      const operands = Uint32Array.of(weight, 0);
      const value = new Uint32Array(1);
      assertEquals(s.forge_record(step, cString("embed"), operands, 2n, value), OK);
      assertEquals(s.forge_step_keep(step, value[0]!), OK);
      return { step, value: value[0]! };
    };
    const recorded = begin(), { step, value } = begin();
    assertEquals(await s.forge_step_end(step, out()), OK);
    const inputs = new InputBlock().pack(tokenInputs(1));
    const ofSteps: Call[] = [
      ["forge_step_run", step, inputs, BigInt(inputs.byteLength), null, 0n, null],
      ["forge_step_profile", step, 1],
      ["forge_step_spans", step, out(), 256n, out()],
      ["forge_step_read", step, value, 0n, 1n, out(), 16n],
    ];
    const part = words(file, 0, 1), places = words(file, ...Array<number>(9).fill(0));
    // 32 floats that become a row of Q8_0.
    const matrix = words(5n | 8n << 32n, 1, 32, 1, 32);
    const calls: Call[] = [
      ["forge_device_info", device, out(), 256n],
      ["forge_device_memory", device, out(), out()],
      ["forge_set_memory", device, 0n, out()],
      ["forge_streamed_bytes", device, out(), out()],
      ["forge_read_bandwidth", device, out()],
      ["forge_matrix_rate", device, out()],
      ["forge_group_keys", device, out(), 128n],
      ["forge_error_text", device, out(), 256n],
      ["forge_file_map", device, path, made(), out()],
      ["forge_rows_create", device, matrix, places, made()],
      ["forge_columns_create", device, part, 8n, 0n, 4n, made()],
      ["forge_weight_create", device, part, 1n, 8n, made()],
      ["forge_weight_upload", device, 0, 1n, 4n, out(), 16n, made()],
      ["forge_weight_read", weight, 0n, 1n, out(), 16n],
      ["forge_quantize", device, 0, 1n, 4n, out(), 16n, null, out(), 16n],
      ["forge_kv_create", device, 0, 1, 1, 1, 4, 4, 0, made(), out()],
      ["forge_kv_read_page", kv, 0, out(), pageBytes],
      ["forge_kv_write_page", kv, 0, out(), pageBytes],
      ["forge_state_create", device, 1, 1, 8, made(), out()],
      ["forge_state_read_slot", state, 0, out(), slotBytes],
      ["forge_state_write_slot", state, 0, out(), slotBytes],
      ["forge_step_begin", device, 1, 1, 1, 1, made()],
      ["forge_record", recorded.step, cString("embed"), words(weight), 2n, out()],
      ["forge_step_time", step, out()],
      ...ofSteps,
      ["forge_step_end", recorded.step, out()],
      ["forge_group_abort", device, cString("a test")],
    ];
    const named = calls.map(([name]) => name);
    for (const name of handleFunctions) {
      assert(named.includes(name) || !symbols[name].parameters.includes("buffer" as never), name);
    }
    const run = ([name, ...values]: Call) =>
      (s[name] as (...values: unknown[]) => number | Promise<number>)(...values);
    for (const [name, , ...others] of ofSteps) {
      assertEquals(await run([name, recorded.step, ...others]), INVALID_ARGUMENT, name);
      assertEquals(errorText(library, recorded.step), "step: recording has not ended", name);
    }
    for (const [name, handle, ...others] of calls) {
      assertEquals(await run([name, 0, ...others]), BAD_HANDLE, name);
      for (const [i, value] of others.entries()) {
        if (!ArrayBuffer.isView(value)) continue;
        const result = await run([name, handle, ...others.with(i, null)]);
        assertEquals(result, INVALID_ARGUMENT, `${name}, parameter ${i + 1}`);
      }
      const result = await run([name, handle, ...others]);
      assert(result === OK || result === UNSUPPORTED, `${name}: ${result}`);
    }
    const neither = s.forge_kv_create(device, 0, 1, 1, 1, 4, 4, 2, out(), out());
    assertEquals(neither, INVALID_ARGUMENT, "values_in_keys");
    for (const [handle] of handles.reverse()) assertEquals(s.forge_release(handle!), OK);
    for (const handle of [step, recorded.step, weight, device]) s.forge_release(handle);
  },
});

Deno.test({
  name: "handles: a reused slot has a new number",
  ignore,
  fn() {
    using library = Library.open("reference");
    const device = openDevice(library);
    const seen = new Set<number>();
    for (let i = 0; i < 10000; i++) {
      const weight = upload(library, device);
      // A slot is reused 4095 times before a number repeats.
      if (i < 4000) assert(!seen.has(weight), `handle ${weight}, ${i}`);
      seen.add(weight);
      assertEquals(library.symbols.forge_release(weight), OK);
      assertEquals(library.symbols.forge_release(weight), BAD_HANDLE);
    }
    assert(!seen.has(0) && !seen.has(device));
    library.symbols.forge_release(device);
    // Handle 0 is no object, although the first slot is reused as often.
    for (let i = 0; i < 5000; i++) {
      const other = openDevice(library);
      assert(other !== 0, `device ${i}`);
      assertEquals(library.symbols.forge_release(other), OK);
    }
  },
});

Deno.test({
  name: "handles: objects that a step uses survive the release of their handles",
  ignore,
  async fn() {
    using library = Library.open("reference");
    const { symbols } = library;
    const device = openDevice(library);
    const weight = upload(library, device, Float32Array.of(1, 2, 3, 4));
    const step = beginStep(library, device);
    const value = new Uint32Array(1);
    const operands = Uint32Array.of(weight, 0x40000000 /* the bits of 2 */);
    assertEquals(symbols.forge_record(step, cString("embed"), operands, 2n, value), OK);
    assertEquals(symbols.forge_step_keep(step, value[0]!), OK);
    assertEquals(symbols.forge_release(weight), OK);
    assertEquals(symbols.forge_release(device), OK);
    assertEquals(await symbols.forge_step_end(step, new BigUint64Array(1)), OK);
    const inputs = new InputBlock().pack(tokenInputs(1));
    const bytes = BigInt(inputs.byteLength);
    assertEquals(await symbols.forge_step_run(step, inputs, bytes, null, 0n, null), OK);
    const out = new Float32Array(4);
    assertEquals(symbols.forge_step_read(step, value[0]!, 0n, 1n, out, 16n), OK);
    assertEquals([...out], [2, 4, 6, 8]);
    assertEquals(symbols.forge_release(step), OK);
  },
});

Deno.test({
  name: "handles: a run in progress keeps its buffers in memory",
  ignore,
  async fn() {
    setFlagsFromString("--expose-gc");
    const collectGarbage: () => void = runInNewContext("gc");
    using library = Library.open("reference");
    const { symbols } = library;
    const device = openDevice(library);
    const step = beginStep(library, device);
    const record = (operation: string, ...operands: number[]) => {
      const value = new Uint32Array(1);
      const words = Uint32Array.from(operands);
      const { length } = operands;
      assertEquals(
        symbols.forge_record(step, cString(operation), words, BigInt(length), value),
        OK,
      );
      return value[0]!;
    };
    const table = upload(library, device, Float32Array.of(1, 2, 3, 4));
    const rows = record("gather_outputs", record("embed", table, 0x40000000 /* 2 */));
    record("sample", rows, 0);
    assertEquals(await symbols.forge_step_end(step, new BigUint64Array(1)), OK);
    const control = new Int32Array(CONTROL_WORDS);
    control[CONTROL_MASKS_PENDING] = 60_000;
    /** Starts a run that waits for its mask; returns references that hold none of its buffers. */
    const start = () => {
      const output = outputRow(0, { sampling: { ...greedy, mask: Uint32Array.of(0b0010) } });
      const inputs = new InputBlock().pack({ ...tokenInputs(1), outputs: [output] });
      const results = new Uint8Array(16);
      const run = symbols.forge_step_run(
        step,
        inputs,
        BigInt(inputs.byteLength),
        results,
        BigInt(results.byteLength),
        control,
      );
      return { run, buffers: [new WeakRef(inputs.buffer), new WeakRef(results.buffer)] };
    };
    const { run, buffers } = start();
    // A weak reference holds its object until the next turn of the event loop.
    await new Promise((turn) => setTimeout(turn));
    collectGarbage();
    const missing = buffers.filter((buffer) => buffer.deref() === undefined).length;
    Atomics.store(control, CONTROL_MASKS_PENDING, 0);
    assertEquals(await run, OK);
    assertEquals(missing, 0);
    for (const handle of [step, table, device]) assertEquals(symbols.forge_release(handle), OK);
  },
});

Deno.test({
  name: "handles: each keeps the text of its own last failure",
  ignore,
  fn() {
    using library = Library.open("reference");
    const device = openDevice(library);
    const first = upload(library, device), second = upload(library, device);
    const out = new Float32Array(4);
    assertEquals(errorText(library, first), "");
    const { forge_weight_read } = library.symbols;
    assertEquals(forge_weight_read(first, 5n, 1n, out, 16n), INVALID_ARGUMENT);
    assertEquals(errorText(library, first), "rows [5, 5 + 1) of a weight of 1");
    assertEquals(errorText(library, second), "");
    assertEquals(errorText(library, device), "");
    assertEquals(forge_weight_read(first, 0n, 1n, out, 16n), OK);
    for (const handle of [first, second, device]) library.symbols.forge_release(handle);
  },
});

Deno.test({
  name: "text: truncated to the buffer, and always terminated",
  ignore,
  fn() {
    using library = Library.open("reference");
    const { forge_list_devices, forge_library_info, forge_device_open } = library.symbols;
    const whole = readText((buffer, capacity) => forge_list_devices(buffer, capacity));
    for (const capacity of [1, 2, 10, whole.length, whole.length + 1]) {
      const buffer = new Uint8Array(capacity + 4).fill(0xaa);
      assertEquals(forge_list_devices(buffer, BigInt(capacity)), OK);
      const kept = Math.min(whole.length, capacity - 1);
      assertEquals(new TextDecoder().decode(buffer.subarray(0, kept)), whole.slice(0, kept));
      assertEquals(buffer[kept], 0);
      assert(buffer.subarray(capacity).every((byte) => byte === 0xaa), "nothing past the end");
    }
    assertEquals(forge_library_info(new Uint8Array(8), 0n), INVALID_ARGUMENT);
    assertEquals(forge_library_info(null, 8n), INVALID_ARGUMENT);
    // A failure without room for its reason still has its status.
    const device = new Uint32Array(1);
    const selector = new TextEncoder().encode("turbo\0");
    assertEquals(forge_device_open(selector, 1, device, null, 0n), INVALID_ARGUMENT);
    assertEquals(forge_device_open(null, 1, device, null, 0n), INVALID_ARGUMENT);
    assertEquals(forge_device_open(cString(""), 1, null, null, 0n), INVALID_ARGUMENT);
    assertEquals(library.symbols.forge_peak_memory(null), INVALID_ARGUMENT);
  },
});

/** Direct calls of a library's functions, for tests of the checks at the C ABI. */
import { Library } from "../../ffi/library.ts";
import type { Symbols } from "../../ffi/abi.ts";
import { type OperationDescription, readOperations } from "../../ffi/native_recorder.ts";
import { cString } from "../../ffi/status.ts";
import { devices, type TestDevice } from "./devices.ts";
import type { Matrix } from "./matrix.ts";
import { Random } from "./random.ts";
import { f32Weight } from "./weights.ts";

/** `forge_status` values; `test/unit/ffi/abi_test.ts` compares the names with the header. */
export const status = {
  ok: 0,
  invalidArgument: 1,
  badHandle: 2,
  outOfMemory: 3,
  unsupported: 5,
  cancelled: 6,
} as const;

/** Unusual numbers that programs may pass by mistake. */
export const oddWords = [
  ...[0, 1, 2, 3, 7, 8, 31, 32, 33, 255, 256, 0x7fffffff, 0x80000000, 0xffffffff],
  // As floats: 1, -1, infinity, NaN, the smallest subnormal.
  ...[0x3f800000, 0xbf800000, 0x7f800000, 0x7fc00000],
];

/** The word of `forge_record` that encodes a float. */
export function floatWord(value: number): number {
  return new Uint32Array(Float32Array.of(value).buffer)[0]!;
}

/** An open device without wrappers. */
export class RawBorder implements Disposable {
  readonly symbols: Symbols;
  readonly device: number;
  readonly #library: Library;
  readonly #handles: number[] = [];

  constructor({ kind, selector }: TestDevice) {
    this.#library = Library.open(kind);
    this.symbols = this.#library.symbols;
    const name = new TextEncoder().encode(`${selector}\0`);
    this.device = this.make((out) => this.symbols.forge_device_open(name, 2, out, null, 0n));
  }

  /**
   * Returns the handle that a function stores through its last parameter; the call must succeed.
   */
  make(call: (out: Uint32Array<ArrayBuffer>) => number): number {
    const handle = this.value(call);
    this.#handles.push(handle);
    return handle;
  }

  /** Returns the value that a function stores through its last parameter; the call must succeed. */
  value(call: (out: Uint32Array<ArrayBuffer>) => number): number {
    const out = new Uint32Array(1);
    const result = call(out);
    if (result !== status.ok) throw new Error(`status ${result}`);
    return out[0]!;
  }

  /** An F32 weight. */
  upload(matrix: Matrix): number {
    const { rows, cols, bytes } = f32Weight(matrix);
    return this.make((out) =>
      this.symbols.forge_weight_upload(
        this.device,
        0,
        BigInt(rows),
        BigInt(cols),
        bytes,
        BigInt(bytes.length),
        out,
      )
    );
  }

  /** Returns the status of recording an operation, and the value that it defines. */
  tryRecord(step: number, operation: string, words: readonly number[]): [number, number] {
    const out = new Uint32Array(1);
    const result = this.symbols.forge_record(
      step,
      cString(operation),
      Uint32Array.from(words),
      BigInt(words.length),
      out,
    );
    return [result, out[0]!];
  }

  /** Records an operation, which must succeed; returns the value that it defines. */
  record(step: number, operation: string, ...words: readonly number[]): number {
    const [result, value] = this.tryRecord(step, operation, words);
    if (result !== status.ok) throw new Error(`${operation}: status ${result}`);
    return value;
  }

  /** The library's table of operations. */
  operations(): ReadonlyMap<string, OperationDescription> {
    return readOperations(this.#library);
  }

  /** Runs a step with room for a given number of results. */
  run(
    step: number,
    inputs: Int32Array<ArrayBuffer>,
    results: Uint8Array<ArrayBuffer> = new Uint8Array(0),
  ): Promise<number> {
    return this.symbols.forge_step_run(
      step,
      inputs,
      BigInt(inputs.byteLength),
      results,
      BigInt(results.byteLength),
      null,
    );
  }

  [Symbol.dispose](): void {
    for (const handle of this.#handles.reverse()) this.symbols.forge_release(handle);
    this.#library.close();
  }
}

/** Registers a test for each device; its random numbers depend only on the seed and its name. */
export function borderTest(
  name: string,
  fn: (border: RawBorder, random: Random) => Promise<void> | void,
): void {
  for (const device of devices) {
    Deno.test(`${name} (${device.name})`, async () => {
      using border = new RawBorder(device);
      await fn(border, new Random(name));
    });
  }
}

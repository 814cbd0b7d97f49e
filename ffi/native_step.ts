import type {
  OperationTime,
  OutputRequest,
  Step,
  StepInputs,
  StepResult,
  Value,
} from "../src/backend.ts";
import { ForgeError } from "../src/errors.ts";
import type { NativeHandles } from "./native_handles.ts";
import {
  CONTROL_MASKS_PENDING,
  CONTROL_STOP,
  CONTROL_WORDS,
  InputBlock,
  OutputBlock,
} from "./step_block.ts";
import { readText } from "./status.ts";

/** Time a run waits for its masks before it fails; they normally take milliseconds. */
const MASK_TIMEOUT_MS = 60_000;

/** A recorded step of a native device. */
export class NativeStep implements Step {
  readonly scratchBytes: number;
  readonly #native: NativeHandles;
  readonly #step: number;
  readonly #inputs = new InputBlock();
  readonly #outputs: OutputBlock;
  readonly #control = new Int32Array(CONTROL_WORDS);
  #running = false;
  #released = false;

  constructor(native: NativeHandles, step: number, maxTop: number, scratchBytes: number) {
    this.#native = native;
    this.#step = step;
    this.#outputs = new OutputBlock(maxTop);
    this.scratchBytes = scratchBytes;
  }

  async run(inputs: StepInputs): Promise<StepResult[]> {
    if (this.#running) throw new ForgeError("device", "this step is already running");
    if (this.#released) throw new ForgeError("device", "this step was released");
    const block = this.#inputs.pack(inputs);
    const nResults = inputs.outputs.length * (inputs.nSteps ?? 1);
    const results = this.#outputs.reserve(nResults);
    const late = inputs.outputs.some(({ fillMask }) => fillMask !== undefined);
    this.#control[CONTROL_MASKS_PENDING] = late ? MASK_TIMEOUT_MS : 0;
    this.#running = true;
    let failures: ReadonlyMap<number, ForgeError>;
    try {
      const run = this.#native.call("step_run", this.#step, (symbols) =>
        symbols.forge_step_run(
          this.#step,
          block,
          BigInt(block.byteLength),
          results,
          BigInt(results.byteLength),
          this.#control,
        ));
      failures = this.#fillMasks(inputs.outputs);
      await run;
    } finally {
      this.#running = false;
      this.#control[CONTROL_STOP] = 0;
      if (this.#released) this.#native.release(this.#step);
    }
    return this.#outputs.unpack(nResults)
      .map((result, output) => failures.get(output) ?? result);
  }

  /** Fills masks while the device computes the part before sampling; returns errors by output. */
  #fillMasks(outputs: readonly OutputRequest[]): ReadonlyMap<number, ForgeError> {
    const failures = new Map<number, ForgeError>();
    for (const [i, { fillMask, sampling }] of outputs.entries()) {
      if (fillMask === undefined || sampling.mask === undefined) continue;
      try {
        fillMask();
        this.#inputs.updateMask(sampling.mask);
      } catch (error) {
        // The output is sampled with an arbitrary mask, and its result is discarded.
        failures.set(
          i,
          error instanceof ForgeError ? error : new ForgeError("device", String(error)),
        );
      }
    }
    Atomics.store(this.#control, CONTROL_MASKS_PENDING, 0);
    return failures;
  }

  read(value: Value, cols: number, firstRow: number, nRows: number): Float32Array {
    const out = new Float32Array(nRows * cols);
    const status = this.#native.symbols.forge_step_read(
      this.#step,
      value,
      BigInt(firstRow),
      BigInt(nRows),
      out,
      BigInt(out.byteLength),
    );
    this.#native.check(status, "reading a value", this.#step);
    return out;
  }

  nativeTime(): number {
    const time = new BigUint64Array(1);
    const status = this.#native.symbols.forge_step_time(this.#step, time);
    this.#native.check(status, "timing a step", this.#step);
    return Number(time[0]);
  }

  profile(enabled: boolean): void {
    const status = this.#native.symbols.forge_step_profile(this.#step, Number(enabled));
    this.#native.check(status, "profiling a step", this.#step);
  }

  operationTimes(): OperationTime[] {
    const size = new BigUint64Array(1);
    const read = (buffer: Uint8Array<ArrayBuffer>, capacity: bigint) => {
      const status = this.#native.symbols.forge_step_spans(this.#step, buffer, capacity, size);
      this.#native.check(status, "reading the times of a step", this.#step);
    };
    read(new Uint8Array(0), 0n);
    return JSON.parse(readText(read, Number(size[0]))) as OperationTime[];
  }

  cancel(): void {
    if (this.#running) Atomics.store(this.#control, CONTROL_STOP, 1);
  }

  release(): void {
    this.#released = true;
    // A run looks up its handle on another thread, possibly after this call.
    if (!this.#running) this.#native.release(this.#step);
  }
}

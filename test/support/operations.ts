/** Tests of one operation on all devices, from one description. */
import type { Backend } from "../../src/backend.ts";
import {
  devices,
  isEmulated,
  isGpu,
  openDevice,
  referenceDevice,
  type TestDevice,
} from "./devices.ts";
import { assertClose, type Matrix, type Tolerance } from "./matrix.ts";
import { Random } from "./random.ts";
import type { TestWeight } from "./weights.ts";

/** The test of an operation. */
export interface OpTest<Case> {
  /** Inputs and their labels for error messages. */
  readonly cases: (random: Random) => readonly (readonly [label: string, inputs: Case])[];
  /** Runs the operation on a device. */
  readonly run: (device: Backend, inputs: Case) => Promise<Matrix>;
  /** The operation in plain TypeScript; `read` dequantizes a weight. */
  readonly plain: (inputs: Case, read: (weight: TestWeight) => Matrix) => Matrix;
  /** Allowed difference between a device and the reference. */
  readonly tolerance: Tolerance;
  /** The same for GPUs whose matrix units round to 16 bits. @default `tolerance` */
  readonly gpuTolerance?: Tolerance;
  /**
   * Allowed difference between the reference and the plain computation, which sums in float64: a
   * few roundings to float32. @default { absolute: 4e-7, relative: 4e-7 }
   */
  readonly referenceTolerance?: Tolerance;
  /** Devices that have the operation, besides the reference. @default all */
  readonly only?: readonly TestDevice[] | undefined;
}

function reader(device: Backend): (weight: TestWeight) => Matrix {
  return ({ type, rows, cols, bytes }) => {
    const weight = device.uploadWeight(type, rows, cols, bytes);
    return { rows, cols, data: new Float32Array(device.readWeight(weight, 0, rows)) };
  };
}

/**
 * Registers the tests of an operation: the reference device against the plain computation, every
 * other device against the reference device. Runs on emulated GPUs leave out the former, which
 * passes or fails without them.
 */
export function opTest<Case>(name: string, test: OpTest<Case>): void {
  const { referenceTolerance = { absolute: 4e-7, relative: 4e-7 } } = test;
  let inputs: readonly (readonly [label: string, inputs: Case])[] | undefined;
  const cases = () => inputs ??= test.cases(new Random(name));
  const references = new Map<Case, Matrix>();

  if (!isEmulated) {
    Deno.test(`${name} (reference)`, async () => {
      using reference = openDevice(referenceDevice);
      for (const [label, inputs] of cases()) {
        const actual = await test.run(reference, inputs);
        references.set(inputs, actual);
        const expected = test.plain(inputs, reader(reference));
        assertClose(actual, expected, referenceTolerance, `${name}: ${label}`);
      }
    });
  }

  const { only = devices } = test;
  for (const device of only.filter((device) => device.kind !== "reference")) {
    Deno.test(`${name} (${device.name})`, async () => {
      using reference = openDevice(referenceDevice);
      using backend = openDevice(device);
      for (const [label, inputs] of cases()) {
        const expected = references.get(inputs) ?? await test.run(reference, inputs);
        references.set(inputs, expected);
        const actual = await test.run(backend, inputs);
        const { tolerance, gpuTolerance = tolerance } = test;
        const allowed = isGpu(device) ? gpuTolerance : tolerance;
        assertClose(actual, expected, allowed, `${name}: ${label}`);
      }
    });
  }
}

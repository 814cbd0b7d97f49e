/**
 * On the CPU a step may run before its weights are packed: the first run then multiplies with
 * unpacked weights. Its bits are those of later runs.
 */
import type { NativeBackend } from "../../ffi/native_backend.ts";
import { devices, openDevice } from "../support/devices.ts";
import { assertSameBits, type Matrix, randomMatrix } from "../support/matrix.ts";
import { Random } from "../support/random.ts";
import { limitsOf, StepGraph, tokenInputs } from "../support/step_graph.ts";
import { randomWeight } from "../support/weights.ts";

const COLS = 256;
/** Large enough that packing the weight takes much longer than beginning a run. */
const ROWS_BEFORE = 1 << 16;
/** Not a multiple of a panel, and more than are multiplied at a time. */
const ROWS = 32 * 16 + 8;
const TYPES = ["Q4_0", "Q8_0", "Q4_K", "Q6_K", "MXFP4", "F16", "BF16", "F32"] as const;

/** The products with weights of every type in some runs of one step, concatenated. */
async function runs(device: NativeBackend, x: Matrix, count: number): Promise<Matrix[][]> {
  const inputs = tokenInputs(x.rows);
  const recorder = device.record(limitsOf(inputs));
  const graph = new StepGraph(device, recorder);
  const random = new Random("first run");
  const input = graph.input(x);
  const zeros = new Uint8Array(ROWS_BEFORE * COLS * 4);
  recorder.matmul(input, device.uploadWeight("F32", ROWS_BEFORE, COLS, zeros));
  const products = TYPES.map((type) =>
    recorder.matmul(input, graph.weight(randomWeight(random, type, ROWS, COLS)))
  );
  const gate = recorder.matmul(input, graph.weight(randomWeight(random, "Q4_0", ROWS - 8, COLS)));
  const values = [
    ...products.map((value) => ({ value, cols: ROWS })),
    { value: recorder.glu(gate, (ROWS - 8) / 2, "silu"), cols: (ROWS - 8) / 2 },
  ];
  for (const { value } of values) recorder.keep(value);
  const step = await recorder.finish();
  const results: Matrix[][] = [];
  for (let i = 0; i < count; i++) {
    await step.run(inputs);
    results.push(values.map(({ value, cols }) => {
      return { rows: x.rows, cols, data: new Float32Array(step.read(value, cols, 0, x.rows)) };
    }));
  }
  step.release();
  return results;
}

for (const device of devices.filter(({ kind }) => kind === "cpu")) {
  Deno.test(`a step's first run gives the bits of its later ones (${device.name})`, async () => {
    for (const nTokens of [1, 7, 21]) {
      using backend = openDevice(device);
      const x = randomMatrix(new Random(`${nTokens} tokens`), nTokens, COLS);
      const [first = [], ...later] = await runs(backend, x, 3);
      for (const again of later) {
        for (const [i, value] of again.entries()) {
          assertSameBits(first[i]!, value, `${TYPES[i] ?? "gated"}, ${nTokens} tokens`);
        }
      }
    }
  });
}

/**
 * Runs products of a few tokens on the CUDA device: `trace_products.ts TYPE ROWS COLS SEQUENCES
 * TOKENS`. For traces of their memory accesses, so that the results do not matter.
 */
import { continuedSequences } from "../../bench/step_inputs.ts";
import { openBackend } from "../../src/engine/load/open_backend.ts";
import { tensorBytes, type TensorType } from "../../src/formats/tensor_info.ts";

const [type = "", ...numbers] = Deno.args;
const [rows = 0, cols = 0, nSequences = 0, tokens = 0] = numbers.map(Number);
const backend = openBackend("cuda");
try {
  const upload = (of: string, nRows: number) =>
    backend.uploadWeight(
      of as TensorType,
      nRows,
      cols,
      new Uint8Array(Number(tensorBytes(of as TensorType, [nRows, cols]))).fill(0x22),
    );
  const recorder = backend.record({
    maxTokens: nSequences * tokens,
    maxOutputs: 1,
    maxSequences: nSequences,
    maxPages: 1,
  });
  const x = recorder.embed(upload("F32", 8));
  recorder.keep(recorder.matmul(x, upload(type, rows)));
  const step = await recorder.finish();
  const sequences = Array.from({ length: nSequences }, (_, i) => i);
  await step.run(
    continuedSequences(sequences, tokens, 0, sequences.map(() => new Int32Array(1)), 8),
  );
  step.release();
} finally {
  backend.close();
}

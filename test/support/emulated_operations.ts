/**
 * The operation tests that run on an emulated GPU, the same that compare the CPU with the
 * reference. Tests whose shapes take an emulator minutes are left out.
 */
const NAMES = [
  "activations",
  "attention",
  "concatenated_weights",
  "head_matmul",
  "kv",
  "matmul",
  "moe",
  "nonfinite",
  "norms",
  "packed_weights",
  "permute_columns",
  "quant",
  "quantized_rows",
  "rope",
  "rows",
  "running_refusals",
  "sampling",
  "sampling_draw",
  "step_series",
];

/** The arguments of `deno` that run these tests and `others`. */
export function operationTests(...others: readonly string[]): string[] {
  const files = [...NAMES, ...others].map((name) => `test/ops/${name}_test.ts`);
  return ["test", "-A", "--quiet", "--no-check", ...files];
}

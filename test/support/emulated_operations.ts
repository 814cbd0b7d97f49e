/**
 * The tests of operations that an emulated GPU runs: the same that hold the CPU to the reference. Those
 * whose shapes take an emulator minutes are left out.
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

/** The arguments of `deno` that run them, and others beside. */
export function operationTests(...others: readonly string[]): string[] {
  const files = [...NAMES, ...others].map((name) => `test/ops/${name}_test.ts`);
  return ["test", "-A", "--quiet", "--no-check", ...files];
}

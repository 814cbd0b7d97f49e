/**
 * The tests of operations on an emulated Apple GPU, in a process of their own: the same that hold the
 * CPU to the reference. Those whose shapes take an emulator minutes are left out.
 */
import { emulatedMetalUnavailable, runOnEmulatedMetal } from "./emulated_metal.ts";

const FILES = [
  "activations",
  "attention",
  "concatenated_weights",
  "kv",
  "late_masks",
  "matmul",
  "moe",
  "norms",
  "quant",
  "rope",
  "rows",
  "running_refusals",
];

Deno.test({
  name: "operations agree with the reference on an emulated Apple GPU",
  ignore: emulatedMetalUnavailable() !== undefined,
  fn: async () => {
    const files = FILES.map((name) => `test/ops/${name}_test.ts`);
    await runOnEmulatedMetal(["test", "-A", "--quiet", "--no-check", ...files]);
  },
});

Deno.test({
  name: "a sequence's results on an emulated Apple GPU do not depend on its neighbours",
  ignore: emulatedMetalUnavailable() !== undefined,
  fn: async () => {
    await runOnEmulatedMetal(["run", "-A", "test/support/check_invariance.ts", "metal"]);
  },
});

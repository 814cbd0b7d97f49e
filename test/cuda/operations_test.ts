/**
 * The tests of operations on an emulated GPU, in a process of their own: the same that hold the CPU
 * to the reference. Those whose shapes take an emulator minutes are left out.
 */
import {
  emulatedFlashAttention,
  emulatedGpuUnavailable,
  runOnEmulatedGpu,
} from "./emulated_gpu.ts";

const FILES = [
  "activations",
  "attention",
  "concatenated_weights",
  "kv",
  "matmul",
  "moe",
  "norms",
  "quant",
  "rope",
  "rows",
  "running_refusals",
];

Deno.test({
  name: "operations agree with the reference on an emulated GPU",
  ignore: emulatedGpuUnavailable() !== undefined,
  fn: async () => {
    const files = FILES.map((name) => `test/ops/${name}_test.ts`);
    await runOnEmulatedGpu(["test", "-A", "--quiet", "--no-check", ...files]);
  },
});

Deno.test({
  name: "attention by libflash_attn agrees with the reference on an emulated GPU",
  ignore: emulatedGpuUnavailable() !== undefined,
  fn: async () => {
    const args = ["test", "-A", "--quiet", "--no-check", "test/ops/attention_test.ts"];
    await runOnEmulatedGpu(args, await emulatedFlashAttention());
  },
});

/** The tests of operations on an emulated GPU, in a separate process. */
import { assert, assertMatch, assertStringIncludes } from "@std/assert";
import { operationTests } from "../support/emulated_operations.ts";
import { isThorough } from "../support/thorough.ts";
import {
  emulatedCublasLt,
  emulatedFlashAttention,
  emulatedGpuUnavailable,
  runOnEmulatedGpu,
} from "./emulated_gpu.ts";

Deno.test({
  name: "operations agree with the reference on an emulated GPU",
  ignore: emulatedGpuUnavailable() !== undefined,
  fn: async () => {
    const { args, notes } = operationTests();
    for (const note of notes) console.error(note);
    // Without a device no test would run, and none would fail.
    const output = await runOnEmulatedGpu(args, { FORGE_CUDA_TRACE: "1" });
    assertStringIncludes(output, "(cuda:0)");
    for (const type of ["f16", "bf16", "q8", "q4"]) {
      for (const heads of ["288, 256", "576, 512"]) {
        assertStringIncludes(output, `xlatent_attention<${type}, ${heads}>`);
      }
    }
    for (const heads of isThorough ? ["f16, 32", "f16, 64", "q8, 64"] : []) {
      assertStringIncludes(output, `xrope_decode_attention<${heads}>`);
    }
  },
});

Deno.test({
  name: "on an emulated SM90, a kernel after late masks does not start early",
  ignore: emulatedGpuUnavailable() !== undefined,
  fn: async () => {
    const files = ["late_masks", "repeated_runs"].map((name) => `test/ops/${name}_test.ts`);
    const env = { FORGE_FAKE_CUDA: "architecture=90" };
    await runOnEmulatedGpu(["test", "-A", "--quiet", "--no-check", ...files], env);
  },
});

Deno.test({
  name: "several steps of an emulated GPU are one graph",
  ignore: emulatedGpuUnavailable() !== undefined,
  fn: async () => {
    const args = ["test", "-A", "--quiet", "--no-check", "test/ops/step_series_test.ts"];
    const output = await runOnEmulatedGpu(args, { FORGE_CUDA_TRACE: "1" });
    assertStringIncludes(output, ": 4 steps a graph");
  },
});

Deno.test({
  name: "attention by libflash_attn agrees with the reference on an emulated GPU",
  ignore: emulatedGpuUnavailable() !== undefined,
  fn: async () => {
    // The library takes no others.
    const filter = "--filter=/(an F16|a BF16|a Q8_0|random shapes|over F16|over Q8_0|run, F16)/";
    const args = ["test", "-A", "--quiet", "--no-check", filter, "test/ops/attention_test.ts"];
    const env = { ...await emulatedFlashAttention(), FORGE_CUDA_TRACE: "1" };
    const output = await runOnEmulatedGpu(args, env);
    assertStringIncludes(output, "(cuda:0)");
    // Of one masked run, the library takes the prompts and another kernel the decoded tokens.
    assertMatch(output, /1xflash_attn_varlen_fwd 1xnaive_attention<f16, Masked>/);
  },
});

Deno.test({
  name: "steps that an emulated GPU cannot run are rejected when their recording ends",
  ignore: emulatedGpuUnavailable() !== undefined,
  fn: async () => {
    const output = await runOnEmulatedGpu(["run", "-A", "test/support/check_cuda_refusals.ts"]);
    assertStringIncludes(output, "refused");
  },
});

Deno.test({
  name: "products by cuBLASLt agree with the reference on an emulated GPU",
  ignore: emulatedGpuUnavailable() !== undefined,
  fn: async () => {
    const files = ["concatenated_weights", "matmul"].map((name) => `test/ops/${name}_test.ts`);
    const args = ["test", "-A", "--quiet", "--no-check", ...files];
    const env = { ...await emulatedCublasLt(), FORGE_CUDA_TRACE: "1" };
    const output = await runOnEmulatedGpu(args, env);
    assertStringIncludes(output, "(cuda:0)");
    // With the weights of the file, and with unpacked weights.
    assertStringIncludes(output, "1xconvert_rows<bf16> 1xcublasLtMatmul");
    assertStringIncludes(output, "1xdequantize<FormatQ8_0, f16>");
  },
});

Deno.test({
  name: "products of prompts by wgmma agree with the reference on an emulated SM90",
  ignore: emulatedGpuUnavailable() !== undefined,
  fn: async () => {
    const run = (options: string, ...names: readonly string[]) => {
      const files = names.map((name) => `test/ops/${name}_test.ts`);
      const args = ["test", "-A", "--quiet", "--no-check", ...files];
      return runOnEmulatedGpu(args, { FORGE_FAKE_CUDA: options, FORGE_CUDA_TRACE: "1" });
    };
    const files = ["concatenated_weights", "matmul", "moe", "head_matmul"];
    const output = await run("architecture=90,early_only=1", ...files);
    assertMatch(output, /1xwgmma_gemm<bf16, [12]>/);
    assertMatch(output, /1xwgmma_gemm<f16, [12]>/);
    assertMatch(output, /xwgmma_grouped_gemm<b?f16, [12]>/);
    assertMatch(output, /1xwgmma_quantized_gemm<FormatQ\w+, f16, [12]>/);
    assertMatch(output, /xwgmma_grouped_quantized_gemm<Format\w+, f16, [12]>/);
    assert(!/x(grouped_)?gemm<Format/.test(output));
    // A driver that describes no tensors.
    const refused = await run("architecture=90,refuse_tensor_maps=1", "matmul");
    assertMatch(refused, /1xgemm<FormatBF16, bf16>/);
  },
});

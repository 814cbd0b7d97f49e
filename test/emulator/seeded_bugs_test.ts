/**
 * Tests the test bed: each seeded bug in the kernels must be caught by the build for its kind.
 */
import { join } from "@std/path";
import { buildEmulator, emulatorUnavailable } from "./build.ts";
import { assertCaught, type SeededBug, withBug } from "./seeded_bugs.ts";
import { ROOT } from "../support/checkout.ts";

const unavailable = emulatorUnavailable();

const bugs: readonly SeededBug[] = [
  {
    bug: "a barrier is missing between writing and reading shared memory",
    file: "warp.cuh",
    change: [
      "  if (lane_id() == 0) partial[warp_id()] = x;\n  __syncthreads();\n  const u32 n_warps = blockDim.x / kWarp;\n  return warp_sum(",
      "  if (lane_id() == 0) partial[warp_id()] = x;\n  const u32 n_warps = blockDim.x / kWarp;\n  return warp_sum(",
    ],
    kernels: ["rms_norm.cu"],
    test: "rms_norm_of_one_odd_row",
    mode: "tsan",
    caughtAs: /ThreadSanitizer: data race[^]*block_sum/,
  },
  {
    bug: "a barrier is missing before the tile of an attention kernel is overwritten",
    file: "prefill_attention.cu",
    change: [
      "               visible, args);\n    __syncthreads();",
      "               visible, args);",
    ],
    kernels: ["prefill_attention.cu"],
    test: "prefill_attention_q8_in_a_window",
    mode: "tsan",
    caughtAs: /ThreadSanitizer: data race[^]*load_slice/,
    instances: /<q8, 96>/,
  },
  {
    bug: "a barrier is missing before keys that are values too are overwritten",
    file: "latent_attention.cu",
    change: [
      "    wait_copies<0>();\n    __syncthreads();\n    const C* now",
      "    wait_copies<0>();\n    const C* now",
    ],
    kernels: ["latent_attention.cu", "batched_decode_attention.cu"],
    test: "latent_attention_of_several_queries",
    mode: "tsan",
    caughtAs: /ThreadSanitizer: data race[^]*(load_keys|multiply_latent)/,
    instances: /<q8, 288, 256>|merge/,
  },
  {
    bug: "the last element's tail is one too long",
    file: "prelude.cuh",
    change: ["if (i >= cols) return;", "if (i > cols) return;"],
    kernels: ["glu.cu"],
    test: "glu_of_erf_gelu",
    mode: "asan",
    caughtAs: /AddressSanitizer: heap-buffer-overflow[^]*glu/,
  },
  {
    bug: "rows beyond the last are read",
    file: "matvec.cuh",
    change: ["min(share.first_row + i, w.rows - 1)", "(share.first_row + i)"],
    kernels: ["matvec.cu"],
    test: "matvec_of_odd_columns",
    mode: "asan",
    caughtAs: /AddressSanitizer: heap-buffer-overflow[^]*load/,
    instances: /vec<1>/,
  },
  {
    bug: "a barrier is missing before a stage of a block is overwritten",
    file: "tile_ring.cuh",
    change: ["any more.\n    __syncthreads();", "any more.\n    __syncwarp();"],
    kernels: ["decode_gemm.cu", "convert_rows.cu"],
    test: "decode_gemm_of_odd_columns",
    mode: "tsan",
    caughtAs: /ThreadSanitizer: data race[^]*decode_gemm/,
    instances: /F16, f16, [014]>|BF16, bf16, [14]>|rows</,
  },
  ...([
    [
      "a stage of weights is filled while other lanes still read it",
      ["    __syncwarp();\n    copy_stage();", "    copy_stage();"],
      "tsan",
      /ThreadSanitizer: data race[^]*RingProduct/,
    ],
    [
      "sums of a tile are overwritten while others are still added up",
      ["(tile - first_tile_) % 2 *", "(tile - first_tile_) % 1 *"],
      "tsan",
      /ThreadSanitizer: data race[^]*RingProduct/,
    ],
    [
      "a stage of weights is multiplied before it has arrived",
      ["wait_copies<int(kStages) - 2>();", "wait_copies<int(kStages) - 1>();"],
      "plain",
      /not ok .*is -?nan/,
    ],
    [
      "copies of weights are in flight when a block ends",
      ["    }\n    wait_copies<0>();\n  }\n\n private:", "    }\n  }\n\n private:"],
      "plain",
      /copies in flight/,
    ],
  ] as const).map(([bug, change, mode, caughtAs]): SeededBug => ({
    bug,
    file: "weight_ring.cuh",
    change,
    kernels: ["decode_gemm.cu", "convert_rows.cu", "repack_rows.cu"],
    test: "decode_gemm_of_several_tiles_a_block",
    mode,
    caughtAs,
    instances: /decode_gemm<Format\w+, \w+, [01]>|rows</,
  })),
  {
    bug: "the page after the right one is written",
    file: "rope_append.cu",
    change: ["page_of(a, sequence, position)", "page_of(a, sequence, position + 1)"],
    kernels: ["rope_append.cu", "rope_table.cu"],
    test: "rope_append_plain_f32",
    mode: "plain",
    caughtAs: /not ok rope_append_plain_f32/,
    instances: /<float>/,
  },
  {
    bug: "a page table is read at the wrong position",
    file: "batched_decode_attention.cu",
    change: ["index = page_index(position,", "index = page_index(first,"],
    kernels: ["batched_decode_attention.cu"],
    test: "decode_attention_bf16_of_many_heads",
    mode: "plain",
    caughtAs: /not ok .*attention\[\d+\] is/,
    instances: /<bf16, 80>|merge/,
  },
  {
    bug: "shared memory is read that was never written",
    file: "warp.cuh",
    change: ["partial[lane_id()] : T(0)", "partial[lane_id()] : partial[31]"],
    kernels: ["rms_norm.cu"],
    test: "rms_norm_of_one_odd_row",
    mode: "plain",
    caughtAs: /not ok .*rms_norm\[0\] is -?nan/,
  },
  {
    bug: "an asynchronous copy is not waited for",
    file: "gemm.cuh",
    change: ["    wait_copies<0>();\n", "    wait_copies<1>();\n"],
    kernels: ["gemm.cu", "convert_rows.cu"],
    test: "gemm_of_odd_columns",
    mode: "plain",
    caughtAs: /copies in flight|not ok .*is -?nan/,
    instances: /F16, f16>|rows<f16>/,
  },
  ...([
    [
      "a stage is filled before its products have ended",
      ["sm90::product_wait<1>();", "sm90::product_wait<2>();"],
      "plain",
      /not ok .*product\[\d+\] is/,
    ],
    [
      "the producer waits for the wrong phase",
      ["stages.parity() ^ 1);", "stages.parity());"],
      "plain",
      /emulator: deadlock/,
    ],
    [
      "products begin without a fence of their sums",
      ["      sm90::product_fence();\n", ""],
      "plain",
      /a product without a fence of the registers/,
    ],
    [
      "barriers are initialised without a fence",
      ["  sm90::barrier_init_fence();\n", ""],
      "plain",
      /a barrier that was initialised and not fenced/,
    ],
    [
      "sums are read before all lanes have passed them on",
      ["  __syncwarp();\n  staged += lane;", "  staged += lane;"],
      "tsan",
      /ThreadSanitizer: data race[^]*store_sums/,
    ],
  ] as const).map(([bug, change, mode, caughtAs]): SeededBug => ({
    bug,
    file: "wgmma_gemm.cuh",
    change,
    kernels: ["wgmma_gemm.cu", "convert_rows.cu"],
    test: "wgmma_gemm_of_several_tiles_a_block",
    mode,
    caughtAs,
    instances: /wgmma|rows<b?f16>/,
  })),
  {
    bug: "weights are unpacked over operands of products in flight",
    file: "wgmma_quantized.cuh",
    change: ["sm90::product_wait<1>();", "sm90::product_wait<2>();"],
    kernels: ["wgmma_quantized_gemm.cu", "convert_rows.cu", "repack_rows.cu"],
    test: "wgmma_gemm_of_quantised_weights_and_several_tiles_a_block",
    mode: "plain",
    caughtAs: /product\[\d+\] is|a product without a fence/,
    instances: /wgmma_quantized_gemm<FormatQ4_0, f16, 2>|rows<(f16|FormatQ4_0)>/,
  },
  {
    bug: "some threads of a block never reach its barrier",
    file: "moe_group.cu",
    change: [
      "  if (warp_id() == 0) {\n    exclusive_sums",
      "  if (threadIdx.x == 0) {\n    exclusive_sums",
    ],
    kernels: ["moe_group.cu", "moe_route.cu"],
    test: "moe_group_covers_every_pair_once",
    mode: "plain",
    caughtAs: /emulator: deadlock/,
  },
  {
    bug: "a warp's lanes put pairs in their places before all have counted them",
    file: "moe_group.cu",
    change: ["own[expert] += __popc(alike);\n    __syncwarp();", "own[expert] += __popc(alike);"],
    kernels: ["moe_group.cu", "moe_route.cu"],
    test: "moe_group_is_a_stable_sort",
    mode: "tsan",
    caughtAs: /ThreadSanitizer: data race[^]*moe_group/,
  },
  {
    bug: "tokens of an expert are taken for the pairs' own rows of x",
    file: "moe.cuh",
    change: ["pair / e.top_k : pair;", "pair : pair;"],
    kernels: ["grouped_gemm.cu", "convert_rows.cu", "moe_group.cu"],
    test: "grouped_gemm_of_odd_columns",
    mode: "asan",
    caughtAs: /AddressSanitizer: heap-buffer-overflow/,
    instances: /Format(F16, f16|BF16, bf16)>|rows<b?f16>|moe_group/,
  },
  {
    bug: "tokens' keys are overwritten while others still read them",
    file: "gated_delta_rule.cu",
    change: ["first_row) + first;\n    __syncthreads();", "first_row) + first;"],
    kernels: ["gated_delta_rule.cu"],
    test: "gated_delta_rule_of_odd_heads",
    mode: "tsan",
    caughtAs: /ThreadSanitizer: data race[^]*gated_delta_rule/,
    instances: /<2>/,
  },
  {
    bug: "a slot keeps the rows before the last ones",
    file: "causal_conv1d.cu",
    change: ["own.at(run.n_rows + row)", "own.at(run.n_rows + row - 1)"],
    kernels: ["causal_conv1d.cu"],
    test: "causal_conv1d_of_short_runs",
    mode: "plain",
    caughtAs: /not ok .*state\[\d+\] is/,
  },
  {
    bug: "a block of a resident kernel never arrives",
    file: "step_kernel.cuh",
    change: ["block + resident_blocks() >= blocks_of", "block + resident_blocks() > blocks_of"],
    kernels: ["step_kernel.cu", "step_operations.cu"],
    test: "step_kernel_computes_operations_in_order",
    mode: "plain",
    caughtAs: /waits in operation \d+, sum_of_all: \d+ of \d+ arrived[^]*deadlock/,
  },
  {
    bug: "of equal logits the highest id wins",
    file: "sampling.cuh",
    change: [
      "<< 32 | ~id;\n}\nDEVICE u32 id_of(u64 rank) { return ~u32(rank); }",
      "<< 32 | id;\n}\nDEVICE u32 id_of(u64 rank) { return u32(rank); }",
    ],
    kernels: ["summarize_logits.cu", "share_histogram.cu", "draw_token.cu", "top_k_candidates.cu"],
    test: "sampling_of_equal_logits",
    mode: "plain",
    caughtAs: /not ok .*token \d+, expected \d+/,
  },
];

/** A copy of the kernels with one change. */
async function seed(bug: SeededBug): Promise<string> {
  // The same bug uses the same folder, so that its objects are reused.
  const bytes = new TextEncoder().encode(bug.file + bug.change.join(""));
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)).subarray(0, 6).toHex();
  const folder = join("build", "emulator", "seeded", hash);
  await Deno.mkdir(join(ROOT, folder), { recursive: true });
  for await (const { name } of Deno.readDir(join(ROOT, "kernels", "cuda"))) {
    const text = await Deno.readTextFile(join(ROOT, "kernels", "cuda", name));
    await Deno.writeTextFile(join(ROOT, folder, name), withBug(bug, name, text));
  }
  return folder;
}

Deno.test({
  name: "seeded bugs are caught",
  ignore: unavailable !== undefined,
  fn: async (t) => {
    await assertCaught(t, bugs, "kernels/cuda", async (bug) => {
      const { tests } = await buildEmulator({
        mode: bug.mode,
        kernels: await seed(bug),
        only: bug.kernels,
        instances: bug.instances ?? /./,
      });
      return tests;
    });
  },
});

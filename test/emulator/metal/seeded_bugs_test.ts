/**
 * Tests the Metal test bed: each seeded bug in the kernels must be caught by the build for its
 * kind.
 */
import { emulatorUnavailable } from "../build.ts";
import { assertCaught, type SeededBug, withBug } from "../seeded_bugs.ts";
import { buildMetalEmulator } from "./build.ts";

const unavailable = emulatorUnavailable();

const barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);\n";

const SAMPLING = [
  ...["adjust_logits", "chunk_maxima", "fused_temperature_softmax", "sample_token"],
  "top_k_candidates",
].map((name) => `${name}.metal`);

const bugs: readonly SeededBug[] = [
  {
    bug: "a barrier is missing between writing and reading threadgroup memory",
    file: "simd.h",
    change: [
      `partial[p.simdgroup] = x;\n  ${barrier}  return lanes_sum`,
      "partial[p.simdgroup] = x;\n  return lanes_sum",
    ],
    kernels: ["rms_norm.metal"],
    test: "rms_norm_of_one_odd_row",
    mode: "tsan",
    caughtAs: /ThreadSanitizer: data race[^]*group_sum/,
  },
  {
    bug: "a barrier is missing before the tile of an attention kernel is overwritten",
    file: "prefill_attention.metal",
    change: [`weights, v_tile);\n    ${barrier}`, "weights, v_tile);\n"],
    kernels: ["prefill_attention.metal"],
    test: "prefill_attention_q8_in_a_window",
    mode: "tsan",
    caughtAs: /ThreadSanitizer: data race[^]*copy_unit/,
    instances: /<q8, 96>/,
  },
  {
    bug: "a SIMD group does not wait for its own lanes",
    file: "batched_decode_attention.metal",
    change: [
      "    simdgroup_barrier(mem_flags::mem_threadgroup);\n    multiply_keys",
      "    multiply_keys",
    ],
    kernels: ["batched_decode_attention.metal"],
    test: "decode_attention_q8_in_a_window",
    mode: "tsan",
    caughtAs: /ThreadSanitizer: data race[^]*(copy_unit|simdgroup_load)/,
    instances: /<q8, 96>/,
  },
  {
    bug: "a barrier does not order the device memory that holds the cursors",
    file: "top_k_candidates.metal",
    change: [
      "    threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);",
      "    threadgroup_barrier(mem_flags::mem_threadgroup);",
    ],
    kernels: SAMPLING,
    test: "sampling_reports_candidates_and_forced_tokens",
    mode: "tsan",
    races: "device",
    caughtAs: /ThreadSanitizer: data race[^]*top_k_candidates/,
  },
  {
    bug: "a barrier does not order the device memory that holds the chunks' weights",
    file: "sampling_row.h",
    change: [
      "threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);",
      "threadgroup_barrier(mem_flags::mem_threadgroup);",
    ],
    kernels: SAMPLING,
    test: "sampling_of_wide_rows",
    mode: "tsan",
    races: "device",
    caughtAs: /ThreadSanitizer: data race[^]*find_place/,
  },
  {
    bug: "a barrier orders device memory where threadgroup memory is passed on",
    file: "simd.h",
    change: [
      `partial[p.simdgroup] = x;\n  ${barrier}`,
      "partial[p.simdgroup] = x;\n  threadgroup_barrier(mem_flags::mem_device);\n",
    ],
    kernels: ["rms_norm.metal"],
    test: "rms_norm_of_one_odd_row",
    mode: "tsan",
    races: "shared",
    caughtAs: /ThreadSanitizer: data race[^]*group_sum/,
  },
  {
    bug: "the last element's tail is one too long",
    file: "glu.metal",
    change: ["i < min(out_cols, ", "i < min(out_cols + 1, "],
    kernels: ["glu.metal"],
    test: "glu_of_erf_gelu",
    mode: "asan",
    caughtAs: /AddressSanitizer: heap-buffer-overflow[^]*glu/,
  },
  {
    bug: "rows beyond the last are read",
    file: "matvec.h",
    change: ["min(share.first_row + i, w.count - 1)", "(share.first_row + i)"],
    kernels: ["matvec.metal"],
    test: "matvec_of_one_token",
    mode: "asan",
    caughtAs: /AddressSanitizer: heap-buffer-overflow[^]*load/,
    instances: /F32, 1>/,
  },
  {
    bug: "a row's odd end is read as if it were whole",
    file: "gemm.h",
    change: ["if (k + n < cols) v[n]", "if (k < cols) v[n]"],
    kernels: ["gemm.metal"],
    test: "gemm_of_odd_columns",
    mode: "asan",
    caughtAs: /AddressSanitizer: heap-buffer-overflow[^]*load_tokens/,
    instances: /F16>/,
  },
  {
    bug: "a buffer that is not there is read",
    file: "layer_norm.metal",
    change: ["args.has_bias != 0 ? normed + bias[i] : normed", "normed + bias[i]"],
    kernels: ["layer_norm.metal"],
    test: "layer_norm_with_and_without_bias",
    mode: "plain",
    caughtAs: /^$/,
  },
  {
    bug: "the page after the right one is written",
    file: "rope_append.metal",
    change: ["index = position / kv.page_tokens", "index = (position + 1) / kv.page_tokens"],
    kernels: ["rope_append.metal", "rope_table.metal"],
    test: "rope_append_plain_f32",
    mode: "plain",
    caughtAs: /not ok rope_append_plain_f32/,
    instances: /<float>/,
  },
  {
    bug: "a page table is read at the wrong position",
    file: "attention.h",
    change: ["uint(from.table[position / ", "uint(from.table[first / "],
    kernels: ["batched_decode_attention.metal"],
    test: "decode_attention_bf16_of_many_heads",
    mode: "plain",
    caughtAs: /not ok .*attention\[\d+\] is/,
    instances: /<f16, 80>/,
  },
  {
    bug: "threadgroup memory is read that was never written",
    file: "simd.h",
    change: ["partial[p.lane] : T(0)", "partial[p.lane] : partial[31]"],
    kernels: ["rms_norm.metal"],
    test: "rms_norm_of_one_odd_row",
    mode: "plain",
    caughtAs: /not ok .*rms_norm\[0\] is -?nan/,
  },
  {
    bug: "some threads of a threadgroup never reach its barrier",
    file: "moe_group.metal",
    change: ["  if (simdgroup == 0) {", "  if (simdgroup == 0 && lane < 16) {"],
    kernels: ["moe_group.metal", "moe_route.metal"],
    test: "moe_group_covers_every_pair_once",
    mode: "plain",
    caughtAs: /emulator: deadlock/,
  },
  {
    bug: "a matrix is loaded without being transposed",
    file: "gemm.h",
    change: ["k * 64, 8, 0, true);", "k * 64, 8);"],
    kernels: ["gemm.metal"],
    test: "gemm_of_odd_columns",
    mode: "plain",
    caughtAs: /not ok .*product\[\d+\] is/,
    instances: /F16>/,
  },
  {
    bug: "a threadgroup takes more memory than there is",
    file: "gemm.metal",
    change: ["token_fours[kGemmTokens", "token_fours[4 * kGemmTokens"],
    kernels: ["gemm.metal"],
    test: "gemm_of_odd_columns",
    mode: "plain",
    caughtAs: /emulator: \d+ bytes of shared memory, of which a block has 32768/,
    instances: /F16>/,
  },
  {
    bug: "tokens of an expert are taken for the pairs' own rows of x",
    file: "grouped_gemm.metal",
    change: ["pairs[i] / top_k : pairs[i]", "pairs[i] : pairs[i]"],
    kernels: ["grouped_gemm.metal", "moe_group.metal"],
    test: "grouped_gemm_of_odd_columns",
    mode: "asan",
    caughtAs: /AddressSanitizer: heap-buffer-overflow/,
    instances: /F16>/,
  },
  {
    bug: "tokens' keys are overwritten while others still read them",
    file: "gated_delta_rule.metal",
    change: [`first_row) + first;\n    ${barrier}`, "first_row) + first;\n"],
    kernels: ["gated_delta_rule.metal"],
    test: "gated_delta_rule_of_odd_heads",
    mode: "tsan",
    caughtAs: /ThreadSanitizer: data race[^]*gated_delta_rule/,
    instances: /<1>/,
  },
  {
    bug: "a column's odd end is stored as if it were whole",
    file: "recurrence.h",
    change: ["if (row + i < n) column[row + i]", "if (row < n) column[row + i]"],
    kernels: ["gated_delta_rule.metal"],
    test: "gated_delta_rule_of_odd_heads",
    mode: "plain",
    caughtAs: /not ok gated_delta_rule_of_odd_heads/,
    instances: /<1>/,
  },
  {
    bug: "a slot keeps the rows before the last ones",
    file: "causal_conv1d.metal",
    change: ["own.at(run.n_rows + row)", "own.at(run.n_rows + row - 1)"],
    kernels: ["causal_conv1d.metal"],
    test: "causal_conv1d_of_short_runs",
    mode: "plain",
    caughtAs: /not ok .*state\[\d+\] is/,
  },
  {
    bug: "of equal logits the highest id wins",
    file: "argmax.h",
    change: ["b.id < a.id", "b.id > a.id"],
    kernels: ["argmax_chunks.metal", "argmax_token.metal"],
    test: "argmax_of_ties_takes_the_lowest_id",
    mode: "plain",
    caughtAs: /not ok argmax_of_ties/,
  },
];

Deno.test({
  name: "seeded bugs in Metal kernels are caught",
  ignore: unavailable !== undefined,
  fn: async (t) => {
    await assertCaught(t, bugs, async (bug) => {
      const { tests } = await buildMetalEmulator({
        mode: bug.mode,
        only: bug.kernels,
        instances: bug.instances ?? /./,
        change: (name, text) => withBug(bug, name, text),
      });
      return tests;
    });
  },
});

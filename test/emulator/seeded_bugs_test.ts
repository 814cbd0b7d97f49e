/**
 * The test bed itself: bugs are put into the kernels, one at a time, and each must be caught, by the
 * build that is there for it. A bed that finds nothing proves nothing.
 */
import { assert, assertMatch } from "@std/assert";
import { join, resolve } from "@std/path";
import { buildEmulator, type EmulatorMode, emulatorUnavailable } from "./build.ts";
import { runTest } from "./kernel_program.ts";

const root = resolve(import.meta.dirname ?? ".", "..", "..");
const unavailable = emulatorUnavailable();

interface SeededBug {
  readonly bug: string;
  /** The file that is changed; each pair replaces the first text, which must be there, by the second. */
  readonly file: string;
  readonly change: readonly [from: string, to: string];
  /** The kernel's file, and the test that must fail with output that matches. */
  readonly kernel: string;
  readonly test: string;
  readonly mode: EmulatorMode;
  readonly caughtAs: RegExp;
  /** The instances that the test launches first, so that no others need be compiled. */
  readonly instances?: RegExp;
}

const bugs: readonly SeededBug[] = [
  {
    bug: "a barrier is missing between writing and reading shared memory",
    file: "warp.cuh",
    change: [
      "  if (lane_id() == 0) partial[warp_id()] = x;\n  __syncthreads();\n  const u32 n_warps = blockDim.x / kWarp;\n  return warp_sum(",
      "  if (lane_id() == 0) partial[warp_id()] = x;\n  const u32 n_warps = blockDim.x / kWarp;\n  return warp_sum(",
    ],
    kernel: "rms_norm.cu",
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
    kernel: "prefill_attention.cu",
    test: "prefill_attention_q8_in_a_window",
    mode: "tsan",
    caughtAs: /ThreadSanitizer: data race[^]*load_slice/,
    instances: /<q8, 96>/,
  },
  {
    bug: "the last element's tail is one too long",
    file: "glu.cu",
    change: ["if (i >= out_cols) return;", "if (i > out_cols) return;"],
    kernel: "glu.cu",
    test: "glu_of_erf_gelu",
    mode: "asan",
    caughtAs: /AddressSanitizer: heap-buffer-overflow[^]*glu/,
  },
  {
    bug: "rows beyond the last are read",
    file: "matvec.cuh",
    change: ["min(share.first_row + i, w.count - 1)", "(share.first_row + i)"],
    kernel: "matvec.cu",
    test: "matvec_of_one_token",
    mode: "asan",
    caughtAs: /AddressSanitizer: heap-buffer-overflow[^]*load/,
    instances: /F32, 1>/,
  },
  {
    bug: "the page after the right one is written",
    file: "rope_append.cu",
    change: ["position / kv.page_tokens]", "(position + 1) / kv.page_tokens]"],
    kernel: "rope_append.cu",
    test: "rope_append_plain_f32",
    mode: "plain",
    caughtAs: /not ok rope_append_plain_f32/,
    instances: /<float>/,
  },
  {
    bug: "a page table is read at the wrong position",
    file: "attention.cuh",
    change: [
      "pages.table[seen / pages.kv.page_tokens]",
      "pages.table[first / pages.kv.page_tokens]",
    ],
    kernel: "batched_decode_attention.cu",
    test: "decode_attention_bf16_of_many_heads",
    mode: "plain",
    caughtAs: /not ok .*attention\[\d+\] is/,
    instances: /<bf16, 80>|merge/,
  },
  {
    bug: "shared memory is read that was never written",
    file: "warp.cuh",
    change: ["partial[lane_id()] : T(0)", "partial[lane_id()] : partial[31]"],
    kernel: "rms_norm.cu",
    test: "rms_norm_of_one_odd_row",
    mode: "plain",
    caughtAs: /not ok .*rms_norm\[0\] is -?nan/,
  },
  {
    bug: "an asynchronous copy is not waited for",
    file: "gemm.cuh",
    change: ["    wait_copies<0>();\n", "    wait_copies<1>();\n"],
    kernel: "gemm.cu",
    test: "gemm_of_odd_columns",
    mode: "plain",
    caughtAs: /copies in flight|not ok .*is -?nan/,
    instances: /F16, f16>|rows<f16>/,
  },
  {
    bug: "some threads of a block never reach its barrier",
    file: "moe_group.cu",
    change: [
      "  if (warp_id() == 0) {\n    exclusive_sums",
      "  if (threadIdx.x == 0) {\n    exclusive_sums",
    ],
    kernel: "moe_group.cu",
    test: "moe_group_covers_every_pair_once",
    mode: "plain",
    caughtAs: /emulator: deadlock/,
  },
  {
    bug: "a warp's lanes put pairs in their places before all have counted them",
    file: "moe_group.cu",
    change: ["own[expert] += __popc(alike);\n    __syncwarp();", "own[expert] += __popc(alike);"],
    kernel: "moe_group.cu",
    test: "moe_group_is_a_stable_sort",
    mode: "tsan",
    caughtAs: /ThreadSanitizer: data race[^]*moe_group/,
  },
  {
    bug: "tokens of an expert are taken for the pairs' own rows of x",
    file: "grouped_gemm.cu",
    change: ["own[i] / top_k : own[i]", "own[i] : own[i]"],
    kernel: "grouped_gemm.cu",
    test: "grouped_gemm_of_odd_columns",
    mode: "asan",
    caughtAs: /AddressSanitizer: heap-buffer-overflow/,
    instances: /Format(F16, f16|BF16, bf16)>|rows<b?f16>|moe_group/,
  },
  {
    bug: "of equal logits the highest id wins",
    file: "sample_token.cu",
    change: ["lowest = min(lowest, id)", "lowest = id"],
    kernel: "sample_token.cu",
    test: "sampling_of_equal_logits",
    mode: "plain",
    caughtAs: /not ok .*token \d+, expected \d+/,
  },
];

/** A copy of the kernels with one change. */
async function seed({ file, change: [from, to] }: SeededBug): Promise<string> {
  // The same bug has the same folder, so that its objects are found again.
  const hash = new Uint8Array(
    await crypto.subtle.digest("SHA-256", new TextEncoder().encode(file + from + to)),
  ).subarray(0, 6).toHex();
  const folder = join("build", "emulator", "seeded", hash);
  await Deno.mkdir(join(root, folder), { recursive: true });
  for await (const { name } of Deno.readDir(join(root, "kernels", "cuda"))) {
    let text = await Deno.readTextFile(join(root, "kernels", "cuda", name));
    if (name === file) {
      assert(text.includes(from), `${file} no longer holds: ${from}`);
      text = text.replace(from, to);
    }
    await Deno.writeTextFile(join(root, folder, name), text);
  }
  return folder;
}

/** Kernel files that the tests of these bugs launch besides their own. */
const helpers: Readonly<Record<string, readonly string[]>> = {
  "rope_append.cu": ["rope_table.cu"],
  "gemm.cu": ["convert_rows.cu"],
  "grouped_gemm.cu": ["convert_rows.cu", "moe_group.cu"],
  "moe_group.cu": ["moe_route.cu"],
  "sample_token.cu": [
    "adjust_logits.cu",
    "chunk_maxima.cu",
    "fused_temperature_softmax.cu",
    "top_k_candidates.cu",
  ],
};

Deno.test({
  name: "seeded bugs are caught",
  ignore: unavailable !== undefined,
  fn: async (t) => {
    for (const bug of bugs) {
      await t.step(`${bug.bug} (${bug.mode})`, async () => {
        const kernels = await seed(bug);
        const only = [bug.kernel, ...helpers[bug.kernel] ?? []];
        const { tests } = await buildEmulator({
          mode: bug.mode,
          kernels,
          only,
          instances: bug.instances ?? /./,
        });
        const { ok, output } = await runTest(tests, bug.test);
        assert(!ok, "the test passed");
        assertMatch(output, bug.caughtAs);
      });
    }
  },
});

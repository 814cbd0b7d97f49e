/** Mutants of the CUDA kernels, caught by their tests in the emulator. */
import type { KernelCheck, Mutant } from "./mutant.ts";

type Part = readonly [name: string, file: string, find: string, replace: string];

const group = (caughtBy: KernelCheck, ...parts: readonly Part[]): Mutant[] =>
  parts.map(([name, file, find, replace]) => ({
    name: `cuda_kernels/${name}`,
    file: `kernels/cuda/${file}`,
    find,
    replace,
    caughtBy,
  }));

const ATTENTION: KernelCheck = {
  kernelTests: [
    "prefill_attention_of_two_tiles",
    "prefill_attention_with_sinks",
    "prefill_attention_q8_in_a_window",
    "decode_attention_of_a_batch",
    "decode_attention_q8_in_a_window",
    "decode_attention_with_sinks",
    "decode_attention_of_queries_across_a_split",
    "decode_attention_of_a_draft_tree",
    "decode_attention_in_a_window_of_long_splits",
    "decode_attention_bf16_of_many_heads",
    "decode_attention_q8_of_draft_tokens_with_all_options",
    "attention_over_pages_beyond_4_gib",
  ],
  kernels: ["prefill_attention.cu", "batched_decode_attention.cu"],
  instances: "merge|_attention<(f16|bf16|q8), (16|32|64|80|96|128)>|<f16, 64, Masked>",
};
const NAIVE: KernelCheck = {
  kernelTests: [
    "naive_attention_f32",
    "naive_attention_window_f16",
    "naive_attention_softcap_bf16",
    "naive_attention_sinks_q8",
    "naive_attention_over_pages_beyond_4_gib",
  ],
  kernels: ["naive_attention.cu"],
};
const MATVEC: KernelCheck = {
  kernelTests: [
    "matvec_of_one_token",
    "matvec_of_three_tokens",
    "matvec_of_nine_tokens",
    "matvec_of_odd_columns",
    "matvec_of_wide_rows_split_in_eight",
  ],
  kernels: ["matvec.cu", "decode_gemm.cu", "convert_rows.cu", "repack_rows.cu"],
  instances: "matvec<|decode_gemm<Format|rows<",
};
const ODD_COLUMNS: KernelCheck = {
  ...MATVEC,
  kernelTests: ["matvec_of_odd_columns"],
  mode: "asan",
};
const STEP_KERNEL: KernelCheck = {
  kernelTests: ["step_kernel_computes_operations_in_order"],
  kernels: ["step_kernel.cu", "step_operations.cu"],
};
const NEXT_STEP: KernelCheck = {
  kernelTests: ["next_step_continues_with_chosen_tokens", "next_step_ends_a_series"],
  kernels: ["next_step.cu"],
};
const DECODE_GEMM: KernelCheck = {
  kernelTests: [
    "decode_gemm_of_every_fast_format",
    "decode_gemm_with_a_norm",
    "decode_gemm_of_odd_columns",
    "decode_gemm_of_several_tiles_a_block",
    "decode_gemm_of_a_token_is_the_same_in_any_company",
    "gated_decode_gemm_is_decode_gemm_and_glu",
  ],
  kernels: [
    ...["decode_gemm.cu", "gated_decode_gemm.cu", "glu.cu", "convert_rows.cu", "repack_rows.cu"],
  ],
  instances: "decode_gemm<Format|glu|rows<",
};
const RING: KernelCheck = {
  ...DECODE_GEMM,
  kernelTests: [
    "decode_gemm_of_odd_columns",
    "decode_gemm_of_several_tiles_a_block",
    "products_of_listed_rows",
    "products_convert_rows_as_convert_rows_does",
  ],
  kernels: ["decode_gemm.cu", "gemm.cu", "convert_rows.cu", "repack_rows.cu"],
  instances: "decode_gemm<Format\\w+, \\w+, [01248]|^gemm<|rows<",
};
const RACES: KernelCheck = {
  ...RING,
  kernelTests: ["decode_gemm_of_several_tiles_a_block"],
  kernels: ["decode_gemm.cu", "convert_rows.cu", "repack_rows.cu"],
  instances: "decode_gemm<Format\\w+, \\w+, [01]>|rows<",
  mode: "tsan",
};
const GATED: KernelCheck = {
  ...DECODE_GEMM,
  kernelTests: ["gated_decode_gemm_is_decode_gemm_and_glu"],
  mode: "asan",
};
const FAR_PRODUCTS: KernelCheck = {
  kernelTests: ["products_with_rows_beyond_4_gib"],
  kernels: [
    ...["matvec.cu", "decode_gemm.cu", "gemm.cu", "convert_rows.cu", "embed.cu", "repack_rows.cu"],
  ],
  instances: "matvec<|Format(F32|F16|Q8_0|Q4_K)|rows<",
};
const GROUPED: KernelCheck = {
  kernelTests: [
    "grouped_matvec_of_one_token",
    "grouped_matvec_of_many_tokens",
    "grouped_products_of_listed_tokens",
    "grouped_products_of_rows_beyond_4_gib",
    "gated_grouped_decode_gemm_is_grouped_decode_gemm_and_glu",
  ],
  kernels: [
    ...["grouped_decode_gemm.cu", "grouped_matvec.cu", "grouped_gemm.cu", "convert_rows.cu"],
    ...["moe_group.cu", "moe_route.cu", "repack_rows.cu", "glu.cu"],
  ],
  instances: "Format|matvec|rows<|moe|glu",
};
const GROUPS: KernelCheck = {
  kernelTests: [
    "moe_group_covers_every_pair_once",
    "moe_group_of_the_last_experts",
    "moe_group_is_a_stable_sort",
  ],
  kernels: ["moe_group.cu", "moe_route.cu"],
};
const ROUTES: KernelCheck = {
  kernelTests: [
    "moe_route_of_few_experts",
    "moe_route_of_many_experts",
    "moe_route_by_groups_of_biased_sigmoids",
    "moe_route_by_groups_of_biased_softmax",
  ],
  kernels: ["moe_route.cu"],
};
const ROPE: KernelCheck = {
  kernelTests: [
    "rope_append_plain_f32",
    "rope_append_norm_a_head_f16",
    "rope_append_norm_all_heads_bf16",
    "rope_append_q8",
    "rope_append_to_pages_beyond_4_gib",
  ],
  kernels: ["rope_append.cu", "rope_table.cu"],
};
const PREVIOUS_ROWS: KernelCheck = {
  kernelTests: ["previous_rows_f32", "previous_rows_f16_of_several_heads", "previous_rows_bf16"],
  kernels: ["previous_rows.cu"],
};
const NORMS: KernelCheck = {
  kernelTests: ["rms_norm_of_groups", "rms_norm_with_residual", "rms_norm_of_small_numbers"],
  kernels: ["rms_norm.cu"],
};
const SAMPLING: KernelCheck = {
  kernelTests: [
    "sampling_of_few_tokens",
    "sampling_of_two_chunks_with_ties",
    "sampling_of_wide_rows",
    "sampling_of_equal_logits",
    "sampling_of_long_lists",
    "sampling_adjusts_logits",
    "sampling_reports_candidates_and_forced_tokens",
  ],
  kernels: [
    ...["summarize_logits.cu", "share_histogram.cu", "draw_token.cu", "top_k_candidates.cu"],
  ],
};
const STATE: KernelCheck = {
  kernelTests: [
    "causal_conv1d_of_short_runs",
    "gated_delta_rule_of_one_token",
    "gated_delta_rule_of_odd_heads",
    "selective_scan_of_odd_heads",
  ],
  kernels: ["causal_conv1d.cu", "gated_delta_rule.cu", "selective_scan.cu"],
};
const NEW_ROWS: KernelCheck = {
  kernelTests: [
    "rope_decode_attention_at_every_border",
    "rope_decode_attention_q8_in_a_window",
    "rope_decode_attention_bf16_of_16_heads",
  ],
  kernels: ["rope_append.cu", "batched_decode_attention.cu"],
  instances: "merge|rope_append|decode_attention<(f16, 64|bf16, 64|bf16, 128|q8, (64|128|256))>",
};
const LATENT: KernelCheck = {
  kernelTests: [
    "latent_attention_of_a_batch",
    "latent_attention_of_several_queries",
    "latent_attention_of_prompts",
  ],
  kernels: ["latent_attention.cu", "batched_decode_attention.cu"],
  instances: "latent|merge",
};
const GEMM: KernelCheck = {
  kernelTests: ["gemm_of_odd_columns", "gemm_of_every_fast_format", "products_of_listed_rows"],
  kernels: ["gemm.cu", "convert_rows.cu", "decode_gemm.cu", "repack_rows.cu"],
  instances: "Format|rows<",
};
const TOKENS: KernelCheck = { ...GEMM, kernelTests: ["gemm_of_every_fast_format"], mode: "asan" };

export const CUDA_KERNELS: readonly Mutant[] = [
  ...group(
    ATTENTION,
    [
      "window-off-by-one",
      "visible.cuh",
      "position + 1 > a.window ? position + 1 - seen : 0",
      "position + 1 > a.window ? position - seen : 0",
    ],
    [
      "position-past-the-end",
      "visible.cuh",
      "return position >= begin && position < end ? score : -FORGE_INFINITY;",
      "return position >= begin && position <= end ? score : -FORGE_INFINITY;",
    ],
    [
      "mask-of-a-position",
      "visible.cuh",
      "mask[position / 32] >> position % 32 & 1",
      "mask[position / 32] >> (31 - position % 32) & 1",
    ],
    [
      "head-of-a-row",
      "attention.cuh",
      "return kv_head * group + first + row - query(row) * group;",
      "return kv_head * group + row - query(row) * group;",
    ],
    [
      "sum-is-not-shrunk",
      "attention.cuh",
      "state.total[r] = state.total[r] * shrink + sum;",
      "state.total[r] = state.total[r] + sum;",
    ],
    [
      "softcap-of-attention",
      "attention.cuh",
      "if (args.softcap > 0) score = args.softcap * tanhf(score / args.softcap);",
      "if (args.softcap > 0) score = tanhf(score / args.softcap);",
    ],
    [
      "pages-beyond-4-gib",
      "kv.cuh",
      "u8* base = kv.data + page * kv.page_bytes + u64(head) * kv.head_bytes;\n  return {base, base + kv.k_scales",
      "u8* base = kv.data + u32(page * kv.page_bytes) + u64(head) * kv.head_bytes;\n  return {base, base + kv.k_scales",
    ],
    [
      "values-beyond-4-gib",
      "kv.cuh",
      "u8* base = kv.data + page * kv.page_bytes + u64(head) * kv.head_bytes;\n  return {base + kv.v_offset",
      "u8* base = kv.data + u32(page * kv.page_bytes) + u64(head) * kv.head_bytes;\n  return {base + kv.v_offset",
    ],
    [
      "second-split",
      "batched_decode_attention.cu",
      "return {piece * size, (piece + 1) * size};",
      "return {piece * (size - 32), (piece + 1) * size};",
    ],
    [
      "sink-of-a-merge",
      "attention.cuh",
      "all = total * factor + expf(*sink - most);",
      "all = total * factor;",
    ],
    [
      "copies-of-a-slice",
      "batched_decode_attention.cu",
      "wait_copies<kNext>();\n      __syncwarp();\n      attend",
      "wait_copies<kNext + 1>();\n      __syncwarp();\n      attend",
    ],
    ["last-arrival", "warp.cuh", "if (arrived[0] == n_blocks) *counter = 0;", ""],
    [
      "pieces-of-a-window",
      "batched_decode_attention.cu",
      "const u32 seen = first_visible / size;",
      "const u32 seen = first_visible / entry.split_tokens;",
    ],
    [
      "slices-of-two-pages",
      "batched_decode_attention.cu",
      "if ((place.first | kv.page_tokens) % Shape::kTokens == 0) {",
      "if (kv.page_tokens > 0) {",
    ],
    [
      "page-of-a-position",
      "batched_decode_attention.cu",
      "return position >> (__ffs(page_tokens) - 1);",
      "return position >> __ffs(page_tokens);",
    ],
    [
      "sums-of-the-first-batch",
      "attention.cuh",
      "if (first + part > 0) load_batch(first + part);",
      "if (first > 0) load_batch(first + part);",
    ],
    [
      "batch-of-a-merge",
      "attention.cuh",
      "part += kMergeBatch) {",
      "part += kMergeBatch + 1) {",
    ],
    [
      "last-query-of-a-tile",
      "prefill_attention.cu",
      "if (query >= tile.n_queries) continue;",
      "if (query + 1 >= tile.n_queries) continue;",
    ],
  ),
  ...group(
    NAIVE,
    [
      "scale-of-q8",
      "kv.cuh",
      "return to_float(rows.row_scales(slot)[i / kScaleGroup]) * float(rows.row(slot)[i].bits);",
      "return to_float(rows.row_scales(slot)[0]) * float(rows.row(slot)[i].bits);",
    ],
  ),
  ...group(
    ROPE,
    ["rounding-of-q8", "kv.cuh", "rintf(value * inverse)", "float(i32(value * inverse))"],
    [
      "largest-of-q8",
      "kv.cuh",
      "make_float4(fabsf(v.x), fabsf(v.y), fabsf(v.z), fabsf(v.w))",
      "make_float4(v.x, v.y, v.z, v.w)",
    ],
  ),
  ...group(
    FAR_PRODUCTS,
    [
      "rows-beyond-4-gib",
      "matvec.cuh",
      "w.data + u64(min(share.first_row + i, w.rows - 1)) * w.row_stride",
      "w.data + u32(min(share.first_row + i, w.rows - 1) * w.row_stride)",
    ],
    [
      "rows-of-a-ring-beyond-4-gib",
      "weight_spans.cuh",
      "u64(starts[i]) * 16",
      "u32(starts[i] * 16)",
    ],
  ),
  ...group(
    ODD_COLUMNS,
    ["columns-past-the-end", "matvec.cuh", "k + 3 < cols ? x[k + 3] : 0.0f", "x[k + 3]"],
  ),
  ...group(
    MATVEC,
    [
      "rest-of-the-chunks",
      "matvec.cuh",
      "for (; chunk < n_chunks; chunk += step) {",
      "for (; ahead > 2 && chunk < n_chunks; chunk += step) {",
    ],
    [
      "parts-of-a-row",
      "matvec.cuh",
      "for (u32 part = 0; part < split; ++part)",
      "for (u32 part = 0; part < 1; ++part)",
    ],
  ),
  ...group(
    GROUPED,
    [
      "last-weights-of-a-slice",
      "decode_gemm.cuh",
      "load(slot, step, span + kAhead);",
      "load(slot, step, min(span + kAhead, spans.end - 2));",
    ],
    [
      "slot-still-read",
      "decode_gemm.cuh",
      "copy(i + Tile::kSlots - 1);",
      "copy(i + Tile::kSlots);",
    ],
  ),
  ...group(
    GATED,
    [
      "pairs-of-a-gated-unit",
      "decode_gemm.cuh",
      "const u32 row = min(i / 16 * 8 + i % 8, width - 1);",
      "const u32 row = min(i / 16 * 8 + i % 8, width);",
    ],
  ),
  ...group(
    RING,
    [
      "second-half-of-a-tile",
      "weight_ring.cuh",
      "Spans::chunk(from, row + 8, chunk, stage)",
      "Spans::chunk(from, row + 7, chunk, stage)",
    ],
    [
      "first-stage-of-a-slice",
      "weight_spans.cuh",
      "min(span * Spans::kStagesOfSpan,",
      "min(span,",
    ],
    [
      "chunks-after-the-last",
      "weight_ring.cuh",
      "min(4 * step + lane_id() % 4, last)",
      "min(4 * step + lane_id() % 4, last + 1)",
    ],
    [
      "rows-of-the-next-tile",
      "weight_ring.cuh",
      "if (++tile_ < end_tile_) place_rows();",
      "++tile_;",
    ],
    [
      "divisor-of-one-token",
      "weight_ring.cuh",
      "scale_ = scale.product;",
      "scale_ = scale.product > 1 ? 1.0f : scale.product;",
    ],
    [
      "scale-of-a-token-of-several",
      "tile_ring.cuh",
      "const float scale = a_.x.scale[first_token_ + token];",
      "const float scale = a_.x.scale[first_token_];",
    ],
    [
      "place-of-a-unit-of-several-tokens",
      "tile_ring.cuh",
      "unit_place<F>(token, own_unit() % kUnits)",
      "unit_place<F>(0, own_unit() % kUnits)",
    ],
    [
      "copies-of-a-block-without-a-token",
      "weight_ring.cuh",
      "  if (token >= *a.set.count) {\n    wait_copies<0>();\n",
      "  if (token >= *a.set.count) {\n",
    ],
    [
      "swapped-halves-of-a-row",
      "weight_spans.cuh",
      "copy_async<width>(to + place(row(i), piece),",
      "copy_async<width>(to + row(i) * row_bytes + piece * width,",
    ],
    [
      "scales-of-two-blocks",
      "weight_spans.cuh",
      "stage / 2 % 2 * 2)",
      "stage % 2 * 2)",
    ],
    [
      "pieces-after-the-last",
      "weight_spans.cuh",
      "(cols - stage * kStageCols + 7) / 8",
      "(cols - stage * kStageCols) / 8",
    ],
  ),
  ...group(
    RACES,
    [
      "stage-still-read",
      "weight_ring.cuh",
      "    __syncwarp();\n    copy_stage();",
      "    copy_stage();",
    ],
    [
      "sums-of-the-next-tile",
      "weight_ring.cuh",
      "(tile - first_tile_) % 2 *",
      "(tile - first_tile_) % 1 *",
    ],
  ),
  ...group(
    DECODE_GEMM,
    [
      "minimum-of-a-format",
      "formats.cuh",
      "fma_halves(q.z, scale, min), fma_halves(q.w, scale, min));",
      "fma_halves(q.z, scale, min), multiply_halves(q.w, scale));",
    ],
    [
      "offset-of-a-norm",
      "rounded_rows.cuh",
      "v[i] *= weight[i] + norm.offset;",
      "v[i] *= weight[i];",
    ],
    [
      "squares-of-the-first-columns",
      "rounded_rows.cuh",
      "apply_norm(norm, start.weight, start.x, squares);",
      "apply_norm(norm, start.weight, start.x, largest);",
    ],
    [
      "last-part-of-a-tile",
      "tile_ring.cuh",
      "if (z < tiling_.parts) parts[z]",
      "if (z + 1 < tiling_.parts) parts[z]",
    ],
    [
      "stage-before-its-arrival",
      "tile_ring.cuh",
      "wait_copies_but(tiling_.stages - 2);",
      "wait_copies_but(tiling_.stages - 1);",
    ],
    [
      "sums-of-the-piece-before",
      "tile_ring.cuh",
      "add_slice(own, slice + i == first)",
      "add_slice(own, piece == blockIdx.y && slice + i == first)",
    ],
    [
      "shorter-slice-of-a-stage",
      "tile_ring.cuh",
      "    if (stage >= end) return;\n",
      "    if (stage > end) return;\n",
    ],
    [
      "columns-beyond-the-last",
      "tile_ring.cuh",
      "is_in_row = col < a_.x.padded_cols;",
      "is_in_row = true;",
    ],
  ),
  ...group(
    RING,
    [
      "number-beyond-the-last-row",
      "rounded_rows.cuh",
      "atomicInc(next, count + n_blocks - 1)",
      "atomicInc(next, count + n_blocks)",
    ],
    [
      "count-of-converted-rows",
      "rounded_rows.cuh",
      "== n_blocks - 1) *done = 0;",
      "== n_blocks) *done = 0;",
    ],
    [
      "rows-of-other-blocks",
      "rounded_rows.cuh",
      "    await_count(done, count);\n",
      "",
    ],
    [
      "listed-rows-of-a-conversion",
      "rounded_rows.cuh",
      "u64(row_of_set(a.rows.set, row)) * a.rows.cols",
      "u64(row) * a.rows.cols",
    ],
  ),
  ...group(
    RACES,
    [
      "sums-of-slices-in-turn",
      "tile_ring.cuh",
      "add_slice(own, slice + i == first);\n          __syncthreads();",
      "add_slice(own, slice + i == first);\n          __syncwarp();",
    ],
  ),
  ...group(
    STEP_KERNEL,
    [
      "wait-between-operations",
      "step_kernel.cuh",
      "waits ? table.arrivals + i - 1 : nullptr",
      "nullptr",
    ],
    [
      "last-arrival-of-an-operation",
      "step_kernel.cuh",
      "min(blocks_of(operations[i - 1]), resident_blocks()) : 0",
      "min(blocks_of(operations[i - 1]), resident_blocks()) - 1 : 0",
    ],
    ["counters-of-the-next-step", "step_kernel.cuh", "table.arrivals[i] = 0;", ";"],
    [
      "arrival-before-the-barrier",
      "step_kernel.cuh",
      "      resident_barrier();\n      if (resident_thread() == 0 &&",
      "      if (resident_thread() == 0 &&",
    ],
    [
      "block-that-never-arrives",
      "step_kernel.cuh",
      "block + resident_blocks() >= blocks_of(operations[i])",
      "block + resident_blocks() > blocks_of(operations[i])",
    ],
    [
      "blocks-after-the-first",
      "step_kernel.cuh",
      "block += resident_blocks()",
      "block += blocks_of(operations[i])",
    ],
  ),
  ...group(
    NEXT_STEP,
    [
      "history-of-a-series",
      "next_step.cu",
      "].history_end - 1] = token;",
      "].history_end] = token;",
    ],
    [
      "steps-after-the-end",
      "next_step.cu",
      "a.control->ended = has_ended;",
      "a.control->ended = 0;",
    ],
    ["last-step-of-a-series", "next_step.cu", "series.step + 1 >= series.n_steps", "false"],
  ),
  ...group(
    GROUPED,
    [
      "row-of-x-beyond-4-gib",
      "grouped_decode_gemm.cu",
      "static_cast<const float*>(a.x.data) + row * a.weight.cols",
      "static_cast<const float*>(a.x.data) + u32(row) * a.weight.cols",
    ],
    [
      "shared-row-of-x",
      "moe.cuh",
      "e.x_shared ? row_of_set(set, pair / e.top_k)",
      "e.x_shared ? row_of_set(set, pair)",
    ],
    [
      "bias-of-an-expert",
      "moe.cuh",
      "e.bias[u64(expert) * rows + row]",
      "e.bias[row]",
    ],
    [
      "rows-past-an-expert",
      "grouped_decode_gemm.cu",
      "if (first + i < rows) store_of_pair(",
      "store_of_pair(",
    ],
    [
      "bias-of-up",
      "grouped_decode_gemm.cu",
      "up += bias[width];",
      "up += bias[0];",
    ],
    [
      "pair-of-a-listed-token",
      "grouped_decode_gemm.cu",
      "row_of_set(set, blockIdx.y / e.top_k)",
      "(blockIdx.y / e.top_k)",
    ],
  ),
  ...group(
    GROUPS,
    [
      "last-tile-of-a-group",
      "moe_group.cu",
      "min(a.tile_tokens, first_pair[e + 1] - first)",
      "a.tile_tokens",
    ],
  ),
  ...group(
    GEMM,
    [
      "rows-past-the-weight",
      "gemm.cuh",
      "min(first_row + row_of(i), w.rows - 1) * w.row_stride",
      "min(first_row + row_of(i), w.rows) * w.row_stride",
    ],
    [
      "step-of-a-tile",
      "gemm.cuh",
      "rows[i] + step * kStep, valid[i]);",
      "rows[i] + step / 2 * kStep, valid[i]);",
    ],
  ),
  ...group(
    TOKENS,
    [
      "token-that-is-not-there",
      "gemm.cuh",
      "valid[i] = token_of(i) < count;",
      "valid[i] = token_of(i) <= count;",
    ],
  ),
  ...group(
    NORMS,
    [
      "norm-epsilon",
      "rms_norm.cu",
      "block_sum(squares, partial) / float(a.cols) + a.eps",
      "block_sum(squares, partial) / float(a.cols) + 0 * a.eps",
    ],
    [
      "group-of-a-norm",
      "rms_norm.cu",
      "(u64(row) * gridDim.y + blockIdx.y) * a.cols",
      "u64(row) * gridDim.y * a.cols",
    ],
  ),
  ...group(
    ROPE,
    [
      "interleaved-rotation",
      "appended_rows.cuh",
      "second(interleaved ? 2 * i + 1 : i + n)",
      "second(interleaved ? 2 * i : i + n)",
    ],
    [
      "norm-of-all-heads",
      "rope_append.cu",
      "const float w = weight[(per_head ? 0 : heads.at(h)) + i];",
      "const float w = weight[i];",
    ],
    [
      "squares-of-all-heads",
      "rope_append.cu",
      "squares.add_head(heads.kind, width);",
      "squares.add_head(heads.begin(), width - heads.first * heads.dim);",
    ],
    [
      "values-of-a-head",
      "rope_append.cu",
      "values + h * heads.dim, in_fours);",
      "values, in_fours);",
    ],
    [
      "keys-kept-by-branches",
      "rope_append.cu",
      "i <= n_copies",
      "i <= 0 * n_copies",
    ],
    [
      "angles-after-the-second-of-a-lane",
      "rope_append.cu",
      "k == 0 ? own[0] : k == 1",
      "k == 0 ? own[0] : k >= 1",
    ],
  ),
  ...group(
    NEW_ROWS,
    [
      "order-of-squares",
      "rope_append.cu",
      "of_warp[k * kAppendHeads + h] += x * x;",
      "of_warp[(k / 2 + k % 2 * 2) * kAppendHeads + h] += x * x;",
    ],
    [
      "append-by-the-wrong-split",
      "batched_decode_attention.cu",
      "const bool is_own = position >= begin && position < end &&",
      "const bool is_own = position >= begin && entry.split == 0 &&",
    ],
    [
      "score-without-the-new-key",
      "batched_decode_attention.cu",
      "u8* copied = stage + 1 < Shape::kStages",
      "u8* copied = stage + 2 < Shape::kStages",
    ],
    [
      "copy-over-the-new-key",
      "batched_decode_attention.cu",
      "if (!all && place.first + row == without) continue;",
      "if (!all && place.first + row == without + 1) continue;",
    ],
    [
      "scales-of-the-new-key",
      "batched_decode_attention.cu",
      "if (from_first == lane_id()) scales.set(key_scales, value_scales);",
      "if (from_first == lane_id() + 1) scales.set(key_scales, value_scales);",
    ],
    [
      "heads-without-rotation",
      "appended_rows.cuh",
      "if (i < n_freqs) rotate(",
      "if (i < n_freqs && n > 0) rotate(",
    ],
    [
      "norm-of-a-new-head",
      "appended_rows.cuh",
      "(weight.own[n] + offset)",
      "(weight.own[0] + offset)",
    ],
  ),
  ...group(
    PREVIOUS_ROWS,
    [
      "row-before-in-the-run",
      "previous_rows.cu",
      "a.x[(u64(parent) * kv.n_kv_heads + head) * dim + i]",
      "a.x[row - u64(kv.n_kv_heads) * dim + i]",
    ],
    [
      "page-of-the-row-before",
      "previous_rows.cu",
      "page_of(a, a.sequences[token], before)",
      "page_of(a, a.sequences[token], position)",
    ],
    [
      "rows-kept-by-branches",
      "previous_rows.cu",
      "i <= *a.n_copies",
      "i == 0",
    ],
  ),
  ...group(
    STATE,
    [
      "rows-that-a-slot-keeps",
      "causal_conv1d.cu",
      "slot[row * a.cols] = own.at(run.n_rows + row);",
      "slot[row * a.cols] = own.at(run.n_rows + row + 1);",
    ],
    [
      "state-from-zero",
      "causal_conv1d.cu",
      "return from_zero ? 0.0f : kept[row * cols];",
      "return kept[row * cols];",
    ],
  ),
  ...group(
    ROUTES,
    [
      "second-best-of-a-group",
      "moe_route.cu",
      "second = fmaxf(second, fminf(first, worth));",
      "second = fmaxf(second, worth);",
    ],
    [
      "factor-of-weights",
      "moe_route.cu",
      "const float factor = a.normalize ? a.scale / sum : a.scale;",
      "const float factor = a.normalize ? 1.0f / sum : a.scale;",
    ],
  ),
  ...group(
    SAMPLING,
    [
      "next-of-equal-logits",
      "top_k_candidates.cu",
      "const u32 second = warp_lowest(taken == first ? same : taken);",
      "const u32 second = warp_lowest(same);",
    ],
    [
      "chunk-of-a-cursor",
      "top_k_candidates.cu",
      "b.logit == a.logit && b.chunk < a.chunk",
      "b.logit == a.logit && b.chunk > a.chunk",
    ],
    ["lowest-of-equal-logits", "sampling.cuh", "<< 32 | ~id;", "<< 32 | id;"],
  ),
  ...group(
    SAMPLING,
    [
      "chunk-with-the-end-of-top-p",
      "draw_token.cu",
      "bucket_at(row.depth(best)) <= end.last",
      "bucket_at(row.depth(best)) < end.last",
    ],
    [
      "tokens-that-reach-top-p",
      "draw_token.cu",
      "return {bucket, min(bucket, kBuckets - 1), goal - before};",
      "return {bucket, min(bucket, kBuckets - 1), goal - before / 2};",
    ],
  ),
  ...group(
    { ...ROPE, kernelTests: ["rope_append_of_values_in_keys"] },
    [
      "first-rotated-number",
      "rope_append.cu",
      "rotate_heads(values + a.first_rotated, heads",
      "rotate_heads(values, heads",
    ],
  ),
  ...group(
    {
      kernelTests: ["head_groups_are_groups_of_all_heads_in_order"],
      kernels: ["head_groups.cu", "moe_group.cu"],
    },
    [
      "last-tile-of-a-head",
      "head_groups.cu",
      "min(a.tile_tokens, tokens - first)",
      "a.tile_tokens",
    ],
  ),
  ...group(
    {
      kernelTests: ["gather_columns_of_three_values", "gather_columns_of_one_value"],
      kernels: ["gather_columns.cu"],
    },
    ["step-of-a-piece", "gather_columns.cu", "group * piece.step", "group * piece.width"],
  ),
  ...group(
    {
      kernelTests: ["selective_scan_of_one_token", "selective_scan_of_odd_heads"],
      kernels: ["selective_scan.cu"],
    },
    [
      "group-of-a-scan",
      "selective_scan.cu",
      "group = head / (a.n_heads / a.n_groups)",
      "group = head % a.n_groups",
    ],
  ),
  ...group(
    LATENT,
    [
      "keys-before-a-latent-tile",
      "latent_attention.cu",
      "total[r] = total[r] * shrink + sum;",
      "total[r] = total[r] + sum;",
    ],
    [
      "last-latent-query",
      "latent_attention.cu",
      "visible_to(rows.query(last_row), tile, args).end",
      "visible_to(rows.query(0), tile, args).end",
    ],
  ),
  ...group(
    STATE,
    [
      "key-head-of-a-value-head",
      "gated_delta_rule.cu",
      "head / (a.n_v_heads / a.n_k_heads)",
      "head % a.n_k_heads",
    ],
  ),
  ...group(
    SAMPLING,
    [
      "penalty-of-a-banned-token",
      "summarize_logits.cu",
      "if (!is_allowed(mask, begin + i)) {",
      "if (counts[i] == 0 && !is_allowed(mask, begin + i)) {",
    ],
    [
      "carry-of-a-weight",
      "radix_select.cuh",
      "(before + own < before ? 1 : 0)",
      "(own < before ? 1 : 0)",
    ],
  ),
  ...group(
    {
      kernelTests: [
        "convert_rows_moves_rows_into_the_range_of_f16",
        "convert_rows_normalizes",
        "epilogue_of_a_library_product",
      ],
      kernels: ["convert_rows.cu", "epilogue.cu"],
    },
    ["rows-below-the-range", "rounded_rows.cuh", "largest >= 0x1p-6f && ", ""],
    ["rows-above-the-range", "rounded_rows.cuh", " && largest < 0x1p15f) return", ") return"],
    [
      "range-of-rows-before-their-norm",
      "rounded_rows.cuh",
      "block_max(largest, maxima) * factor",
      "block_max(largest, maxima)",
    ],
    ["scale-of-rows-in-place", "epilogue.cu", "scale != 1.0f || e.bias", "e.bias"],
    ["first-columns-of-an-epilogue", "epilogue.cu", "first += gridDim.x * 1024", "first += a.cols"],
  ),
  ...group(
    {
      kernelTests: ["lora_of_tokens", "lora_of_outputs_with_an_activation"],
      kernels: ["lora_products.cu", "lora_sums.cu"],
    },
    [
      "sequence-of-an-output",
      "lora_products.cu",
      "a.of_outputs ? u32(a.output_rows[row]) : row",
      "row",
    ],
  ),
  ...group(
    {
      kernelTests: ["layer_norm_with_and_without_bias", "fused_residual_rms_norm_of_both_kinds"],
      kernels: ["layer_norm.cu", "fused_residual_rms_norm.cu"],
    },
    ["layer-norm-epsilon", "layer_norm.cu", "float(a.cols) + a.eps", "float(a.cols)"],
    ["epsilon-of-the-next-norm", "fused_residual_rms_norm.cu", "+ a.next_eps", "+ a.eps"],
  ),
];

/** Mutants of libflash_attn, caught in the emulator. */
import type { Mutant } from "./mutant.ts";

type Part = readonly [name: string, file: string, find: string, replace: string];

const group = (filter: string, ...parts: readonly Part[]): Mutant[] =>
  parts.map(([name, file, find, replace]) => ({
    name: `flash_attn/${name}`,
    file: `csrc/flash_attn/${file}`,
    find,
    replace,
    caughtBy: { tests: ["test/flash_attn/emulator_test.ts"], filter: `flash attention: ${filter}` },
  }));

export const FLASH_ATTN: readonly Mutant[] = [
  ...group(
    "forward",
    [
      "window-off-by-one",
      "core/key_window.cuh",
      "const int key = query + shift_ - left_;",
      "const int key = query + shift_ - left_ + 1;",
    ],
    [
      "window-right-off-by-one",
      "core/key_window.cuh",
      "const int key = query + shift_ + right_ + 1;",
      "const int key = query + shift_ + right_;",
    ],
    [
      "last-tile-of-keys",
      "core/key_window.cuh",
      "return {from / kKeys, (to + kKeys - 1) / kKeys};",
      "return {from / kKeys, to / kKeys};",
    ],
    [
      "mask-is-left-out",
      "core/key_window.cuh",
      "return first_key >= first(last_query) && end_key <= end(first_query);",
      "return first_key >= first(first_query) && end_key <= end(last_query);",
    ],
    [
      "pages-beyond-4-gib",
      "sm80/tile_ring.cuh",
      "head + static_cast<int64_t>(pages_[i]) * stride.batch +",
      "head + static_cast<int32_t>(pages_[i] * stride.batch) +",
    ],
    [
      "page-of-another-sequence",
      "core/sequence.cuh",
      "load_entry(kv.block_rows, index, index);",
      "index;",
    ],
    [
      "length-of-another-sequence",
      "core/sequence.cuh",
      "load_entry(query.seqlens, index, 0);",
      "load_entry(query.seqlens, 0, 0);",
    ],
    [
      "rest-of-a-quad",
      "core/output.cuh",
      "if (row != nullptr) store_16_bytes(row + 8 * (n + lane % 4), words);",
      "if (row != nullptr) store_16_bytes(row + 8 * n, words);",
    ],
    [
      "pages-of-the-tile-before",
      "sm80/tile_ring.cuh",
      "if constexpr (kKind == 1) look_up(tile + 1);",
      "if constexpr (kKind == 1) look_up(tile);",
    ],
    [
      "sum-that-is-not-shrunk",
      "sm80/forward.cuh",
      "    scale_rows<kRowTiles, kHeadDim / 8>(out, shrink);\n",
      "",
    ],
  ),
  ...group(
    "forward kernels of SM90",
    [
      "lanes-that-do-not-rejoin",
      "sm90/producer.cuh",
      "    barrier_wait(barrier, parity);\n    warp_barrier();",
      "    barrier_wait(barrier, parity);",
    ],
    ["fence-of-the-proxy", "sm90/producer.cuh", "    async_proxy_fence();\n", ""],
    ["fence-of-the-barriers", "sm90/block_state.cuh", "    barrier_init_fence();\n", ""],
    [
      "bytes-of-a-tile",
      "sm90/producer.cuh",
      "barrier_arrive_expecting(full, pieces * args_.keys_each * Tile::kColumns * 2);",
      "barrier_arrive_expecting(full, wanted * Tile::kColumns * 2);",
    ],
    [
      "tail-of-values",
      "sm90/producer.cuh",
      "if (args_.clear_tail != 0 && rows_left < Tile::kKeys) {",
      "if (false) {",
    ],
    [
      "fence-of-a-product",
      "sm90/consumer.cuh",
      "    const uint32_t values = v_ + stage * kStageStep;\n    product_fence();\n",
      "    const uint32_t values = v_ + stage * kStageStep;\n",
    ],
    [
      "scale-of-the-last-sum",
      "sm90/consumer.cuh",
      "    if constexpr (kScalesFirst) scale(out, shrink);\n" +
      "    issue_out(out, weights);\n    product_wait<0>();",
      "    issue_out(out, weights);\n    product_wait<0>();",
    ],
    [
      "counter-of-the-launch-before",
      "sm90/forward_launch.cuh",
      "clear_memory(all.claimed, sizeof *all.claimed, forward.stream)",
      "clear_memory(all.claimed, 0, forward.stream)",
    ],
    ["tensor-map-of-no-keys", "sm90/forward_launch.cuh", "if (args.kv.seqlen > 0) {", "{"],
    [
      "tiles-without-a-mask",
      "core/key_window.cuh",
      "return {(first(last_query) + kKeys - 1) / kKeys, to < 0 ? 0 : to / kKeys};",
      "return {first(last_query) / kKeys, to < 0 ? 0 : to / kKeys};",
    ],
  ),
  ...group(
    "E4M3",
    [
      "order-of-transposed-keys",
      "sm90/transposer.cuh",
      "every_other_byte<0>(pairs[2], pairs[3]), every_other_byte<1>(pairs[2], pairs[3])};",
      "every_other_byte<0>(pairs[3], pairs[2]), every_other_byte<1>(pairs[3], pairs[2])};",
    ],
    ["fence-of-transposed-values", "sm90/transposer.cuh", "    async_proxy_fence();\n", ""],
    [
      "factor-of-another-head",
      "sm90/consumer.cuh",
      "divide(work.head, args_.forward.schedule.group) * e4m3.descale_head_stride;",
      "work.head * e4m3.descale_head_stride;",
    ],
  ),
  // Fibers do not change between the release and the wait, so results stay right.
  ...group(
    "no races between threads, copies and products",
    [
      "keys-released-early",
      "sm90/consumer.cuh",
      "    pass_turn();\n    product_wait<1>();\n    release_keys();",
      "    pass_turn();\n    release_keys();\n    product_wait<1>();",
    ],
  ),
  ...group(
    "every schedule",
    [
      "head-of-a-tile",
      "core/schedule.cuh",
      "section == schedule.last_section ? schedule.last_heads : schedule.section_heads;",
      "schedule.section_heads;",
    ],
    [
      "sections-of-any-size",
      "host/forward_plan.cpp",
      "std::min(kMostBytes, device.l2_bytes / 5 * 4)",
      "std::min(kMostBytes, device.l2_bytes / 20)",
    ],
    [
      "first-rows-first",
      "core/schedule.cuh",
      "return {schedule.row_tiles - 1 - row, head",
      "return {row, head",
    ],
  ),
  ...group(
    "decoding",
    [
      "sink-of-a-part",
      "decode/parts.cuh",
      "const float total = own + exp2_fast(sink - top);",
      "const float total = own;",
    ],
    [
      "weight-of-a-part",
      "decode/parts.cuh",
      "const float weight = exp2_fast(lse[i * lse_step] - top);",
      "const float weight = 1;",
    ],
    [
      "tiles-of-a-part",
      "decode/parts.cuh",
      "first_tile + (part + 1) * n_tiles / count};",
      "first_tile + (part + 1) * n_tiles / count - 1};",
    ],
    ["rows-past-the-last", "decode/decode.cuh", "if (first_row + row >= n_rows) break;", ""],
    [
      "queries-of-a-group",
      "decode/decode.cuh",
      "const int last_query = divide(packed_row(Tile::kRows - 1), args.group);",
      "const int last_query = first_query;",
    ],
    [
      "sequence-of-a-part",
      "decode/parts.cuh",
      "static_cast<int64_t>(sequence.index) * args.query.seqlen + query;",
      "static_cast<int64_t>(sequence.index) + query;",
    ],
    [
      "weight-of-a-split",
      "decode/combine.cuh",
      "exp2_fast(lse[run][i] - base);",
      "exp2_fast(base - lse[run][i]);",
    ],
    [
      "sink-of-combined-parts",
      "decode/combine.cuh",
      "sum_of_parts<kLanes>(total) + exp2_fast(sink - base);",
      "sum_of_parts<kLanes>(total);",
    ],
    [
      "numbers-past-the-last-part",
      "decode/combine.cuh",
      "exists ? first + i : parts.count - 1, own_columns);",
      "first + i, own_columns);",
    ],
    ["wait-for-the-kernel-before", "decode/decode.cuh", "  wait(false);\n", ""],
    [
      "wait-before-keys",
      "decode/decode.cuh",
      "if ((args.early_keys != 0) == early)",
      "if (early)",
    ],
    [
      "wait-after-early-keys",
      "decode/decode.cuh",
      "    wait(true);\n    allow_next_kernel();\n",
      "    allow_next_kernel();\n",
    ],
    [
      "wait-for-the-parts",
      "decode/combine.cuh",
      "  wait_for_previous_kernel();\n  allow_next_kernel();\n",
      "  allow_next_kernel();\n",
    ],
    [
      "wait-without-parts",
      "decode/combine.cuh",
      "    wait_for_previous_kernel();\n    return;\n",
      "    return;\n",
    ],
    [
      "factors-past-the-last",
      "sm80/tile_ring.cuh",
      "left < 0 ? 0 : left > 8 ? 16 : 2 * left",
      "left > 0 ? 16 : 0",
    ],
    [
      "factor-of-a-neighbour",
      "decode/q8_products.cuh",
      "words_[n][(kBlocks + at) / 2];",
      "words_[n][at / 2];",
    ],
  ),
  ...group(
    "forward",
    [
      "row-that-sees-no-keys",
      "core/softmax.cuh",
      "base_[t][h] == kNoBase ? kMinusInfinity : base_[t][h];",
      "base_[t][h];",
    ],
    [
      "base-that-rises-without-the-sum",
      "core/softmax.cuh",
      "        sum_[t][h] *= shrink[t][h];\n",
      "",
    ],
    [
      "sink-above-the-scores",
      "core/softmax.cuh",
      "const float total = sum * shrink + exp2_fast(sink - top);",
      "const float total = sum + exp2_fast(sink - top);",
    ],
  ),
  ...group(
    "decoding",
    [
      "workspace-of-parts",
      "host/split_plan.cpp",
      "(n_splits * head_dim + ceil_div(n_splits, 4) * 4)",
      "(n_splits * head_dim + n_splits)",
    ],
    [
      "parts-past-the-last",
      "decode/combine.cuh",
      "exists ? -kMinusInfinity : kMinusInfinity;",
      "-kMinusInfinity;",
    ],
  ),
  ...group(
    "every schedule",
    [
      "heads-of-the-last-section",
      "host/forward_plan.cpp",
      "schedule.last_heads = divisor(heads - last_section * section_heads);",
      "schedule.last_heads = divisor(section_heads);",
    ],
  ),
  ...group(
    "decoding",
    [
      "wide-rows-of-the-workspace",
      "host/split_plan.cpp",
      "const int64_t rows = std::max(rows_of",
      "const int64_t rows = std::min(rows_of",
    ],
  ),
  ...group(
    "forward",
    [
      "magic-of-a-divisor",
      "host/arguments.cpp",
      "<< 32) / by) + 1;",
      "<< 32) / by);",
    ],
    [
      "base-of-a-capped-score",
      "core/softmax.cuh",
      "scale_(is_capped ? 1.0f : args.scale_log2)",
      "scale_(is_capped ? args.scale_log2 : 1.0f)",
    ],
  ),
  ...group(
    "masks of every type",
    [
      "number-of-a-capped-score",
      "host/arguments.cpp",
      "args.factor = p.softcap > 0 ? kLog2e : 1 / p.scale;",
      "args.factor = 1 / p.scale;",
    ],
    [
      "number-that-hides",
      "core/score_mask.cuh",
      "entry >= kLeastEntry ? fmaf(entry, factor, score) : kMinusInfinity;",
      "fmaf(entry, factor, score);",
    ],
    [
      "mask-of-a-neighbour",
      "core/score_mask.cuh",
      "const auto *const from = data + offset + static_cast<int64_t>(key) * mask.key_stride;",
      "const auto *const from = data + offset + static_cast<int64_t>(first_key) * mask.key_stride;",
    ],
    [
      "pitch-of-a-mask",
      "core/score_mask.cuh",
      "return load_entry(args.mask.pitch, 0, 1);",
      "return 1;",
    ],
    [
      "bits-of-the-next-word",
      "core/score_mask.cuh",
      ">> (key % 32 + own);",
      ">> own;",
    ],
    [
      "packed-rows-of-a-mask",
      "core/score_mask.cuh",
      "(packed ? mask.row_stride : mask.batch_stride);",
      "mask.batch_stride;",
    ],
    [
      "mask-of-a-packed-row",
      "decode/decode.cuh",
      "const PackedRow at(args, packed_row(warp_row + row), kv_head);",
      "const PackedRow at(args, packed_row(row), 0);",
    ],
    [
      "masks-on-sm90",
      "host/entry.cpp",
      "FLASH_ATTN_FORCE_SM80) == 0 && !has_mask(p);",
      "FLASH_ATTN_FORCE_SM80) == 0;",
    ],
  ),
  ...group(
    "no access beyond",
    [
      "entries-of-no-key",
      "core/score_mask.cuh",
      "const int column = 8 * n + e < last ? 8 * n + e : last;",
      "const int column = 8 * n + e;",
    ],
    [
      "words-of-no-key",
      "core/score_mask.cuh",
      "row[(key < last_key ? key : last_key) / 32]",
      "row[key / 32]",
    ],
    [
      "rows-of-no-query",
      "sm80/forward.cuh",
      "masks.offset(query < last_row ? query : last_row, work.place.head);",
      "masks.offset(query, work.place.head);",
    ],
  ),
  {
    name: "flash_attn/pages-of-a-sequence",
    file: "csrc/flash_attn/host/validate.cpp",
    find: "p.batch <= 1 || p.block_table_stride >= pages",
    replace: "p.batch <= 1 || p.block_table_stride > pages / 2",
    caughtBy: { tests: ["test/flash_attn/library_test.ts"] },
  },
  ...([
    [
      "stride-that-is-not-checked",
      " &&\n                       is_stride(p.v_head_stride, p.n_kv_heads > 1, step)",
    ],
    ["words-that-are-not-aligned", "is_aligned(p.cu_seqlens_k, 4) && "],
  ] as const).map(([name, find]): Mutant => ({
    name: `flash_attn/${name}`,
    file: "csrc/flash_attn/host/validate.cpp",
    find,
    replace: "",
    caughtBy: { tests: ["test/flash_attn/library_test.ts"], filter: "invalid arguments" },
  })),
];

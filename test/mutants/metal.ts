/** Mutants of the Metal host and kernels, caught in the emulator. */
import type { KernelCheck, Mutant, TestCheck } from "./mutant.ts";

type Part = readonly [name: string, file: string, find: string, replace: string];

const group = (caughtBy: KernelCheck | TestCheck, ...parts: readonly Part[]): Mutant[] =>
  parts.map(([name, file, find, replace]) => ({
    name: `metal/${name}`,
    file,
    find,
    replace,
    caughtBy,
  }));

const on = (...names: readonly string[]): TestCheck => ({
  tests: names.map((name) => `test/ops/${name}_test.ts`),
  gpu: "metal",
});
const FAILURES: TestCheck = {
  tests: ["test/metal/failures_test.ts"],
  filter: "Metal: a forward pass",
};
const ATTENTION: KernelCheck = {
  kernelTests: [
    "prefill_attention_of_two_tiles",
    "prefill_attention_with_sinks",
    "prefill_attention_q8_in_a_window",
    "decode_attention_of_a_batch",
    "decode_attention_q8_in_a_window",
    "decode_attention_with_sinks",
    "decode_attention_bf16_of_many_heads",
    "decode_attention_q8_of_draft_tokens_with_all_options",
    "attention_over_pages_beyond_4_gib",
  ],
  kernels: ["prefill_attention.metal", "batched_decode_attention.metal"],
  instances: "_attention<(f16|q8), (16|64|80|96|128)>",
};
const PRODUCTS: KernelCheck = {
  kernelTests: [
    "matvec_of_one_token",
    "matvec_of_nine_tokens",
    "matvec_of_odd_columns",
    "gemm_of_odd_columns",
    "gemm_of_every_fast_format",
    "products_with_rows_beyond_4_gib",
  ],
  kernels: ["matvec.metal", "gemm.metal", "round_rows.metal", "embed.metal"],
  instances: "Format",
};
const OVERRUNS: KernelCheck = {
  ...PRODUCTS,
  kernelTests: ["matvec_of_odd_columns", "matvec_of_nine_tokens", "gemm_of_odd_columns"],
  mode: "asan",
};
const GROUPS: KernelCheck = {
  kernelTests: ["moe_group_covers_every_pair_once", "moe_group_of_the_last_experts"],
  kernels: ["moe_group.metal", "moe_route.metal"],
};

export const METAL: readonly Mutant[] = [
  ...group(
    FAILURES,
    [
      "first-command-buffer",
      "csrc/metal/commands.mm",
      "for (Commands& each : buffers_) each.wait(what);",
      "buffers_.back().wait(what);",
    ],
  ),
  ...group(
    on("repeated_runs"),
    [
      "plan-of-old-inputs",
      "csrc/gpu/step_executor.h",
      "if (known->second.inputs_generation == inputs_->generation()) return used(known->second);",
      "return known->second;",
    ],
    ["plan-of-an-old-workspace", "csrc/gpu/step_executor.h", "    plans_.clear();\n", ""],
    ["generation-of-inputs", "csrc/gpu/device_inputs.h", "    ++generation_;\n", ""],
  ),
  ...group(
    { ...on("repeated_runs"), filter: "more positions than planned" },
    [
      "sums-of-a-split",
      "csrc/metal/plan_attention.cpp",
      ".ml = scratch(rows * 2 * sizeof(float))};",
      ".ml = scratch(rows * sizeof(float))};",
    ],
  ),
  ...group(
    on("late_masks"),
    ["masks-not-waited-for", "csrc/metal/metal_executor.cpp", "  inputs.masks_ready.wait();\n", ""],
    ["masks-not-copied", "csrc/metal/metal_executor.cpp", "  inputs_->copy_masks(inputs);\n", ""],
  ),
  ...group(
    on("moe"),
    [
      "threadgroup-memory-of-a-group",
      "csrc/metal/plan_moe.cpp",
      "(2 * p.n_experts + 1) * sizeof(uint32_t)",
      "2 * p.n_experts * sizeof(uint32_t)",
    ],
  ),
  ...group(
    on("attention"),
    [
      "row-groups",
      "csrc/metal/plan_attention.cpp",
      "divide_up(op.n_heads / n_kv_heads * queries, kDecodeRows);",
      "divide_up(op.n_heads / n_kv_heads, kDecodeRows);",
    ],
    [
      "sinks-that-are-there",
      "csrc/metal/plan_attention.cpp",
      "                            .dim = v_dim,\n                            .has_sinks = op.sinks != nullptr});",
      "                            .dim = v_dim,\n                            .has_sinks = false});",
    ],
  ),
  ...group(
    on("matmul"),
    [
      "list-of-rows",
      "csrc/metal/plan_products.cpp",
      "const Grid grid{shape.row_groups, divide_up(group.max_rows, shape.tokens)};",
      "const Grid grid{shape.row_groups, group.max_rows / shape.tokens};",
    ],
  ),
  ...group(
    ATTENTION,
    [
      "window-off-by-one",
      "kernels/metal/attention.h",
      "position + 1 > a.window ? position + 1 - seen : 0",
      "position + 1 > a.window ? position - seen : 0",
    ],
    [
      "position-past-the-end",
      "kernels/metal/attention.h",
      "score = position >= visible.begin && position < visible.end ? score : -INFINITY;",
      "score = position >= visible.begin && position <= visible.end ? score : -INFINITY;",
    ],
    [
      "scale-of-a-block",
      "kernels/metal/attention.h",
      "from[1]}, rows.row_scales(slot)[unit * 8 / kScaleGroup]",
      "from[1]}, rows.row_scales(slot)[0]",
    ],
    [
      "head-of-a-row",
      "kernels/metal/attention.h",
      "return kv_head * group + (first + row) % group;",
      "return kv_head * group + row % group;",
    ],
    [
      "softcap-of-attention",
      "kernels/metal/attention.h",
      "score = args.softcap * precise::tanh(score / args.softcap);",
      "score = precise::tanh(score / args.softcap);",
    ],
    [
      "sink-of-a-merge",
      "kernels/metal/batched_decode_attention.metal",
      "float total = has_sinks ? precise::exp(sinks[head] - largest) : 0.0f;",
      "float total = 0.0f;",
    ],
    [
      "second-split",
      "kernels/metal/batched_decode_attention.metal",
      "const uint split_begin = entry.split * entry.split_tokens;",
      "const uint split_begin = entry.split * (entry.split_tokens - 8);",
    ],
  ),
  ...group(
    PRODUCTS,
    [
      "minimum-of-a-format",
      "kernels/metal/matvec.h",
      "sums.products[i][t] += F::kHasMin ? scaled - F::min(c[i], r) * x_sums[t] : scaled;",
      "sums.products[i][t] += scaled;",
    ],
    [
      "rows-past-the-weight",
      "kernels/metal/gemm.h",
      "weight_copy.rows[i] = rows.row(min(row, rows.count - 1));",
      "weight_copy.rows[i] = rows.row(min(row, rows.count));",
    ],
  ),
  ...group(
    OVERRUNS,
    [
      "columns-past-the-end",
      "kernels/metal/row_set.h",
      "k + 3 < cols ? x[k + 3] : 0.0f",
      "k + 2 < cols ? x[k + 3] : 0.0f",
    ],
    [
      "token-that-is-not-there",
      "kernels/metal/row_set.h",
      "const uint place = min(i, set.count - 1);",
      "const uint place = min(i, set.count);",
    ],
    [
      "columns-of-a-token",
      "kernels/metal/row_set.h",
      "if (cols % 4 != 0) return load_four<false>(x, k, cols);\n",
      "",
    ],
  ),
  ...group(
    GROUPS,
    [
      "last-expert-of-a-group",
      "kernels/metal/moe_group.metal",
      "const uint end = e + 1 < n_experts ? counts[e + 1] : n_pairs;",
      "const uint end = e + 2 < n_experts ? counts[e + 1] : n_pairs;",
    ],
    [
      "first-tiles-of-experts",
      "kernels/metal/moe_group.metal",
      "      first_tile[n_experts] = n;\n",
      "",
    ],
  ),
  ...group(
    on("gated_products", "concatenated_weights"),
    [
      "third-row-of-two-pieces",
      "csrc/metal/plan_products.cpp",
      "      if (last->pieces == 2) last->args.third_row = last->args.rows;\n",
      "",
    ],
  ),
  ...group(
    on("sampling"),
    [
      "greedy-with-candidates",
      "csrc/metal/plan_sampling.cpp",
      "s.mask < 0 && s.n_top == 0;",
      "s.mask < 0;",
    ],
  ),
  ...group(
    on("invariance"),
    [
      "list-of-a-gemm",
      "csrc/metal/plan_products.cpp",
      "args.has_row_list = group.kind != RowKind::all;\n" +
      "  const Grid grid{divide_up(group.max_rows, kGemmTokens)",
      "args.has_row_list = false;\n  const Grid grid{divide_up(group.max_rows, kGemmTokens)",
    ],
  ),
  ...group(
    {
      kernelTests: ["rms_norm_matvec_of_many_tokens"],
      kernels: ["rms_norm_matvec.metal"],
      mode: "tsan",
    },
    [
      "row-that-is-stored-twice",
      "kernels/metal/rms_norm_matvec.metal",
      "    if (first + t >= set.count) return;\n",
      "",
    ],
  ),
  ...group(
    {
      kernelTests: ["selective_scan_of_one_token", "selective_scan_of_odd_heads"],
      kernels: ["selective_scan.metal"],
    },
    [
      "rows-past-the-state",
      "kernels/metal/selective_scan.metal",
      "to[j] = j < d_state ? from[j] : 0.0f;",
      "to[j] = from[j];",
    ],
    [
      "limits-of-time-steps",
      "kernels/metal/selective_scan.metal",
      "step < args.dt_min ? args.dt_min : step > args.dt_max ? args.dt_max : step;",
      "step < args.dt_min ? args.dt_min : step;",
    ],
  ),
  ...group(
    {
      kernelTests: ["rope_append_of_values_in_keys", "rope_append_norm_all_heads_bf16"],
      kernels: ["rope_append.metal", "rope_table.metal"],
    },
    [
      "first-rotated-number",
      "kernels/metal/rope_append.metal",
      "rotate_pairs(values + args.first_rotated,",
      "rotate_pairs(values,",
    ],
  ),
  ...group({ ...on("attention"), filter: "over values in F16" }, [
    "sinks-of-latent-heads",
    "csrc/metal/plan_attention.cpp",
    "          floats_of(op.sinks)},\n         LatentAttentionArgs",
    "          Place{}},\n         LatentAttentionArgs",
  ], [
    "dim-of-a-merge",
    "csrc/metal/plan_attention.cpp",
    ".dim = v_dim,",
    ".dim = kv.shape.k_head_dim,",
  ]),
  ...group({ ...on("attention"), filter: "over an F16 cache" }, [
    "softcap-of-attention-args",
    "csrc/metal/plan_attention.cpp",
    "          .softcap = op.softcap,\n          .window = op.window,\n          .causal",
    "          .softcap = 0.0f,\n          .window = op.window,\n          .causal",
  ]),
  ...group({ tests: ["test/metal/models_test.ts"], filter: "story" }, [
    "windows-kept-open",
    "csrc/metal/weight_store.cpp",
    "const auto opened = windows_.open(mapped_ranges());",
    "const auto opened = (windows_.open(mapped_ranges()), std::vector<std::shared_ptr<const Buffer>>());",
  ]),
  ...group(on("concatenated_weights"), [
    "second-piece-of-floats",
    "csrc/metal/weight_store.cpp",
    "buffer->data()) + first * weight.cols;",
    "buffer->data()) + uint64_t{0};",
  ], [
    "copies-swapped",
    "csrc/metal/weight_store.cpp",
    "return needs_copy(weight) ? copied_rows(weight, bytes) : mapped_rows(weight);",
    "return !needs_copy(weight) ? copied_rows(weight, bytes) : mapped_rows(weight);",
  ], [
    "rows-of-several-parts",
    "csrc/metal/weight_store.cpp",
    "    list.back().rows += part.rows;\n    bytes",
    "    \n    bytes",
  ], [
    "type-of-a-product",
    "csrc/metal/plan_products.cpp",
    "                        .type = rows.type,\n",
    "                        .type = weight.matrix[0].type,\n",
  ]),
  ...group(on("matmul"), [
    "last-row-of-a-part",
    "csrc/metal/weight_store.cpp",
    "return part.rows * *row_bytes(part.type, cols);",
    "return (part.rows - 1) * *row_bytes(part.type, cols);",
  ], ["codebook-of-iq3", "csrc/gpu/weight_format.cpp", "append(bytes, iq3_xxs_grid);", ""]),
  ...group({ ...on("repeated_runs"), filter: "another step" }, [
    "matrix-that-has-a-place",
    "csrc/metal/weight_store.cpp",
    "if (!has_place(weight.matrix)) matrices_.emplace",
    "if (true) matrices_.emplace",
  ]),
  ...group(on("norms"), [
    "residency-without-changes",
    "csrc/metal/residency.mm",
    "    if (has_changes_) {\n",
    "    if (!has_changes_) {\n",
  ], [
    "lines-of-a-text",
    "csrc/metal/source_text.cpp",
    'text.append(line).append("\\n");',
    "text.append(line);",
  ], [
    "eps-of-two-norms",
    "csrc/gpu/shared_operations.h",
    "                                                     .eps = op.eps,\n                                                     .offset",
    "                                                     .eps = next.eps,\n                                                     .offset",
  ], [
    "sum-of-two-norms",
    "csrc/gpu/shared_operations.h",
    "                                               .residual = value(op.residual),\n                                               .weight = floats(next.weight)",
    "                                               .residual = value(op.residual),\n                                               .weight = floats(op.weight)",
  ]),
  ...group({ tests: ["test/metal/models_test.ts"], filter: "idle" }, [
    "residency-not-repeated",
    "csrc/metal/residency.mm",
    "    if (@available(macOS 15.0, *)) {\n      const AutoreleasePool pool;\n      [static_cast<id<MTLResidencySet>>(set_.get()) requestResidency];\n    }",
    "    if (@available(macOS 15.0, *)) {\n      const AutoreleasePool pool;\n      \n    }",
  ]),
  ...group({ tests: ["test/metal/models_test.ts"], filter: "without a signal" }, [
    "residency-of-an-exiting-process",
    "csrc/metal/residency.mm",
    "    if (!call.is_allowed()) return;\n",
    "",
  ]),
  ...group(on("step_series"), [
    "last-step-of-a-series",
    "csrc/metal/metal_executor.cpp",
    "step < series.n_steps(); ++step) {\n    stop.check();\n    commands",
    "step + 1 < series.n_steps(); ++step) {\n    stop.check();\n    commands",
  ]),
  ...group({ tests: ["test/metal/matrix_places_test.ts"], filter: "doctor" }, [
    "free-memory-of-a-device",
    "csrc/metal/metal_backend.cpp",
    "const uint64_t free = device_->device->free_bytes();",
    "const uint64_t free = properties.memory_bytes;",
  ], [
    "text-of-a-gibibyte",
    "csrc/gpu/device_memory.cpp",
    "const double scale = bytes >= 1u << 30 ?",
    "const double scale = bytes > 1u << 30 ?",
  ]),
  ...group({ ...on("meter"), filter: "properties" }, [
    "memory-of-a-device",
    "csrc/metal/metal_backend.cpp",
    '    info.add("memory_bytes", properties.memory_bytes);',
    '    info.add("memory_bytes", free);',
  ]),
  ...group(on("moe"), [
    "one-decoded-row-of-experts",
    "csrc/metal/plan_moe.cpp",
    "if (decode.max_rows > 0) emit_grouped_matvec",
    "if (decode.max_rows > 1) emit_grouped_matvec",
  ]),
  ...group(on("kv"), [
    "encoder-of-a-copy",
    "csrc/metal/commands.mm",
    "  use(Encoder::blit);\n  [static_cast<id<MTLBlitCommandEncoder>>(encoder_.get()) copyFromBuffer",
    "  \n  [static_cast<id<MTLBlitCommandEncoder>>(encoder_.get()) copyFromBuffer",
  ], [
    "place-of-values",
    "csrc/gpu/device_caches.cpp",
    "          .v_offset = static_cast<uint32_t>(v_offset),\n",
    "          .v_offset = static_cast<uint32_t>(v_scales),\n",
  ]),
  ...group(on("meter"), [
    "memory-and-sums",
    "csrc/metal/measured_limits.cpp",
    "{sums.at(), memory.at()}",
    "{memory.at(), sums.at()}",
  ]),
  ...group({ ...on("meter"), filter: "bandwidth" }, [
    "fewest-bytes-to-measure",
    "csrc/metal/measured_limits.cpp",
    "if (free < kFewestBytes) return 0;",
    "if (free < (kFewestBytes << 5)) return 0;",
  ]),
  ...group(on("recurrence"), [
    "state-of-a-scan",
    "csrc/gpu/shared_operations.h",
    ".slot_stride = device_state(*op.state).stride(),\n                           .n_heads = op.n_heads(),\n                           .n_groups = op.n_groups",
    ".slot_stride = device_state(*op.state).stride(),\n                           .n_heads = op.n_heads(),\n                           .n_groups = 1",
  ]),
  ...group(on("previous_rows"), [
    "branches-of-previous-rows",
    "csrc/gpu/shared_operations.h",
    "                                       .parents = inputs_.parents,",
    "                                       .parents = inputs_.positions,",
  ]),
  ...group(on("lora"), [
    "products-of-adapters",
    "csrc/gpu/shared_operations.h",
    "uint64_t{max_results} * n_ranks * sizeof(float)",
    "uint64_t{max_rows(op.x)} * n_ranks * sizeof(float)",
  ]),
  ...group({ ...on("attention"), filter: "Q8_0 cache" }, [
    "place-of-scales",
    "csrc/gpu/device_caches.cpp",
    "          .k_scales = static_cast<uint32_t>(k_scales),\n          .v_scales = static_cast<uint32_t>(v_scales)};",
    "          .k_scales = static_cast<uint32_t>(v_scales),\n          .v_scales = static_cast<uint32_t>(v_scales)};",
  ]),
  ...group(on("rows"), [
    "last-output-of-a-run",
    "csrc/gpu/step_work.cpp",
    "output < inputs.n_outputs; ++output) ++n_outputs",
    "output + 1 < inputs.n_outputs; ++output) ++n_outputs",
  ], [
    "longest-short-run",
    "csrc/gpu/step_work.cpp",
    "const bool is_short = runs[run].n_queries <= kDecodeQueries;",
    "const bool is_short = runs[run].n_queries < kDecodeQueries;",
  ], [
    "run-of-an-output",
    "csrc/gpu/step_work.cpp",
    "run_of_token[static_cast<uint32_t>(inputs.output_rows[output])]",
    "run_of_token[output]",
  ], [
    "list-of-decoded-tokens",
    "csrc/gpu/input_layout.cpp",
    "std::span<const uint32_t>(rows.tokens.decode));",
    "std::span<const uint32_t>(rows.tokens.prefill));",
  ], [
    "count-of-prefill-outputs",
    "csrc/gpu/input_layout.h",
    "static constexpr uint64_t n_prefill_outputs = 32;",
    "static constexpr uint64_t n_prefill_outputs = 28;",
  ]),
  ...group(on("repeated_runs"), [
    "workspace-that-covers",
    "csrc/gpu/step_executor.h",
    "WorkspaceBytes{routes_.bytes(), scratch_.bytes(), arrivals_.bytes()}",
    "WorkspaceBytes{scratch_.bytes(), routes_.bytes(), arrivals_.bytes()}",
  ]),
  ...group(on("matmul"), [
    "one-decoded-row",
    "csrc/metal/plan_products.cpp",
    "if (decode.max_rows > 0) emit_matvec(product, value(op.x), nullptr, decode);",
    "if (decode.max_rows > 1) emit_matvec(product, value(op.x), nullptr, decode);",
  ], [
    "rows-of-a-simd-group",
    "csrc/metal/product_shape.cpp",
    "format.is_generic ? kMatvecBlocksRows : kMatvecRows;",
    "!format.is_generic ? kMatvecBlocksRows : kMatvecRows;",
  ]),
  ...group({ tests: ["test/metal/models_test.ts"], filter: "story" }, [
    "parts-that-follow-each-other",
    "csrc/metal/weight_store.cpp",
    "part.data == last->first->data + last->bytes)",
    "part.data >= last->first->data + last->bytes)",
  ]),
  ...group(on("concatenated_weights"), [
    "parts-of-one-type",
    "csrc/metal/weight_store.cpp",
    "return std::ranges::all_of(weight.parts, [&](const WeightPart& part) {\n    return part.type == weight.parts[0].type;",
    "return std::ranges::all_of(weight.parts, [&](const WeightPart& part) {\n    return part.type <= weight.parts[0].type;",
  ]),
  ...group(on("norms"), [
    "buffers-that-join",
    "csrc/metal/residency.mm",
    "[static_cast<id<MTLResidencySet>>(set_.get()) addAllocation:static_cast<id<MTLBuffer>>(buffer)];",
    "",
  ]),
  ...group(on("step_series"), [
    "series-not-waited-for",
    "csrc/metal/metal_executor.cpp",
    "  commands.wait(kRunning);\n  if (bytes > 0) std::memcpy(&results.header(0), series_results_.data(), bytes);",
    "  \n  if (bytes > 0) std::memcpy(&results.header(0), series_results_.data(), bytes);",
  ]),
  ...group(on("kv"), [
    "encoder-of-copies",
    "csrc/metal/commands.mm",
    "if (kind == Encoder::blit) encoder_ =",
    "if (false) encoder_ =",
  ]),
  ...group({ tests: ["test/metal/models_test.ts"], filter: "texts" }, [
    "once-in-a-text",
    "csrc/metal/source_text.cpp",
    "} else if (line != kOnce) {",
    "} else if (true) {",
  ]),
  ...group(on("repeated_runs"), [
    "room-of-a-history",
    "csrc/gpu/device_inputs.h",
    "    reserve(history_, inputs.history.size_bytes());",
    "    reserve(history_, inputs.history.size());",
  ]),
  ...group(on("rows"), [
    "tokens-of-a-run",
    "csrc/gpu/step_work.cpp",
    "const uint32_t token = runs[run].first_row + i;",
    "const uint32_t token = i;",
  ]),
  ...group({ ...on("attention"), filter: "an F16 cache" }, [
    "first-row-of-a-tile",
    "csrc/gpu/step_work.cpp",
    "list.push_back({run.first_row + done, n,",
    "list.push_back({run.first_row, n,",
  ]),
  ...group(on("gates"), [
    "gate-of-a-sigmoid",
    "csrc/gpu/shared_operations.h",
    "         .gate = value(op.gate),\n         .residual = value(op.residual),",
    "         .gate = value(op.x),\n         .residual = value(op.residual),",
  ]),
  ...group(on("moe"), [
    "threshold-of-a-route",
    "csrc/gpu/shared_operations.h",
    ".threshold = op.threshold,",
    ".threshold = 0.0f,",
  ]),
  ...group({ tests: ["test/metal/models_test.ts"], filter: "list of devices" }, [
    "memory-of-a-listed-device",
    "csrc/metal/metal_backend.cpp",
    '  entry.add("memory_bytes", device->memory_bytes);\n',
    "",
  ]),
  ...group({ tests: ["test/metal/models_test.ts"], filter: "after a long pause" }, [
    "residency-after-a-pause",
    "csrc/metal/residency.mm",
    "  if (was_idle) wake_.notify_one();\n",
    "",
  ]),
  ...group(
    { tests: ["test/metal/failures_test.ts"], filter: "just fits" },
    [
      "bytes-of-copied-weights",
      "csrc/metal/weight_store.cpp",
      "    if (needs_copy(weight)) copied_rows(weight, copied);\n",
      "",
    ],
    [
      "bytes-of-unified-weights",
      "csrc/metal/weight_store.cpp",
      "if (!is_uniform(*weight)) total += float_bytes(*weight);",
      "",
    ],
    [
      "bytes-of-the-driver",
      "csrc/gpu/device_memory.cpp",
      "constexpr uint64_t kDriverBytes = 64u << 20;",
      "constexpr uint64_t kDriverBytes = 96u << 20;",
    ],
    [
      "share-of-the-driver",
      "csrc/gpu/device_memory.cpp",
      "std::min(kDriverBytes, room.total_bytes / 32)",
      "std::min(kDriverBytes, room.total_bytes / 64)",
    ],
    [
      "old-workspace-kept-while-it-grows",
      "csrc/gpu/step_executor.h",
      "      buffer = Buffer();\n",
      "",
    ],
  ),
  ...group(
    on("neighbours"),
    [
      "product-of-another-value",
      "csrc/metal/plan_products.cpp",
      "product->x != op.out || op.residual != 0",
      "op.residual != 0",
    ],
    [
      "norm-with-a-residual",
      "csrc/metal/plan_products.cpp",
      "product->x != op.out || op.residual != 0",
      "product->x != op.out",
    ],
    [
      "gated-unit-of-another-value",
      "csrc/metal/plan_products.cpp",
      "!glu || glu->x != op.out || cols",
      "!glu || cols",
    ],
    [
      "gated-units-of-parts",
      "csrc/metal/plan_products.cpp",
      "!glu || glu->x != op.out || cols(op.out) != 2 * glu->width",
      "!glu || glu->x != op.out",
    ],
    [
      "gated-product-with-a-bias",
      "csrc/metal/plan_products.cpp",
      "if (op.bias || op.residual || op.alpha != 1",
      "if (op.residual || op.alpha != 1",
    ],
    [
      "gated-product-with-a-residual",
      "csrc/metal/plan_products.cpp",
      "if (op.bias || op.residual || op.alpha != 1",
      "if (op.bias || op.alpha != 1",
    ],
    [
      "gated-product-with-a-factor",
      "csrc/metal/plan_products.cpp",
      "if (op.bias || op.residual || op.alpha != 1 || op.activation",
      "if (op.bias || op.residual || op.activation",
    ],
    [
      "gated-product-with-an-activation",
      "csrc/metal/plan_products.cpp",
      "if (op.bias || op.residual || op.alpha != 1 || op.activation != FORGE_IDENTITY)",
      "if (op.bias || op.residual || op.alpha != 1)",
    ],
    [
      "heads-of-another-product",
      "csrc/metal/plan_products.cpp",
      "!append || append->qkv != op.out ||",
      "!append ||",
    ],
    [
      "heads-with-a-residual",
      "csrc/metal/plan_products.cpp",
      "if (op.residual || op.alpha != 1 || op.activation",
      "if (op.alpha != 1 || op.activation",
    ],
    [
      "heads-with-a-norm",
      "csrc/metal/plan_products.cpp",
      "if (append->q_norm || append->k_norm",
      "if (append->k_norm",
    ],
    [
      "heads-with-a-norm-of-keys",
      "csrc/metal/plan_products.cpp",
      "if (append->q_norm || append->k_norm || kv",
      "if (append->q_norm || kv",
    ],
    [
      "heads-with-scales",
      "csrc/metal/plan_products.cpp",
      "append->k_norm || kv.has_scales()",
      "append->k_norm",
    ],
    [
      "heads-with-values-in-keys",
      "csrc/metal/plan_products.cpp",
      "if (kv.values_in_keys || kv.k_head_dim",
      "if (kv.k_head_dim",
    ],
    [
      "heads-over-the-input-of-their-norm",
      "csrc/metal/plan_products.cpp",
      "!is_apart(append->out) || (table",
      "(table",
    ],
    [
      "angles-over-the-input-of-a-norm",
      "csrc/metal/plan_products.cpp",
      "!is_apart(append->out) || (table && !is_apart(table->out))",
      "!is_apart(append->out)",
    ],
    [
      "heads-of-odd-values",
      "csrc/metal/plan_products.cpp",
      " || kv.v_head_dim % 2 != 0) return",
      ") return",
    ],
    [
      "second-norm-of-another-value",
      "csrc/gpu/planner.h",
      "!next || next->x != op.out || next",
      "!next || next",
    ],
    [
      "second-norm-with-a-residual",
      "csrc/gpu/planner.h",
      "next->x != op.out || next->residual != 0)",
      "next->x != op.out)",
    ],
  ),
  ...group(
    {
      kernelTests: ["sampling_of_equal_logits"],
      kernels: [
        "adjust_logits.metal",
        "chunk_maxima.metal",
        "fused_temperature_softmax.metal",
        "sample_token.metal",
        "top_k_candidates.metal",
      ],
    },
    [
      "least-share-of-1",
      "kernels/metal/sample_token.metal",
      "share >= row.s.min_p ? mass_of(share)",
      "share > row.s.min_p ? mass_of(share)",
    ],
  ),
  ...group(
    {
      kernelTests: ["latent_attention_of_one_token"],
      kernels: ["latent_attention.metal", "batched_decode_attention.metal"],
      instances: "latent_attention<|_attention<f16, 64>",
    },
    [
      "unwritten-row-after-the-last-position",
      "kernels/metal/attention.h",
      "if (position >= end) return {kNoPage, 0};",
      "if (position > end) return {kNoPage, 0};",
    ],
  ),
  ...group(
    {
      kernelTests: [
        "sampling_flags_rows_without_a_choice",
        "sampling_reports_more_candidates_than_a_chunk_has",
      ],
      kernels: [
        "adjust_logits.metal",
        "chunk_maxima.metal",
        "fused_temperature_softmax.metal",
        "sample_token.metal",
        "top_k_candidates.metal",
      ],
    },
    [
      "candidates-of-nan",
      "kernels/metal/top_k_candidates.metal",
      "if (n_top == 0 || result->flags == kLogitsNan) return;",
      "if (n_top == 0) return;",
    ],
    [
      "cursor-of-an-exhausted-chunk",
      "kernels/metal/top_k_candidates.metal",
      "n_below > 0 ? below : NAN",
      "below",
    ],
  ),
  ...group(on("moe"), [
    "worth-of-a-group-of-one",
    "kernels/metal/moe_route.metal",
    "args.has_bias != 0 && size > 1 ? first + second",
    "args.has_bias != 0 ? first + second",
  ]),
  ...group(
    {
      kernelTests: ["gated_delta_rule_of_one_token"],
      kernels: ["gated_delta_rule.metal"],
      instances: "<1>",
      mode: "asan",
    },
    [
      "state-of-a-missing-column",
      "kernels/metal/gated_delta_rule.metal",
      "const bool is_kept = has_column && run.from_zero == 0;",
      "const bool is_kept = run.from_zero == 0;",
    ],
  ),
  ...group({ ...on("matmul"), filter: "every type" }, [
    "rounded-rows-of-odd-columns",
    "csrc/metal/plan_products.cpp",
    "scratch(rows * rounded_cols(cols) * sizeof(uint16_t))",
    "scratch(rows * cols * sizeof(uint16_t))",
  ]),
];

/** Mutants of the CUDA host, caught on the emulated GPU. */
import type { Mutant, TestCheck } from "./mutant.ts";

type Part = readonly [name: string, file: string, find: string, replace: string];

const group = (caughtBy: TestCheck, ...parts: readonly Part[]): Mutant[] =>
  parts.map(([name, file, find, replace]) => ({
    name: `cuda_host/${name}`,
    file: `csrc/${file}`,
    find,
    replace,
    caughtBy,
  }));

const on = (...names: readonly string[]): TestCheck => ({
  tests: names.map((name) => `test/ops/${name}_test.ts`),
  gpu: "cuda",
});

const REPEATED = on("repeated_runs");
const MOST_SPLITS = { ...REPEATED, filter: "more positions than planned" };
const MASKS = on("late_masks");
const OVERLAP: TestCheck = { ...on("late_masks", "repeated_runs"), pretends: { architecture: 90 } };
const FAILURES: TestCheck = { tests: ["test/cuda/failures_test.ts"], filter: "CUDA: a " };
const SHAPES = on("attention");
const LIBRARY: TestCheck = {
  tests: ["test/cuda/operations_test.ts"],
  filter: "attention by libflash_attn",
};

export const CUDA_HOST: readonly Mutant[] = [
  ...group(
    REPEATED,
    [
      "plan-of-old-inputs",
      "gpu/step_executor.h",
      "if (known->second.inputs_generation == inputs_->generation()) return used(known->second);",
      "return used(known->second);",
    ],
    ["plan-of-an-old-workspace", "gpu/step_executor.h", "    plans_.clear();\n", ""],
    ["generation-of-inputs", "gpu/device_inputs.h", "    ++generation_;\n", ""],
    [
      "second-piece-of-a-weight",
      "cuda/weight_store.cpp",
      "row += chunk_rows, to += chunk_rows * to_row_bytes) {",
      "row += chunk_rows) {",
    ],
    [
      "rows-past-a-grid",
      "cuda/weight_store.cpp",
      "{.out = to + done * to_row_bytes,",
      "{.out = to,",
    ],
    [
      "rows-of-a-piece-past-a-grid",
      "cuda/weight_store.cpp",
      ".raw = staging.raw.at(done * raw_bytes)",
      ".raw = staging.raw.at()",
    ],
    [
      "buffer-that-is-still-copied",
      "cuda/weight_store.cpp",
      "  device.check(device.api().event_synchronize(staging.copied), kWhat);\n",
      "",
    ],
    [
      "work-left-by-a-failure",
      "cuda/cuda_executor.cpp",
      "run fills.\n  gpu.api().stream_synchronize(gpu.stream());",
      "run fills.",
    ],
    [
      "workspace-of-sequences",
      "gpu/step_work.cpp",
      "shape.decode_work = round_up(tiles.work.size());",
      "shape.decode_work = round_up(tiles.decode.size());",
    ],
  ),
  ...group(
    on("appended_rows"),
    [
      "pages-of-two-tokens",
      "gpu/step_work.cpp",
      "      if (is_appended[static_cast<size_t>(page)]) return false;\n      is_appended",
      "      is_appended",
    ],
    [
      "pages-of-another-sequence",
      "gpu/step_work.cpp",
      "for (const int32_t page : all.first(all.size() - appended(token).size())) {",
      "for (const int32_t page : all.first(0)) {",
    ],
  ),
  ...group(
    MOST_SPLITS,
    [
      "sums-of-a-split",
      "cuda/plan_attention.cpp",
      ".ml = scratch(rows * 2 * sizeof(float)),",
      ".ml = scratch(rows * sizeof(float)),",
    ],
  ),
  ...group(
    MASKS,
    ["masks-not-waited-for", "cuda/cuda_executor.cpp", "      inputs.masks_ready.wait();\n", ""],
    ["masks-not-copied", "cuda/cuda_executor.cpp", "      inputs_->copy_masks(inputs);\n", ""],
  ),
  ...group(
    OVERLAP,
    [
      "overlap-after-masks",
      "cuda/cuda_executor.cpp",
      "const bool follows_kernel = sampling > 0 && inputs.masks.empty();",
      "const bool follows_kernel = sampling > 0;",
    ],
    [
      "overlap-after-a-copy",
      "cuda/cuda_executor.cpp",
      "cuda::enqueue(entries[i], gpu, (i > begin || follows_kernel) && !profile);",
      "cuda::enqueue(entries[i], gpu, !profile);",
    ],
    [
      "overlap-where-a-graph-begins",
      "cuda/cuda_executor.cpp",
      "cuda::enqueue(entries[i], gpu, i > begin);",
      "cuda::enqueue(entries[i], gpu, true);",
    ],
  ),
  ...group(
    FAILURES,
    [
      "capture-left-open",
      "cuda/step_graph.cpp",
      "    api.capture_end(device.stream(), &graph);\n    if (graph)",
      "    if (graph)",
    ],
    [
      "graph-of-a-failed-capture",
      "cuda/step_graph.cpp",
      "    if (graph) api.graph_destroy(graph);\n    throw;",
      "    throw;",
    ],
    [
      "context-of-a-failed-device",
      "cuda/device.cpp",
      "    api().primary_context_release(properties_.ordinal);\n    throw;",
      "    throw;",
    ],
    ["failure-that-is-forgotten", "cuda/driver.cpp", "    case kLaunchFailed:\n", ""],
  ),
  ...group(
    SHAPES,
    ["page-tables-unchanged", "gpu/input_layout.cpp", "    changed = true;\n", ""],
    [
      "query-blocks",
      "cuda/plan_attention.cpp",
      "divide_up(op.n_heads / n_kv_heads * queries, kDecodeRows);",
      "divide_up(op.n_heads / n_kv_heads, kDecodeRows);",
    ],
    ["queries-of-a-tile", "gpu/step_work.cpp", "done += n) {", "done += n + 1) {"],
    [
      "queries-of-a-split",
      "gpu/step_work.cpp",
      "      while (is_short && split_at(position + n - 1) != split_at(position)) --n;\n",
      "",
    ],
    [
      "counters-of-blocks",
      "gpu/step_executor.h",
      "    if (bytes.workspace.arrivals > 0) clear(arrivals_);\n",
      "",
    ],
    [
      "runs-of-a-sequence",
      "gpu/step_work.cpp",
      "runs.back().sequence == sequence && end_of(runs.back()) == position",
      "runs.back().sequence == sequence",
    ],
    [
      "scales-of-a-cache",
      "gpu/device_caches.cpp",
      "const uint64_t v_offset = k_scales + scales(shape.k_head_dim);",
      "const uint64_t v_offset = k_scales;",
    ],
  ),
  ...group(
    on("sampling"),
    [
      "alignment-of-scratch",
      "gpu/planner.h",
      "static constexpr uint32_t kScratchAlignment = 256;",
      "static constexpr uint32_t kScratchAlignment = 4;",
    ],
  ),
  ...group(
    { tests: ["test/cuda/tensor_parallel_test.ts"], filter: "does not match" },
    [
      "messages-of-steps-without-outputs",
      "gpu/planner.h",
      "op.out == 0 ? !is_sampling : is_of_tokens(op.out);",
      "op.out != 0 && is_of_tokens(op.out);",
    ],
  ),
  ...group(
    { tests: ["test/cuda/gpu_model_test.ts"], filter: "multiplies gates on every rank" },
    [
      "gated-units-over-their-input",
      "common/scratch_plan.cpp",
      "const size_t at = glu && i > 0 ? i - 1 : i;",
      "const size_t at = i;",
    ],
  ),
  ...group(
    { ...on("moe"), filter: "two routes" },
    [
      "groups-of-another-route",
      "gpu/planner.h",
      "    if (routed_ != routed) {",
      "    if (routed_ != routed && groups_.empty()) {",
    ],
  ),
  ...group(
    on("moe"),
    [
      "tiles-of-experts",
      "gpu/planner.h",
      "std::min(pairs, routed.n_experts + pairs / tile_tokens);",
      "std::min(pairs, 1 + pairs / tile_tokens);",
    ],
    [
      "counts-of-a-group",
      "cuda/plan_moe.cpp",
      "((warps + 2) * p.n_experts + 2) * sizeof",
      "((warps + 2) * p.n_experts) * sizeof",
    ],
    [
      "rows-of-an-expert",
      "cuda/plan_moe.cpp",
      "const Grid grid{divide_up(operands.weight.rows, tile.rows),",
      "const Grid grid{operands.weight.rows / tile.rows,",
    ],
  ),
  ...group(
    { ...on("concatenated_weights"), filter: "several pieces" },
    [
      "second-piece-of-floats",
      "cuda/weight_store.cpp",
      "send(staging, memory.at(row * to_row_bytes), to_row_bytes, float_row(weight), n_rows);",
      "send(staging, memory.at(), to_row_bytes, float_row(weight), n_rows);",
    ],
  ),
  ...group(
    { ...on("concatenated_weights"), filter: "concatenated weights" },
    [
      "parts-of-a-bias",
      "cuda/plan_products.cpp",
      ".epilogue = {.bias = bias ? bias + skip : 0,",
      ".epilogue = {.bias = bias,",
    ],
  ),
  ...group(
    on("matmul"),
    [
      "grid-of-a-gemm",
      "cuda/plan_products.cpp",
      "const Grid grid{divide_up(p.weight.rows, kGemmRows), divide_up(rows.max_rows, kGemmTokens)};",
      "const Grid grid{divide_up(p.weight.rows, kGemmRows), rows.max_rows / kGemmTokens};",
    ],
  ),
  ...group(
    SHAPES,
    [
      "slices-of-narrow-heads",
      "cuda/plan_attention.cpp",
      "tokens = dim <= kNarrowHead ? 32 : 16",
      "tokens = 16",
    ],
    [
      "run-with-a-gap",
      "gpu/step_work.cpp",
      "runs.back().sequence == sequence && end_of(runs.back()) == position",
      "runs.back().sequence == sequence",
    ],
    [
      "keys-after-a-short-run",
      "gpu/step_work.cpp",
      "return std::max(position + 1, policy.sees_ahead ? tile.n_keys : 0);",
      "return std::max(position + 1, 0u);",
    ],
  ),
  ...group(
    on("sampling"),
    [
      "candidates-of-a-result",
      "gpu/step_needs.cpp",
      "sizeof(forge_result) + 8ull * program.max_top",
      "sizeof(forge_result) + 4ull * program.max_top",
    ],
  ),
  ...group(
    REPEATED,
    [
      "rows-of-page-tables",
      "gpu/input_layout.cpp",
      "const uint64_t pitch = limits.max_pages * sizeof(int32_t);",
      "const uint64_t pitch = inputs.n_pages * sizeof(int32_t);",
    ],
  ),
  ...group(
    on("matmul"),
    [
      "padding-of-a-weight",
      "cuda/weight_store.cpp",
      "  device.check(device.api().fill_bytes(memory.at(), 0, memory.bytes(), device.stream()), " +
      "kWhat);\n  uint64_t row = 0;",
      "  uint64_t row = 0;",
    ],
  ),
  ...group(
    on("norms"),
    [
      "residual-of-the-second-norm",
      "gpu/planner.h",
      "next->x != op.out || next->residual != 0) return nullptr;",
      "next->x != op.out) return nullptr;",
    ],
    [
      "groups-of-the-first-norm",
      "gpu/planner.h",
      "op.weight->cols == cols(op.x) && next->weight->cols == cols(op.x);",
      "next->weight->cols == cols(op.x);",
    ],
  ),
  ...group(
    LIBRARY,
    [
      "window-of-the-library",
      "cuda/plan_attention.cpp",
      "static_cast<int32_t>(op.window) - 1 : -1",
      "static_cast<int32_t>(op.window) : -1",
    ],
    [
      "mask-of-heads",
      "cuda/plan_attention.cpp",
      "p.mask_head_stride = shape_.mask_heads > 1 ? 1 : 0;",
      "p.mask_head_stride = 0;",
    ],
    [
      "width-of-a-mask",
      "cuda/plan_attention.cpp",
      "    p.mask_pitch = integers(inputs_.attention_mask_stride);\n",
      "",
    ],
    [
      "chunks-of-the-library",
      "cuda/attention_choice.cpp",
      '  if (op.chunked) return "attention within chunks";\n',
      "",
    ],
  ),
  ...group(
    { tests: ["test/cuda/failures_test.ts"], filter: "CUDA: a context that an error" },
    [
      "room-of-a-context",
      "gpu/device_memory.cpp",
      "const uint64_t others = needs.total() - needs.kv_cache;",
      "const uint64_t others = needs.weights;",
    ],
    [
      "tokens-of-a-page",
      "gpu/device_memory.cpp",
      "/ needs.page_bytes * needs.page_tokens;",
      "/ needs.page_bytes + needs.page_tokens;",
    ],
  ),
  ...group(
    { tests: ["test/cuda/failures_test.ts"], filter: "leaves unusable" },
    ["result-that-ends-a-context", "cuda/driver.cpp", "    case kMisalignedAddress:\n", ""],
    [
      "text-of-a-failure",
      "cuda/device.cpp",
      "if (failure_.empty()) failure_ = text;",
      "if (failure_.empty()) failure_ = what;",
    ],
  ),
  ...group(
    { tests: ["test/cuda/failures_test.ts"], filter: "PTX" },
    [
      "newest-known-architecture",
      "cuda/nvrtc.cpp",
      "if (known <= architecture) best = known;",
      "if (known < architecture) best = known;",
    ],
    [
      "code-for-a-virtual-architecture",
      "cuda/nvrtc.cpp",
      'option.starts_with("--gpu-architecture=compute_")',
      'option.starts_with("--gpu-architecture=sm_")',
    ],
  ),
  ...group(
    { tests: ["test/cuda/failures_test.ts"], filter: "each kernel once" },
    [
      "kernels-that-are-loaded-already",
      "cuda/kernels.cpp",
      "if (!kernel.function) missing.push_back(&kernel);",
      "missing.push_back(&kernel);",
    ],
  ),
  ...group(
    { tests: ["test/cli/profile_test.ts"], filter: "times each kernel" },
    [
      "operation-of-a-fused-kernel",
      "gpu/planner.h",
      "plan_.operations.resize(plan_.entries.size(), reported_op_);",
      "plan_.operations.resize(plan_.entries.size(), op_index_);",
    ],
  ),
  ...group(on("invariance"), [
    "end-of-the-piece",
    "gpu/input_layout.cpp",
    "bytes = places.end();",
    "bytes = prefill_outputs;",
  ]),
  ...group(on("matmul"), [
    "bytes-of-counters",
    "gpu/planner.h",
    "std::max(needed_.arrivals, count * sizeof(uint32_t))",
    "std::max(needed_.arrivals, count)",
  ], [
    "bytes-of-raw-rows",
    "cuda/weight_store.cpp",
    "api.copy_to_device(staging.raw.at(), staging.host.data(), bytes, device.stream())",
    "api.copy_to_device(staging.raw.at(), staging.host.data(), bytes - raw_bytes, device.stream())",
  ], [
    "bytes-of-sent-rows",
    "cuda/weight_store.cpp",
    "api.copy_to_device(to, staging.host.data(), n_rows * row_bytes, device.stream())",
    "api.copy_to_device(to, staging.host.data(), (n_rows - 1) * row_bytes, device.stream())",
  ], [
    "blocks-to-repack",
    "cuda/weight_store.cpp",
    "{divide_up(blocks, 8), rows}",
    "{std::max(blocks / 8, 1u), rows}",
  ]),
  ...group({ tests: ["test/cuda/attention_test.ts"], filter: "tensor maps" }, [
    "flash-fallback",
    "cuda/flash_library.cpp",
    "const flash_attn_params plain = on_sm80(params);",
    "const flash_attn_params plain = params;",
  ]),
  ...group({ tests: ["test/cuda/operations_test.ts"], filter: "rejected" }, [
    "most-tokens",
    "cuda/cuda_executor.cpp",
    'require(limits.max_tokens <= kMostTokens, "a step',
    'require(limits.max_tokens <= kMostTokens + 1, "a step',
  ]),
  ...group(on("decoder"), [
    "norm-of-a-product",
    "cuda/plan_products.cpp",
    "emit_product(*product, &op);",
    "emit_product(*product, nullptr);",
  ]),
  ...group({ tests: ["test/cuda/failures_test.ts"], filter: "places" }, [
    "place-and-reason",
    "cuda/shared_library.cpp",
    'tried_ += place + " (" + reason + ")";',
    'tried_ += reason + " (" + place + ")";',
  ], [
    "file-that-is-missing",
    "cuda/shared_library.cpp",
    "if (!std::filesystem::exists(to_path(path), error)) continue;",
    "if (false) continue;",
  ]),
  ...group({ tests: ["test/cuda/failures_test.ts"], filter: "graphs" }, [
    "graph-after-its-executable",
    "cuda/step_graph.cpp",
    "  api.graph_destroy(graph);\n  device.check(result",
    "  \n  device.check(result",
  ]),
  ...group({ ...on("attention"), filter: "F16 cache" }, [
    "mask-of-a-run-without-one",
    "cuda/plan_builder.h",
    "return op.masked && shape_.mask_kind != 0;",
    "return op.masked;",
  ], [
    "warps-of-wide-heads",
    "cuda/plan_attention.cpp",
    "const uint32_t warps = dim > kWideHead ? 2 : 4",
    "const uint32_t warps = dim >= kWideHead ? 2 : 4",
  ]),
  ...group({ tests: ["test/cuda/failures_test.ts"], filter: "newer GPUs" }, [
    "architectures-too-new",
    "cuda/nvrtc.cpp",
    "  if (best == 0) {",
    "  if (false) {",
  ]),
  ...group(on("kv"), [
    "type-of-a-copied-place",
    "cuda/memory.cpp",
    "  copy.dst_type = kMemoryTypeDevice;",
    "  ",
  ]),
  ...group(on("moe"), [
    "columns-of-experts",
    "cuda/plan_moe.cpp",
    "  const ProductRows x = half_rows(type, float_rows(value(p.x)), n_cols, rows, pieces_of(p));",
    "  const ProductRows x = half_rows(type, float_rows(value(p.x)), n_cols, rows, 1u);",
  ]),
  ...group({ tests: ["test/cuda/processes_test.ts"] }, [
    "devices-that-join",
    "cuda/cuda_backend.cpp",
    "device_->links = {group, part.first + i};",
    "device_->links = {group, i};",
  ]),
  ...group({ tests: ["test/cuda/attention_test.ts"], filter: "Q8_0" }, [
    "split-most",
    "cuda/plan_attention.cpp",
    "std::clamp(2 * gpu_.multiprocessors / kv.shape.n_kv_heads, 1u, kMostSplits)",
    "std::clamp(2 * gpu_.multiprocessors / kv.shape.n_kv_heads, 1u, kMostSplits + 1)",
  ]),
  ...group(
    {
      tests: ["test/cuda/models_test.ts"],
      filter: "a resident kernel computes the bits",
    },
    [
      "last-operation-of-a-table",
      "cuda/step_kernel.cpp",
      "table.n_operations = static_cast<uint32_t>(end - first);",
      "table.n_operations = static_cast<uint32_t>(end - first - 1);",
    ],
    [
      "setting-of-the-resident-kernel",
      "cuda/device.cpp",
      'environment("FORGE_CUDA_PERSISTENT") == "1"',
      'environment("FORGE_CUDA_PERSISTENT") != "0"',
    ],
    [
      "shared-memory-of-operations",
      "cuda/step_kernel.cpp",
      "shared_bytes = std::max(shared_bytes, launch->shared_bytes());",
      "shared_bytes = std::min(shared_bytes, launch->shared_bytes());",
    ],
  ),
  ...group(on("matmul"), [
    "counters-of-a-step",
    "gpu/step_executor.h",
    "    memory_.arrivals = arrivals_.at();\n    memory_.results",
    "    \n    memory_.results",
  ], [
    "memory-of-parts",
    "cuda/plan_products.cpp",
    "scratch(tiles * tile.parts * tile.tokens * rows * sizeof(float))",
    "scratch(tile.tokens * rows * sizeof(float))",
  ]),
  ...group({ tests: ["test/cuda/failures_test.ts"], filter: "disk" }, [
    "symbol-of-a-kept-kernel",
    "cuda/kernels.cpp",
    "kept->substr(line + 1)};",
    "kept->substr(line)};",
  ]),
  ...group({ ...on("attention"), filter: "masks over F16" }, [
    "kind-of-a-mask",
    "cuda/plan_attention.cpp",
    ".mask_is_bits = masked && shape_.mask_kind == FORGE_MASK_BITS,",
    ".mask_is_bits = masked,",
  ]),
  ...group({ tests: ["test/cuda/products_test.ts"] }, [
    "version-of-cublaslt",
    "cuda/cublaslt.cpp",
    "const size_t unit = version >= 100000 ? 10000 : 1000;",
    "const size_t unit = version >= 1000000 ? 10000 : 1000;",
  ]),
  ...group({ tests: ["test/cuda/failures_test.ts"], filter: "PTX" }, [
    "order-of-architectures",
    "cuda/nvrtc.cpp",
    "  std::sort(architectures_.begin(), architectures_.end());",
    "  ",
  ]),
  ...group({ tests: ["test/cuda/tensor_parallel_test.ts"], filter: "without memory" }, [
    "rank-that-fails-before-its-launches",
    "cuda/cuda_executor.cpp",
    "is_enqueued && error.status() != FORGE_DEVICE_FAILED;",
    "error.status() != FORGE_DEVICE_FAILED;",
  ]),
  ...group({ tests: ["test/cuda/tensor_parallel_test.ts"], filter: "ranks run series" }, [
    "group-that-a-stopped-run-ends",
    "cuda/cuda_executor.cpp",
    "is_enqueued && error.status() != FORGE_DEVICE_FAILED;",
    "false;",
  ]),
  ...group(on("lora"), [
    "columns-of-lora-sums",
    "gpu/launch_geometry.h",
    "divide_up(a.cols, kernel_args::kLoraColumns)",
    "divide_up(a.width, kernel_args::kLoraColumns)",
  ]),
  ...group(on("meter"), [
    "free-memory-of-a-device",
    "gpu/gpu_backend.h",
    "return {room.total_bytes, room.free_bytes};",
    "return {room.total_bytes, room.total_bytes};",
  ]),
  ...group(
    on("neighbours"),
    [
      "input-of-a-norm-during-its-product",
      "common/scratch_plan.cpp",
      "    if (norm && product->x == norm->out) last_use[norm->x - 1] = i;\n",
      "    (void)norm;\n",
    ],
    [
      "input-of-a-product-during-its-gated-unit",
      "common/scratch_plan.cpp",
      "    last_use[product->x - 1] = i;\n",
      "",
    ],
    [
      "input-of-experts-during-their-gated-unit",
      "common/scratch_plan.cpp",
      "last_use[experts->x - 1] = last_use[experts->route - 1] = i;",
      "last_use[experts->route - 1] = i;",
    ],
    [
      "route-of-experts-during-their-gated-unit",
      "common/scratch_plan.cpp",
      "last_use[experts->x - 1] = last_use[experts->route - 1] = i;",
      "last_use[experts->x - 1] = i;",
    ],
    [
      "new-rows-during-attention",
      "common/scratch_plan.cpp",
      "      last_use[append->qkv - 1] = i;\n",
      "",
    ],
    [
      "queries-of-another-value",
      "cuda/plan_attention.cpp",
      "!attention || attention->q != op.out || attention",
      "!attention || attention",
    ],
    [
      "rows-of-another-cache",
      "cuda/plan_attention.cpp",
      "attention->q != op.out || attention->kv != op.kv ||",
      "attention->q != op.out ||",
    ],
    [
      "gated-unit-before-floats",
      "cuda/plan_products.cpp",
      "  if (!std::ranges::all_of(parts, is_rounded)) return false;\n",
      "",
    ],
  ),
  ...group({ tests: ["test/cuda/tensor_parallel_test.ts"], filter: "stages give" }, [
    "communicators-of-a-group-that-ends",
    "cuda/nccl.cpp",
    "      if (comm) nccl_.api().destroy(comm);\n",
    "      (void)comm;\n",
  ]),
  ...group({ tests: ["test/cuda/failures_test.ts"], filter: "kept on disk" }, [
    "file-of-a-full-disk",
    "cuda/kernel_cache.cpp",
    "if (!file || error) std::filesystem::remove(temporary, error);",
    "",
  ], [
    "kernel-that-is-kept",
    "cuda/kernels.cpp",
    "if (line != std::string::npos) return",
    "if (line == std::string::npos) return",
  ]),
];

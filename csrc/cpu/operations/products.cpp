#include "products.h"

#include <algorithm>

namespace forge::cpu {

namespace {

// Number of rows that kernels unpack at once.
constexpr uint32_t kUnpackedRows = 64;
// Number of activations quantised in less time than it takes to wake a thread.
constexpr uint64_t kQuantizedAlone = 16384;

uint64_t divide_up(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

}  // namespace

Products::Products(CpuDevice& device)
    : device_(device), scratch_(device.pool.n_threads() * kMatmulScratch) {}

void Products::reserve(uint64_t rows, uint64_t cols) {
  const uint64_t bytes = rows * divide_up(cols, kBlockCols) * sizeof(ActivationBlock);
  if (bytes > activations_.bytes()) activations_ = Memory(bytes);
}

const ActivationBlock* Products::quantize(const PackedWeight& weight, const float* x,
                                          uint64_t rows, uint64_t cols) {
  if (!weight.quantized()) return nullptr;
  auto* blocks = reinterpret_cast<ActivationBlock*>(activations_.data());
  if (rows * cols <= kQuantizedAlone) {
    device_.kernels.quantize(x, rows * cols, blocks);
    return blocks;
  }
  // Rows are whole blocks, so pieces need not end where rows do.
  const uint64_t step = std::min(kQuantizedAlone, divide_up(rows * cols, device_.pool.n_threads()));
  const uint64_t piece = divide_up(step, kBlockCols) * kBlockCols;
  device_.pool.run(static_cast<uint32_t>(divide_up(rows * cols, piece)),
                   [&](uint32_t index, uint32_t) {
                     const uint64_t first = index * piece;
                     device_.kernels.quantize(x + first, std::min(piece, rows * cols - first),
                                              blocks + first / kBlockCols);
                   });
  return blocks;
}

void Products::reserve_rounded(uint64_t rows, uint64_t cols) {
  if (rows <= kFewTokens) return;
  const uint64_t bytes = (rows * divide_up(cols, kRoundedCols) + kRoundedSlack) * kRoundedBytes;
  if (bytes > rounded_.bytes()) rounded_ = Memory(bytes);
}

const uint8_t* Products::round(const PackedWeight& weight, const float* x, uint64_t rows,
                               uint64_t cols) {
  if (rows <= kFewTokens || !weight.rounds(device_.kernels)) return nullptr;
  const uint64_t step = divide_up(kQuantizedAlone, cols);
  device_.pool.run(static_cast<uint32_t>(divide_up(rows, step)), [&](uint32_t index, uint32_t) {
    const uint64_t end = std::min(rows, (index + 1) * step);
    for (uint64_t row = index * step; row < end; ++row) {
      for (uint64_t col = 0; col < cols; col += kRoundedCols) {
        device_.kernels.round(x + row * cols + col, std::min(kRoundedCols, cols - col),
                              rounded_.data() + (col / kRoundedCols * rows + row) * kRoundedBytes);
      }
    }
  });
  return rounded_.data();
}

void Products::plan(const PackedWeight& weight, const std::vector<ProductGroup>& groups) {
  tasks_.clear();
  ends_.clear();
  for (uint32_t node = 0; node < device_.pool.n_nodes(); ++node) {
    plan_node(weight, groups, node);
    ends_.push_back(static_cast<uint32_t>(tasks_.size()));
  }
}

void Products::plan_node(const PackedWeight& weight, const std::vector<ProductGroup>& groups,
                         uint32_t node) {
  uint64_t bytes = 0;
  for (const ProductGroup& group : groups) {
    if (group.n_tokens == 0) continue;
    for (const PanelRun& run : weight.group(group.group)) {
      if (run.node == node) bytes += run.block.n_rows * run.block.row_bytes;
    }
  }
  for (const ProductGroup& group : groups) {
    if (group.n_tokens == 0) continue;
    for (const PanelRun& run : weight.group(group.group)) {
      if (run.node != node) continue;
      for (uint64_t row = 0; row < run.block.n_rows;) {
        uint64_t step = kUnpackedRows;
        if (group.n_tokens <= kFewTokens) {
          step = task_rows(bytes, run.block.row_bytes, device_.pool.nodes()[node].n_threads);
        }
        const uint64_t n_rows = std::min(step, run.block.n_rows - row);
        for (uint64_t token = 0; token < group.n_tokens; token += kMatmulTokens) {
          tasks_.push_back({&run, &group, static_cast<uint32_t>(row),
                            static_cast<uint32_t>(n_rows), static_cast<uint32_t>(token)});
        }
        row += n_rows;
        bytes -= n_rows * run.block.row_bytes;
      }
    }
  }
}

void Products::multiply(const PanelRun& run, uint64_t row, MatmulBlock block, uint32_t thread) {
  uint8_t* scratch = scratch_.data() + thread * kMatmulScratch;
  const uint32_t n_rows = block.n_rows;
  if (block.panel_bytes == 0 || row + n_rows <= run.n_packed) {
    if (block.panels) block.panels += row / kPanelRows * block.panel_bytes;
    block.rows += row * block.row_bytes;
    return device_.kernels.matmul(block, scratch);
  }
  // The missing rows of the last panel must be zero.
  const uint64_t most = divide_up(std::min(n_rows, kUnpackedRows), kPanelRows);
  std::vector<uint8_t> panels(most * block.panel_bytes);
  block.panels = panels.data();
  for (uint32_t done = 0; done < n_rows; done += block.n_rows) {
    block.n_rows = std::min(kUnpackedRows, n_rows - done);
    if (block.n_rows % kPanelRows != 0) std::ranges::fill(panels, 0);
    run.pack(static_cast<uint32_t>(row + done), block.n_rows, device_.kernels, panels.data());
    device_.kernels.matmul(block, scratch);
    block.first_row += block.n_rows;
  }
}

void Products::run(const PackedWeight& weight, const std::vector<ProductGroup>& groups,
                   const Epilogue& epilogue, const StopFlag& stop) {
  plan(weight, groups);
  device_.pool.run_divided(ends_, [&](uint32_t index, uint32_t thread) {
    if (stop.raised()) return;
    const auto& [run, group, first_row, n_rows, first_token] = tasks_[index];
    MatmulBlock block = run->block;
    block.first_row += first_row;
    block.n_rows = n_rows;
    if (epilogue.bias) block.bias = epilogue.bias + group->group * weight.group_rows();
    block.alpha = epilogue.alpha;
    block.activation = epilogue.activation;
    block.tokens = group->tokens + first_token;
    block.n_tokens =
        static_cast<uint32_t>(std::min<uint64_t>(kMatmulTokens, group->n_tokens - first_token));
    multiply(*run, first_row, block, thread);
  });
  stop.check();
}

}  // namespace forge::cpu

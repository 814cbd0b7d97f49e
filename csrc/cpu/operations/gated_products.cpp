// Products whose rows are a gate and an up part, with the gated unit over them: a task multiplies
// some rows of both into memory of its thread, and writes the results of the unit.

#include <algorithm>

#include "products.h"

namespace forge::cpu {

namespace {

// Rows of each part per task with many tokens: as many as kernels unpack at once.
constexpr uint32_t kManyRows = 64;

// Number of results quantised at a time.
constexpr uint32_t kUnitFloats = kMostGatedRows;

// Returns the run that a row of a group belongs to.
const PanelRun& run_at(std::span<const PanelRun> runs, uint64_t row) {
  const auto after = std::ranges::upper_bound(runs, row, {}, [](const PanelRun& run) {
    return run.block.first_row;
  });
  return *std::prev(after);
}

constexpr uint64_t kGatedFloats =
    2 * std::max<uint64_t>(uint64_t{kMatmulTokens} * kManyRows,
                           uint64_t{kFewTokens} * kMostGatedRows);

}  // namespace

void Products::reserve_gated() {
  const uint32_t n_threads = device_.pool.n_threads();
  gated_tokens_.resize(n_threads);
  for (std::vector<MatmulToken>& tokens : gated_tokens_) tokens.resize(kMatmulTokens);
  if (gated_.bytes() == 0) gated_ = Memory(n_threads * kGatedFloats * sizeof(float));
}

void Products::plan_gated(const PackedWeight& weight, const GatedProduct& product,
                          uint64_t n_tokens) {
  gated_tasks_.clear();
  ends_.clear();
  // A task ends where a run of either part does.
  const std::span<const PanelRun> runs = weight.group(0);
  std::vector<uint32_t> ends{product.width};
  for (const PanelRun& run : runs) {
    const auto row = static_cast<uint32_t>(run.block.first_row % product.width);
    if (row > 0) ends.push_back(row);
  }
  std::ranges::sort(ends);
  const uint64_t row_bytes = runs[0].block.row_bytes;
  for (uint32_t node = 0; node < device_.pool.n_nodes(); ++node) {
    const auto is_here = [&](uint32_t row) { return run_at(runs, row).node == node; };
    uint32_t left = 0;
    for (uint32_t row = 0; const uint32_t end : ends) {
      if (is_here(row)) left += end - row;
      row = end;
    }
    for (uint32_t row = 0; const uint32_t end : ends) {
      if (!is_here(row)) row = end;
      while (row < end) {
        uint32_t n = kManyRows;
        if (n_tokens <= kFewTokens) {
          n = gated_task_rows(left, row_bytes, device_.pool.nodes()[node].n_threads);
        }
        n = std::min(n, end - row);
        for (uint32_t token = 0; token < n_tokens; token += kMatmulTokens) {
          gated_tasks_.push_back({row, n, token});
        }
        row += n;
        left -= n;
      }
    }
    ends_.push_back(static_cast<uint32_t>(gated_tasks_.size()));
  }
}

void Products::write_units(const GatedProduct& product, const GatedTask& task, const float* gates,
                           std::span<const MatmulToken> tokens) {
  const uint32_t n_rows = task.n_rows;
  const auto write = [&](size_t token, float* out) {
    const float* gate = gates + token * 2 * n_rows;
    device_.kernels.glu(gate, gate + n_rows, n_rows, product.unit, out);
  };
  if (!product.blocks) {
    for (size_t t = 0; t < tokens.size(); ++t) write(t, tokens[t].out + task.first_row);
    return;
  }
  // Enough tokens at a time to quantise at full speed.
  const size_t together = std::max(1u, kUnitFloats / n_rows);
  alignas(64) float units[kUnitFloats];
  ActivationBlock blocks[kUnitFloats / kBlockCols];
  const uint64_t n_blocks = n_rows / kBlockCols;
  for (size_t first = 0; first < tokens.size(); first += together) {
    const size_t n = std::min(together, tokens.size() - first);
    for (size_t t = 0; t < n; ++t) write(first + t, units + t * n_rows);
    device_.kernels.quantize(units, n * n_rows, blocks);
    for (size_t t = 0; t < n; ++t) {
      ActivationBlock* row = product.blocks + (task.first_token + first + t) *
                                                  uint64_t{product.width / kBlockCols};
      std::copy_n(blocks + t * n_blocks, n_blocks, row + task.first_row / kBlockCols);
    }
  }
}

void Products::run_gated(const PackedWeight& weight, const std::vector<MatmulToken>& tokens,
                         const GatedProduct& product, const StopFlag& stop) {
  plan_gated(weight, product, tokens.size());
  device_.pool.run_divided(ends_, [&](uint32_t index, uint32_t thread) {
    if (stop.raised()) return;
    const auto& [row, n_rows, first] = gated_tasks_[index];
    const auto n_tokens =
        static_cast<uint32_t>(std::min<uint64_t>(kMatmulTokens, tokens.size() - first));
    float* gates = gated_.floats() + thread * kGatedFloats;
    std::vector<MatmulToken>& mine = gated_tokens_[thread];
    for (uint32_t t = 0; t < n_tokens; ++t) {
      mine[t] = tokens[first + t];
      mine[t].out = gates + uint64_t{t} * 2 * n_rows;
    }
    for (const bool is_up : {false, true}) {
      const uint64_t first_row = row + (is_up ? product.width : 0);
      const PanelRun& run = run_at(weight.group(0), first_row);
      MatmulBlock block = run.block;
      block.n_rows = n_rows;
      block.first_row = is_up ? n_rows : 0;
      block.alpha = 1;
      block.activation = FORGE_IDENTITY;
      block.tokens = mine.data();
      block.n_tokens = n_tokens;
      multiply(run, first_row - run.block.first_row, block, thread);
    }
    write_units(product, gated_tasks_[index], gates, {tokens.data() + first, n_tokens});
  });
}

}  // namespace forge::cpu

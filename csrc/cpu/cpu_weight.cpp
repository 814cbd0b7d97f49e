#include "cpu_weight.h"

#include <algorithm>

#include "../common/mapped_file.h"

namespace forge::cpu {

namespace {

// Bytes of a file that a thread packs at a time: one task.
constexpr uint64_t kPackedBytes = 256 << 10;
// Tasks per thread before the threads are available to others.
constexpr size_t kTasksTogether = 16;
constexpr uint64_t kCacheLine = 64;

// Returns the size of a panel; 0 for types without panels.
uint64_t panel_bytes(WeightType type, uint64_t cols) {
  uint64_t bytes = 0;
  const bool quantized = visit_panel_type(type, [&]<WeightType known>() {
    using Panel = PanelOf<known>;
    bytes = cols / (Panel::kBlocks * kBlockCols) * sizeof(Panel);
  });
  if (quantized) return bytes;
  switch (type) {
    case WeightType::F32: return cols * kPanelRows * 4;
    case WeightType::F16:
    case WeightType::BF16: return (cols + 1) / 2 * 2 * kPanelRows * 2;  // whole pairs of columns
    case WeightType::FP8: return cols / kBlockCols * sizeof(FP8Panel);
    default: return 0;
  }
}

bool is_quantized(WeightType type) {
  return visit_panel_type(type, []<WeightType>() {});
}

}  // namespace

bool is_all_quantized(const HostWeight& weight) {
  return std::ranges::all_of(weight.parts,
                             [](const WeightPart& part) { return is_quantized(part.type); });
}

PackedWeight::PackedWeight(const HostWeight& weight, uint64_t group_rows)
    : group_rows_(group_rows) {
  add_runs(weight);
  place_panels();
  plan_tasks();
}

void PackedWeight::add_runs(const HostWeight& weight) {
  uint64_t row = 0;
  for (const WeightPart& part : weight.parts) {
    const uint64_t row_size = *row_bytes(part.type, weight.cols);
    quantized_ = quantized_ || is_quantized(part.type);
    made_ = made_ || part.source;
    for (uint64_t in_part = 0; in_part < part.rows;) {
      const uint64_t in_group = row % group_rows_;
      if (in_group == 0) first_.push_back(static_cast<uint32_t>(runs_.size()));
      const uint64_t n = std::min({uint64_t{1} << 31, part.rows - in_part, group_rows_ - in_group});
      MatmulBlock block{};
      block.type = part.type;
      block.panel_bytes = panel_bytes(part.type, weight.cols);
      if (!part.source) block.rows = part.data + in_part * row_size;
      block.row_bytes = row_size;
      block.dequantize = find_weight_type(static_cast<uint32_t>(part.type))->dequantize;
      block.cols = weight.cols;
      block.n_rows = static_cast<uint32_t>(n);
      block.first_row = in_group;
      runs_.push_back({block, &part, in_part, 0});
      in_part += n;
      row += n;
    }
  }
  first_.push_back(static_cast<uint32_t>(runs_.size()));
}

void PackedWeight::place_panels() {
  const auto size = [](const MatmulBlock& block) {
    const uint64_t n_panels = (uint64_t{block.n_rows} + kPanelRows - 1) / kPanelRows;
    return (n_panels * block.panel_bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
  };
  uint64_t bytes = 0;
  for (const PanelRun& run : runs_) bytes += size(run.block);
  panels_ = Memory(bytes);
  uint64_t offset = 0;
  for (PanelRun& run : runs_) {
    if (run.block.panel_bytes > 0) run.block.panels = panels_.data() + offset;
    offset += size(run.block);
  }
}

void PackedWeight::plan_tasks() {
  for (PanelRun& run : runs_) {
    if (!run.block.panels) continue;
    const uint64_t n_panels = std::max<uint64_t>(1, kPackedBytes / kPanelRows / run.block.row_bytes);
    const auto step = static_cast<uint32_t>(n_panels * kPanelRows);
    for (uint32_t row = 0; row < run.block.n_rows; row += step) {
      tasks_.push_back({&run, row, std::min(step, run.block.n_rows - row)});
    }
  }
}

void PanelRun::pack(uint32_t first, uint32_t n, const KernelTable& kernels, uint8_t* panels) const {
  std::vector<uint8_t> made;
  const uint8_t* rows = part->rows_at(first_in_part + first, n, block.row_bytes, made);
  for (uint32_t row = 0; row < n; row += kPanelRows) {
    kernels.pack(block.type, rows + row * block.row_bytes, block.row_bytes,
                 std::min(kPanelRows, n - row), block.cols,
                 panels + row / kPanelRows * block.panel_bytes);
  }
  drop_pages(part->mapped_bytes(first_in_part + first, n, block.row_bytes));
}

void PackedWeight::pack_more(CpuDevice& device) {
  const size_t n = std::min<size_t>(tasks_.size() - n_done_, kTasksTogether * device.pool.n_threads());
  const std::span tasks(tasks_.data() + n_done_, n);
  device.pool.run(static_cast<uint32_t>(n), [&](uint32_t index, uint32_t) {
    const auto& [run, first, n_rows] = tasks[index];
    const MatmulBlock& block = run->block;
    run->pack(first, n_rows, device.kernels,
              const_cast<uint8_t*>(block.panels) + first / kPanelRows * block.panel_bytes);
  });
  for (const auto& [run, first, n_rows] : tasks) run->n_packed = first + n_rows;
  n_done_ += n;
  if (!is_packed()) return;
  // The system also maps pages around each accessed one.
  for (const PanelRun& run : runs_) {
    if (!run.block.panels) continue;
    drop_pages(run.part->mapped_bytes(run.first_in_part, run.block.n_rows, run.block.row_bytes));
  }
}

const float* CpuWeight::floats() const {
  std::call_once(once_, [this] {
    floats_.resize(rows * cols);
    read(0, rows, floats_.data());
  });
  return floats_.data();
}

PackedWeight& CpuWeight::packed(uint64_t group_rows) const {
  for (const auto& packed : packed_) {
    if (packed->group_rows() == group_rows) return *packed;
  }
  packed_.push_back(std::make_unique<PackedWeight>(*this, group_rows));
  return *packed_.back();
}

Packing::Packing(std::vector<PackedWeight*> weights, CpuDevice& device)
    : weights_(std::move(weights)), device_(device) {
  std::erase(weights_, nullptr);
  for (PackedWeight* weight : weights_) {
    while (weight->is_made() && !weight->is_packed()) weight->pack_more(device_);
  }
  thread_ = std::thread([this] { pack_all(); });
}

Packing::~Packing() {
  stopping_ = true;
  thread_.join();
}

void Packing::prepare_run(const StopFlag& stop) {
  if (!has_run_) {
    has_run_ = true;
    return;
  }
  for (PackedWeight* weight : weights_) {
    while (!weight->is_packed()) {
      stop.check();
      weight->pack_more(device_);
    }
  }
}

void Packing::pack_all() {
  try {
    for (PackedWeight* weight : weights_) {
      for (;;) {
        const auto lock = device_.lock_after_others();
        if (stopping_) return;
        if (weight->is_packed()) break;
        weight->pack_more(device_);
      }
    }
  } catch (...) {
    // An allocation that fails here fails again in prepare_run(), which reports it.
  }
}

}  // namespace forge::cpu

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
constexpr uint64_t kNoGroup = UINT64_MAX;
// Steps after which earlier uses of an expert count half.
constexpr uint64_t kUsesHalvedAfter = 256;
// Bytes of files that are read ahead: a large part of a second of a fast disk.
constexpr uint64_t kReadAhead = 256 << 20;

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
    case WeightType::BF16: return (cols + 3) / 4 * 4 * kPanelRows * 2;  // see bf16_products.h
    case WeightType::FP8: return cols / kBlockCols * sizeof(FP8Panel);
    default: return 0;
  }
}

// Returns the bytes of the panels of a run, in whole cache lines.
uint64_t panels_size(const MatmulBlock& block) {
  const uint64_t n_panels = (uint64_t{block.n_rows} + kPanelRows - 1) / kPanelRows;
  return (n_panels * block.panel_bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

uint64_t rows_size(const MatmulBlock& block) { return block.n_rows * block.row_bytes; }

bool is_quantized(WeightType type) {
  return visit_panel_type(type, []<WeightType>() {});
}

}  // namespace

bool is_all_quantized(const HostWeight& weight) {
  return std::ranges::all_of(weight.parts,
                             [](const WeightPart& part) { return is_quantized(part.type); });
}

PackedWeight::PackedWeight(const HostWeight& weight, uint64_t group_rows, const ThreadPool& pool)
    : group_rows_(group_rows), nodes_(pool.n_nodes()) {
  add_runs(weight, pool);
}

void PackedWeight::add_runs(const HostWeight& weight, const ThreadPool& pool) {
  uint64_t row = 0;
  for (const WeightPart& part : weight.parts) {
    const uint64_t row_size = *row_bytes(part.type, weight.cols);
    quantized_ = quantized_ || is_quantized(part.type);
    made_ = made_ || part.source;
    for (uint64_t in_part = 0; in_part < part.rows;) {
      const uint64_t in_group = row % group_rows_;
      if (in_group == 0) first_.push_back(static_cast<uint32_t>(runs_.size()));
      const uint64_t n = std::min({uint64_t{1} << 31, part.rows - in_part, group_rows_ - in_group});
      const uint64_t n_together = (n + kRowsTogether - 1) / kRowsTogether;
      for (uint32_t node = 0; node < pool.n_nodes(); ++node) {
        const uint64_t first = pool.first_of(node, n_together) * kRowsTogether;
        const uint64_t end = std::min(n, pool.first_of(node + 1, n_together) * kRowsTogether);
        if (end <= first) continue;
        MatmulBlock block{};
        block.type = part.type;
        block.panel_bytes = panel_bytes(part.type, weight.cols);
        if (!part.source) block.rows = part.data + (in_part + first) * row_size;
        block.row_bytes = row_size;
        block.dequantize = find_weight_type(static_cast<uint32_t>(part.type))->dequantize;
        block.cols = weight.cols;
        block.n_rows = static_cast<uint32_t>(end - first);
        block.first_row = in_group + first;
        runs_.push_back({block, node, &part, in_part + first, 0});
      }
      in_part += n;
      row += n;
    }
  }
  first_.push_back(static_cast<uint32_t>(runs_.size()));
}

uint64_t PackedWeight::bytes() const {
  uint64_t bytes = 0;
  for (const PanelRun& run : runs_) {
    bytes += run.block.panel_bytes > 0 ? panels_size(run.block) : rows_size(run.block);
  }
  return bytes;
}

uint64_t PackedWeight::file_bytes() const {
  uint64_t bytes = 0;
  for (const PanelRun& run : runs_) bytes += rows_size(run.block);
  return bytes;
}

bool PackedWeight::rounds(const KernelTable& kernels) const {
  return kernels.rounds && std::ranges::any_of(runs_, [&](const PanelRun& run) {
    return kernels.rounds(run.block.type);
  });
}

uint64_t PackedWeight::panel_bytes_of(uint64_t group, uint32_t node) const {
  uint64_t bytes = 0;
  for (const PanelRun& run : this->group(group)) {
    if (run.node == node) bytes += panels_size(run.block);
  }
  return bytes;
}

void PackedWeight::set_slot(uint64_t group, uint64_t slot) {
  for (uint32_t node = 0; node < nodes_.size(); ++node) {
    const NodePanels& own = nodes_[node];
    uint8_t* panels = slot < n_slots_ ? own.memory.data() + slot * own.slot_bytes : nullptr;
    for (uint32_t i = first_[group]; i < first_[group + 1]; ++i) {
      PanelRun& run = runs_[i];
      if (run.node != node) continue;
      run.n_packed = 0;
      run.block.panels = run.block.panel_bytes > 0 ? panels : nullptr;
      if (panels) panels += panels_size(run.block);
    }
  }
}

void PackedWeight::place(uint64_t n_slots, MemoryBound& memory) {
  placed_ = true;
  n_slots_ = n_slots;
  uint64_t slots_bytes = 0;
  for (uint32_t node = 0; node < nodes_.size(); ++node) {
    NodePanels& own = nodes_[node];
    for (uint64_t g = 0; g < n_groups(); ++g) {
      own.slot_bytes = std::max(own.slot_bytes, panel_bytes_of(g, node));
    }
    own.memory = Memory(n_slots * own.slot_bytes);
    slots_bytes += own.memory.bytes();
  }
  if (n_slots < n_groups()) {
    taken_ = memory.take(slots_bytes);
    group_in_.assign(n_slots, kNoGroup);
    uses_.resize(n_groups());
    return;
  }
  taken_ = memory.take(bytes());
  for (uint64_t g = 0; g < n_groups(); ++g) set_slot(g, g);
  for (PanelRun& run : runs_) plan_tasks(run);
}

void PackedWeight::plan_tasks(PanelRun& run) {
  if (!run.block.panels) return;
  const uint64_t n_panels = std::max<uint64_t>(1, kPackedBytes / kPanelRows / run.block.row_bytes);
  const auto step = static_cast<uint32_t>(n_panels * kPanelRows);
  for (uint32_t row = 0; row < run.block.n_rows; row += step) {
    nodes_[run.node].tasks.push_back({&run, row, std::min(step, run.block.n_rows - row)});
    ++n_left_;
  }
}

void PackedWeight::read_ahead(uint64_t group) const {
  for (const PanelRun& run : this->group(group)) {
    if (run.block.panels) continue;
    forge::read_ahead(
        run.part->mapped_bytes(run.first_in_part, run.block.n_rows, run.block.row_bytes));
  }
}

uint64_t PackedWeight::slot_for(uint64_t group) const {
  uint64_t best = n_slots_;
  uint32_t least = uses_[group].count + 1;
  for (uint64_t slot = 0; slot < n_slots_; ++slot) {
    if (group_in_[slot] == kNoGroup) return slot;
    const Uses& uses = uses_[group_in_[slot]];
    if (uses.last == clock_ || uses.count >= least) continue;
    best = slot;
    least = uses.count;
  }
  return best;
}

void PackedWeight::bring(std::span<const uint32_t> groups, CpuDevice& device) {
  ++clock_;
  if (clock_ % kUsesHalvedAfter == 0) {
    for (Uses& uses : uses_) uses.count /= 2;
  }
  for (const uint32_t group : groups) uses_[group] = {uses_[group].count + 1, clock_};
  for (NodePanels& node : nodes_) {
    node.tasks.clear();
    node.n_done = 0;
  }
  n_left_ = 0;
  for (const uint32_t group : groups) {
    if (runs_[first_[group]].block.panels) continue;
    const uint64_t slot = slot_for(group);
    if (slot == n_slots_) continue;
    if (group_in_[slot] != kNoGroup) set_slot(group_in_[slot], n_slots_);
    group_in_[slot] = group;
    set_slot(group, slot);
    for (uint32_t i = first_[group]; i < first_[group + 1]; ++i) plan_tasks(runs_[i]);
  }
  while (!is_packed()) pack_tasks(kTasksTogether, device);
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

void PackedWeight::pack_tasks(size_t per_thread, CpuDevice& device) {
  std::vector<Task> tasks;
  std::vector<uint32_t> ends;
  for (uint32_t node = 0; node < nodes_.size(); ++node) {
    NodePanels& own = nodes_[node];
    const size_t n =
        std::min(own.tasks.size() - own.n_done, per_thread * device.pool.nodes()[node].n_threads);
    const auto first = own.tasks.begin() + static_cast<ptrdiff_t>(own.n_done);
    tasks.insert(tasks.end(), first, first + static_cast<ptrdiff_t>(n));
    ends.push_back(static_cast<uint32_t>(tasks.size()));
  }
  device.pool.run_at_home(ends, [&](uint32_t index, uint32_t) {
    const auto& [run, first, n_rows] = tasks[index];
    const MatmulBlock& block = run->block;
    run->pack(first, n_rows, device.kernels,
              const_cast<uint8_t*>(block.panels) + first / kPanelRows * block.panel_bytes);
  });
  for (const auto& [run, first, n_rows] : tasks) {
    run->n_packed = first + n_rows;
    ++nodes_[run->node].n_done;
  }
  n_left_ -= tasks.size();
}

void PackedWeight::pack_more(CpuDevice& device) {
  pack_tasks(kTasksTogether, device);
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

PackedWeight& CpuWeight::packed(uint64_t group_rows, const ThreadPool& pool) const {
  for (const auto& packed : packed_) {
    if (packed->group_rows() == group_rows) return *packed;
  }
  packed_.push_back(std::make_unique<PackedWeight>(*this, group_rows, pool));
  return *packed_.back();
}

ReadAhead::ReadAhead(const std::vector<PackedWeight*>& weights) {
  for (const PackedWeight* weight : weights) {
    stop_at_.push_back(stops_.size());
    if (!weight || !weight->is_streamed()) continue;
    stops_.push_back({weight, total_});
    total_ += weight->file_bytes();
  }
  if (total_ > 0) thread_ = std::thread([this] { read(); });
}

ReadAhead::~ReadAhead() {
  stopping_ = true;
  goal_ = UINT64_MAX;
  wake_all(goal_);
  if (thread_.joinable()) thread_.join();
}

void ReadAhead::reach(size_t index) {
  const size_t stop = stop_at_[index];
  if (stop == stops_.size()) return;
  // Each run begins with the first weight again.
  const uint64_t run = reached_ / total_ + (stops_[stop].begin < reached_ % total_ ? 1 : 0);
  reached_ = run * total_ + stops_[stop].begin;
  goal_ = reached_ + std::min(kReadAhead, total_ / 2);
  wake_all(goal_);
}

void ReadAhead::read() {
  uint64_t done = 0;
  for (size_t stop = 0; !stopping_;) {
    const uint64_t goal = goal_;
    if (done >= goal) {
      wait_while(goal_, goal);
      continue;
    }
    const PackedWeight& weight = *stops_[stop].weight;
    for (uint64_t group = 0; group < weight.n_groups(); ++group) weight.read_ahead(group);
    done += weight.file_bytes();
    stop = (stop + 1) % stops_.size();
  }
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

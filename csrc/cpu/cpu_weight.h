#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "../common/host_weight.h"
#include "../common/step_inputs.h"
#include "host/cpu_device.h"
#include "host/memory.h"

namespace forge::cpu {

// Consecutive rows of one type and one group. If the type has no panels, `block` points to the rows
// in the file. The fields of `block` that depend on a call are empty.
struct PanelRun {
  MatmulBlock block;
  const WeightPart* part;
  uint64_t first_in_part;
  uint32_t n_packed;  // number of leading rows that are packed

  // Writes the panels of `n` rows from `first` on, a multiple of kPanelRows.
  void pack(uint32_t first, uint32_t n, const KernelTable& kernels, uint8_t* panels) const;
};

// True if all rows of a weight are multiplied with activations as signed bytes.
bool is_all_quantized(const HostWeight& weight);

// A weight in the layout of products (panel_layout.h). Its rows form groups of equal size
// (experts); a panel belongs to one group and one part, and its last rows may be empty.
class PackedWeight {
 public:
  PackedWeight(const HostWeight& weight, uint64_t group_rows);

  bool is_packed() const { return n_done_ == tasks_.size(); }
  // True if rows are converted when they are read, which takes longer than packing them.
  bool is_made() const { return made_; }
  // Packs a few more megabytes with all threads of the device, whose mutex the caller holds, and
  // drops the packed pages of mapped files.
  void pack_more(CpuDevice& device);

  uint64_t group_rows() const { return group_rows_; }
  // True if any rows are multiplied with activations as signed bytes.
  bool quantized() const { return quantized_; }
  std::span<const PanelRun> group(uint64_t index) const {
    return {runs_.data() + first_[index], runs_.data() + first_[index + 1]};
  }

 private:
  // Some rows of a run.
  struct Task {
    PanelRun* run;
    uint32_t first_row;
    uint32_t n_rows;
  };

  void add_runs(const HostWeight& weight);
  void place_panels();
  void plan_tasks();

  uint64_t group_rows_;
  bool quantized_ = false;
  bool made_ = false;
  std::vector<PanelRun> runs_;
  std::vector<uint32_t> first_;  // index in runs_ of the first run of each group, and the end
  Memory panels_;
  std::vector<Task> tasks_;
  size_t n_done_ = 0;
};

// A weight in host memory. Embeddings read single rows of the file; products read a packed copy,
// and vectors have a copy in floats. Both copies are made when a step first needs them.
class CpuWeight : public HostWeight {
 public:
  using HostWeight::HostWeight;

  // Returns all values as floats, dequantised at the first call: for norms, biases and frequencies.
  const float* floats() const;

  // Returns the copy for products with groups of `group_rows` rows, without packing it. The caller
  // holds the mutex of the device.
  PackedWeight& packed(uint64_t group_rows) const;

 private:
  mutable std::once_flag once_;
  mutable std::vector<float> floats_;
  mutable std::vector<std::unique_ptr<PackedWeight>> packed_;  // by the size of groups
};

// Packs the weights of a step in the background, while a tokenizer is read or a prompt encoded. It
// uses the threads of the device for some milliseconds at a time, when no run waits for them.
class Packing {
 public:
  // Packs the weights in this order; null pointers are skipped. Weights whose rows are converted
  // when read are packed before this returns, so that no run converts them again. The caller holds
  // the mutex of the device; device and weights outlive this object.
  Packing(std::vector<PackedWeight*> weights, CpuDevice& device);
  ~Packing();
  Packing(const Packing&) = delete;
  Packing& operator=(const Packing&) = delete;

  // Packs what a run needs; the caller holds the mutex of the device. The first run reads unpacked
  // rows from the file; every later run waits until all weights are packed. Throws FORGE_CANCELLED
  // if the flag is raised during the call.
  void prepare_run(const StopFlag& stop);

 private:
  void pack_all();

  std::vector<PackedWeight*> weights_;
  CpuDevice& device_;
  bool has_run_ = false;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace forge::cpu

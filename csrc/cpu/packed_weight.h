#pragma once

#include <span>
#include <vector>

#include "../common/host_weight.h"
#include "cpu_device.h"
#include "memory.h"

namespace forge::cpu {

// Consecutive rows of one type and one group. Where the type has no panels, `block` points to the
// rows in the file. The fields that depend on a call are left empty.
struct PanelRun {
  MatmulBlock block;
  const WeightPart* part;
  uint64_t first_in_part;
  uint32_t n_packed;  // rows, from the first on

  // Writes the panels of `n` rows from `first` on, a multiple of kPanelRows.
  void pack(uint32_t first, uint32_t n, const KernelTable& kernels, uint8_t* panels) const;
};

// Whether all rows of a weight are multiplied with activations as signed bytes.
bool is_all_quantized(const HostWeight& weight);

// A weight as products read it: see panel_layout.h. Its rows form groups of equal size (experts); a
// panel lies inside one group and one part, and its last rows may be empty.
class PackedWeight {
 public:
  PackedWeight(const HostWeight& weight, uint64_t group_rows);

  bool is_packed() const { return n_done_ == tasks_.size(); }
  // Whether rows are made when they are read, which takes longer than to pack them.
  bool is_made() const { return made_; }
  // Packs a few more megabytes with all threads of the device, whose mutex the caller holds. Pages
  // of files that have been packed are given back to the system.
  void pack_more(CpuDevice& device);

  uint64_t group_rows() const { return group_rows_; }
  // Whether any rows are multiplied with activations as signed bytes.
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
  std::vector<uint32_t> first_;  // of each group in runs_, and the end
  Memory panels_;
  std::vector<Task> tasks_;
  size_t n_done_ = 0;
};

}  // namespace forge::cpu

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
#include "operations/division.h"

namespace forge::cpu {

// Consecutive rows of one type, one group and one NUMA node. If the type has no panels, `block`
// points to the rows in the file. The fields of `block` that depend on a call are empty.
struct PanelRun {
  MatmulBlock block;
  uint32_t node;  // whose threads compute the rows, and whose memory has their panels
  const WeightPart* part;
  uint64_t first_in_part;
  uint32_t n_packed;  // number of leading rows that are packed

  // Writes the panels of `n` rows from `first` on, a multiple of kPanelRows.
  void pack(uint32_t first, uint32_t n, const KernelTable& kernels, uint8_t* panels) const;
};

// True if all rows of a weight are multiplied with activations as signed bytes.
bool is_all_quantized(const HostWeight& weight);

// A weight in the layout of products (panel_layout.h). Its rows form groups of equal size
// (experts); a panel belongs to one group and one part, and its last rows may be empty. Of the rows
// of each part and group every NUMA node has a share.
//
// Panels have memory once the weight is placed. If only some groups have, these are the groups used
// most; the rows of the others stay in their file, and products pack them in the cache of a thread.
class PackedWeight {
 public:
  PackedWeight(const HostWeight& weight, uint64_t group_rows, const ThreadPool& pool);

  uint64_t n_groups() const { return first_.size() - 1; }
  // Number of groups whose panels have memory, once the weight is placed.
  uint64_t n_slots() const { return n_slots_; }
  // Bytes of all panels, and of rows without panels.
  uint64_t bytes() const;
  // Bytes of all rows in their file.
  uint64_t file_bytes() const;

  bool is_placed() const { return placed_; }
  // True if some rows stay in their file.
  bool is_streamed() const { return placed_ && n_slots_ < n_groups(); }
  // Allocates memory for the panels of n_slots groups, and counts it as taken.
  void place(uint64_t n_slots, MemoryBound& memory);

  // Has the system read the rows of a group, unless its panels are in memory.
  void read_ahead(uint64_t group) const;
  // Packs groups without panels, as long as they are used more than others with panels. The caller
  // holds the mutex of the device.
  void bring(std::span<const uint32_t> groups, CpuDevice& device);

  bool is_packed() const { return n_left_ == 0; }
  // True if rows are converted when they are read, which takes longer than packing them.
  bool is_made() const { return made_; }
  // Packs a few more megabytes with all threads of the device, whose mutex the caller holds, and
  // drops the packed pages of mapped files.
  void pack_more(CpuDevice& device);

  uint64_t group_rows() const { return group_rows_; }
  // True if any rows are multiplied with activations as signed bytes.
  bool quantized() const { return quantized_; }
  // True if any rows are multiplied with activations rounded to BF16.
  bool rounds(const KernelTable& kernels) const;
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

  void add_runs(const HostWeight& weight, const ThreadPool& pool);
  void plan_tasks(PanelRun& run);
  // Packs up to some tasks for each thread of a node, for all nodes at once.
  void pack_tasks(size_t per_thread, CpuDevice& device);

  // Returns the bytes of panels of a group on a node.
  uint64_t panel_bytes_of(uint64_t group, uint32_t node) const;
  // Gives a group the memory of a slot; none for n_slots_.
  void set_slot(uint64_t group, uint64_t slot);
  // Returns the slot for a group: a free one, or that of a group used less. None: n_slots_.
  uint64_t slot_for(uint64_t group) const;

  uint64_t group_rows_;
  bool quantized_ = false;
  bool made_ = false;
  std::vector<PanelRun> runs_;
  std::vector<uint32_t> first_;  // index in runs_ of the first run of each group, and the end
  bool placed_ = false;
  std::shared_ptr<const void> taken_;
  size_t n_left_ = 0;  // tasks of all nodes that are not done

  // Panels on a NUMA node, in slots of equal size, a slot for each group that has memory.
  struct NodePanels {
    Memory memory;
    uint64_t slot_bytes = 0;
    std::vector<Task> tasks;
    size_t n_done = 0;
  };
  std::vector<NodePanels> nodes_;
  uint64_t n_slots_ = 0;

  // If only some groups have panels: the group in each slot, and the uses of each group.
  std::vector<uint64_t> group_in_;
  struct Uses {
    uint32_t count = 0;  // halved from time to time
    uint64_t last = 0;   // value of clock_
  };
  std::vector<Uses> uses_;
  uint64_t clock_ = 0;
};

// A weight in host memory. Embeddings read single rows of the file; products read a packed copy,
// and vectors have a copy in floats. Both copies are made when a step first needs them.
class CpuWeight : public HostWeight {
 public:
  using HostWeight::HostWeight;

  // Returns all values as floats, dequantised at the first call: for norms, biases and frequencies.
  const float* floats() const;

  // Returns the copy for products with groups of `group_rows` rows by some threads, without packing
  // it. The caller holds the mutex of the device.
  PackedWeight& packed(uint64_t group_rows, const ThreadPool& pool) const;

 private:
  mutable std::once_flag once_;
  mutable std::vector<float> floats_;
  mutable std::vector<std::unique_ptr<PackedWeight>> packed_;  // by the size of groups
};

// Reads weights that stay in their files ahead of the products of a step, in their order, on a
// thread of its own.
class ReadAhead {
 public:
  // Null pointers and weights in memory are skipped.
  explicit ReadAhead(const std::vector<PackedWeight*>& weights);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Called before the product with weights[index].
  void reach(size_t index);

 private:
  struct Stop {
    const PackedWeight* weight;
    uint64_t begin;  // bytes of the weights before it
  };
  void read();

  std::vector<Stop> stops_;
  std::vector<size_t> stop_at_;  // for each of the weights the index of its stop, or of the next
  uint64_t total_ = 0;
  uint64_t reached_ = 0;         // bytes over all runs
  std::atomic<uint64_t> goal_{0};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
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

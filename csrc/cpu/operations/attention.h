#pragma once

#include <atomic>
#include <vector>

#include "../../common/step_inputs.h"
#include "../host/cpu_device.h"
#include "../caches.h"
#include "../host/memory.h"

namespace forge::cpu {

// One attention operation of a run: see AttentionOp.
struct AttentionJob {
  const AttentionOp& op;
  const StepInputs& inputs;
  const CpuKv& kv;
  const float* q;
  const float* sinks;  // [n_heads], may be null
  float* out;
  ActivationBlock* blocks;  // null, or the destination instead of `out`, as signed bytes
};

// Divides attention among threads. A task is a run of tokens of one sequence times the query heads
// that share a KV head (or some of them if there are many), so that keys and values are read once
// for all of them. The positions of a task are divided into splits. If there are too few tasks to
// keep all threads of a NUMA node busy, as with few heads and one long sequence, its splits are
// scheduled one by one, and the thread that finishes the last one merges them. Splits are always
// merged in the order of positions, so that a result depends neither on the number of threads nor
// on the rest of the batch.
class Attention {
 public:
  explicit Attention(CpuDevice& device);

  // Allocates scratch for jobs on caches of this shape.
  void reserve(const KvShape& shape);

  // Throws FORGE_CANCELLED if the flag is raised during the call.
  void run(const AttentionJob& job, const StopFlag& stop);

  uint64_t scratch_bytes() const { return scratch_.bytes(); }

 private:
  struct Task {
    uint32_t first_token;
    uint32_t n_tokens;
    uint32_t kv_head;
    uint32_t first_head;  // of the query heads
    uint32_t n_heads;
    int32_t begin;  // the first position it attends to
    uint32_t n_splits;
    // If divided: the index of its first partial result, and of its counter in left_.
    uint32_t first_partial;
    uint32_t left;
  };
  // A task, or one split of it.
  struct Unit {
    uint32_t task;
    uint32_t split;  // kWhole: all of them
  };
  static constexpr uint32_t kWhole = UINT32_MAX;

  void plan(const AttentionJob& job);
  void plan_tasks(const AttentionJob& job);
  // Schedules the tasks whose keys and values a NUMA node has.
  void plan_node(const AttentionJob& job, uint32_t node);
  AttentionRows rows_of(const AttentionJob& job, const Task& task) const;
  void finish(const AttentionJob& job, const Task& task, const AttentionPartial& partial,
              uint32_t thread) const;
  void run_whole(const AttentionJob& job, const Task& task, const StopFlag& stop,
                 uint32_t thread) const;
  void run_split(const AttentionJob& job, const Task& task, uint32_t split, uint32_t thread);
  // Results of a thread: index 0 for the splits merged so far, 1 for the next one.
  AttentionPartial result(uint32_t thread, uint32_t index, uint32_t v_head_dim) const;
  float* thread_scratch(uint32_t thread) const {
    return scratch_.floats() + thread * thread_floats_;
  }

  CpuDevice& device_;
  uint64_t kernel_floats_ = 0;
  uint64_t thread_floats_ = 0;
  Memory scratch_;

  std::vector<Visible> visible_;
  std::vector<Task> tasks_;
  std::vector<Unit> units_;
  std::vector<uint32_t> ends_;  // of the units of each NUMA node

  // Of divided tasks: partial results, and the number of unfinished splits of each task.
  uint32_t n_partials_ = 0;
  uint32_t n_divided_ = 0;
  Memory partials_;
  std::vector<std::atomic<uint32_t>> left_;
};

}  // namespace forge::cpu

#pragma once

#include <atomic>
#include <vector>

#include "../common/step_inputs.h"
#include "cpu_device.h"
#include "cpu_kv.h"
#include "memory.h"

namespace forge::cpu {

// One attention operation of a run: see forge_attention.
struct AttentionJob {
  const StepInputs& inputs;
  const CpuKv& kv;
  const float* q;
  uint32_t n_heads;
  float scale;
  uint32_t window;
  float softcap;
  const float* sinks;  // [n_heads], may be null
  float* out;
};

// Deals attention out to threads. A task is a run of tokens of one sequence by the query heads that
// share a KV head (or some of them, where they are many). The positions a task sees are taken in
// splits; where tasks are few and contexts long, the splits of a task are dealt out too, and
// whoever finishes its last one merges them. They are merged in the order of positions either way,
// so that nothing depends on the number of threads or on what else is in the batch.
class Attention {
 public:
  explicit Attention(CpuDevice& device);

  // Makes room for jobs on caches of this shape.
  void reserve(uint32_t v_head_dim);

  // Throws FORGE_CANCELLED when the flag is raised meanwhile.
  void run(const AttentionJob& job, const StopFlag& stop);

  uint64_t scratch_bytes() const { return scratch_.bytes(); }

 private:
  struct Task {
    uint32_t first_token;
    uint32_t n_tokens;
    uint32_t kv_head;
    uint32_t first_head;  // of the query heads
    uint32_t n_heads;
    int32_t begin;  // the first position it sees
    uint32_t n_splits;
    uint32_t first_split;  // in splits_, where tasks are split
  };
  struct Split {
    uint32_t task;
    uint32_t index;
  };

  void plan(const AttentionJob& job);
  void plan_splits();
  AttentionRows rows_of(const AttentionJob& job, const Task& task) const;
  void finish(const AttentionJob& job, const Task& task, const AttentionPartial& partial) const;
  void run_whole(const AttentionJob& job, const Task& task, const StopFlag& stop,
                 uint32_t thread) const;
  void run_split(const AttentionJob& job, uint32_t index, uint32_t thread);
  float* thread_scratch(uint32_t thread) const {
    return scratch_.floats() + thread * thread_floats_;
  }

  CpuDevice& device_;
  uint64_t thread_floats_ = 0;
  Memory scratch_;

  std::vector<Visible> visible_;
  std::vector<Task> tasks_;

  // Where tasks are split: the splits in the order of tasks, their results, and how many of each
  // task's are not done.
  std::vector<Split> splits_;
  Memory partials_;
  std::vector<std::atomic<uint32_t>> left_;
};

}  // namespace forge::cpu

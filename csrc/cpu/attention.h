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
  ActivationBlock* blocks;  // null, or where the result goes instead, as signed bytes
};

// Deals attention out to threads. A task is a run of tokens of one sequence by the query heads that
// share a KV head (or some of them, where they are many), so that keys and values are read once for
// all of them. The positions a task sees are taken in splits. Where that would leave threads
// without work to the end, as with few heads and one long sequence, a task's splits are dealt out
// one by one, and whoever finishes its last one merges them. They are merged in the order of
// positions either way, so that nothing depends on the number of threads or on what else is in the
// batch.
class Attention {
 public:
  explicit Attention(CpuDevice& device);

  // Makes room for jobs on caches of this shape.
  void reserve(const KvShape& shape);

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
    // Where its splits are dealt out: the place of the first one's result, and of its count.
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
  AttentionRows rows_of(const AttentionJob& job, const Task& task) const;
  void finish(const AttentionJob& job, const Task& task, const AttentionPartial& partial,
              uint32_t thread) const;
  void run_whole(const AttentionJob& job, const Task& task, const StopFlag& stop,
                 uint32_t thread) const;
  void run_split(const AttentionJob& job, const Task& task, uint32_t split, uint32_t thread);
  // A thread's results: of splits so far, and of one more.
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

  // Of the tasks whose splits are dealt out: results, and how many of each are not done.
  Memory partials_;
  std::vector<std::atomic<uint32_t>> left_;
};

}  // namespace forge::cpu

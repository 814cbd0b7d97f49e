#include "attention.h"

#include <algorithm>
#include <cmath>

namespace forge::cpu {

namespace {

constexpr int32_t kSplit = kAttentionSplit;

// Floats of a partial result of kAttentionRows rows.
uint64_t partial_floats(uint32_t v_head_dim) { return uint64_t{kAttentionRows} * (2 + v_head_dim); }

AttentionPartial partial_at(float* memory) {
  return {memory, memory + kAttentionRows, memory + 2 * kAttentionRows};
}

// A partial result that has seen nothing.
void clear(const AttentionPartial& partial, uint32_t n_rows, uint32_t v_head_dim) {
  std::fill_n(partial.largest, n_rows, -INFINITY);
  std::fill_n(partial.total, n_rows, 0.0f);
  std::fill_n(partial.out, uint64_t{n_rows} * v_head_dim, 0.0f);
}

// The first position of a split of a task that sees positions from `begin` on.
int32_t split_begin(int32_t begin, uint32_t split) {
  return (begin / kSplit + static_cast<int32_t>(split)) * kSplit;
}

}  // namespace

Attention::Attention(CpuDevice& device) : device_(device), left_(4 * device.pool.n_threads()) {}

void Attention::reserve(uint32_t v_head_dim) {
  const uint64_t floats = kAttentionScratch + 2 * partial_floats(v_head_dim);
  if (floats <= thread_floats_) return;
  thread_floats_ = floats;
  scratch_ = Memory(device_.pool.n_threads() * floats * sizeof(float));
}

void Attention::plan(const AttentionJob& job) {
  const StepInputs& in = job.inputs;
  visible_.clear();
  for (const int32_t last : in.positions) {
    const bool cut = job.window > 0 && static_cast<uint32_t>(last) >= job.window;
    visible_.push_back({cut ? last - static_cast<int32_t>(job.window) + 1 : 0, last});
  }
  const uint32_t group = job.n_heads / job.kv.shape.n_kv_heads;
  const uint32_t heads = std::min(group, kAttentionRows);
  const uint32_t most_tokens = kAttentionRows / heads;
  tasks_.clear();
  for (uint32_t t = 0; t < in.n_tokens;) {
    uint32_t n = 1;
    while (n < most_tokens && t + n < in.n_tokens && in.sequences[t + n] == in.sequences[t]) ++n;
    int32_t begin = visible_[t].first, end = visible_[t].last + 1;
    for (uint32_t i = 1; i < n; ++i) {
      begin = std::min(begin, visible_[t + i].first);
      end = std::max(end, visible_[t + i].last + 1);
    }
    const auto n_splits = static_cast<uint32_t>((end - 1) / kSplit - begin / kSplit + 1);
    for (uint32_t kv_head = 0; kv_head < job.kv.shape.n_kv_heads; ++kv_head) {
      for (uint32_t h = 0; h < group; h += heads) {
        tasks_.push_back({t, n, kv_head, kv_head * group + h, std::min(heads, group - h), begin,
                          n_splits, 0});
      }
    }
    t += n;
  }
}

AttentionRows Attention::rows_of(const AttentionJob& job, const Task& task) const {
  const KvShape& shape = job.kv.shape;
  const uint64_t q_stride = uint64_t{job.n_heads} * shape.k_head_dim;
  AttentionRows rows;
  rows.q = job.q + task.first_token * q_stride + uint64_t{task.first_head} * shape.k_head_dim;
  rows.q_stride = q_stride;
  rows.n_tokens = task.n_tokens;
  rows.n_heads = task.n_heads;
  rows.k_head_dim = shape.k_head_dim;
  rows.v_head_dim = shape.v_head_dim;
  rows.visible = visible_.data() + task.first_token;
  rows.pages = job.inputs.page_table(task.first_token).data();
  rows.page_tokens = shape.page_tokens;
  rows.page_bytes = job.kv.page_bytes;
  rows.k = job.kv.k(task.kv_head);
  rows.v = job.kv.v(task.kv_head);
  rows.is_f16 = job.kv.is_f16();
  rows.scale = job.scale;
  rows.softcap = job.softcap;
  return rows;
}

void Attention::finish(const AttentionJob& job, const Task& task,
                       const AttentionPartial& partial) const {
  const uint32_t dim = job.kv.shape.v_head_dim;
  for (uint32_t t = 0; t < task.n_tokens; ++t) {
    for (uint32_t h = 0; h < task.n_heads; ++h) {
      const uint32_t head = task.first_head + h;
      const uint64_t row = uint64_t{task.first_token + t} * job.n_heads + head;
      device_.kernels.attention_finish(partial, t * task.n_heads + h, dim,
                                       job.sinks ? job.sinks + head : nullptr, job.out + row * dim);
    }
  }
}

void Attention::run_whole(const AttentionJob& job, const Task& task, const StopFlag& stop,
                          uint32_t thread) const {
  const uint32_t dim = job.kv.shape.v_head_dim, n_rows = task.n_tokens * task.n_heads;
  float* scratch = thread_scratch(thread);
  const AttentionPartial all = partial_at(scratch + kAttentionScratch);
  const AttentionPartial one = partial_at(scratch + kAttentionScratch + partial_floats(dim));
  const AttentionRows rows = rows_of(job, task);
  clear(all, n_rows, dim);
  for (uint32_t split = 0; split < task.n_splits && !stop.raised(); ++split) {
    device_.kernels.attention_split(rows, split_begin(task.begin, split), one, scratch);
    device_.kernels.attention_merge(n_rows, dim, all, one);
  }
  finish(job, task, all);
}

void Attention::plan_splits() {
  splits_.clear();
  for (uint32_t t = 0; t < tasks_.size(); ++t) {
    tasks_[t].first_split = static_cast<uint32_t>(splits_.size());
    left_[t].store(tasks_[t].n_splits, std::memory_order_relaxed);
    for (uint32_t i = 0; i < tasks_[t].n_splits; ++i) splits_.push_back({t, i});
  }
}

void Attention::run_split(const AttentionJob& job, uint32_t index, uint32_t thread) {
  const Split split = splits_[index];
  const Task& task = tasks_[split.task];
  const uint32_t dim = job.kv.shape.v_head_dim, n_rows = task.n_tokens * task.n_heads;
  const auto partial = [&](uint32_t i) {
    return partial_at(partials_.floats() + (task.first_split + i) * partial_floats(dim));
  };
  float* scratch = thread_scratch(thread);
  device_.kernels.attention_split(rows_of(job, task), split_begin(task.begin, split.index),
                                  partial(split.index), scratch);
  if (left_[split.task].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const AttentionPartial all = partial_at(scratch + kAttentionScratch);
  clear(all, n_rows, dim);
  for (uint32_t i = 0; i < task.n_splits; ++i) {
    device_.kernels.attention_merge(n_rows, dim, all, partial(i));
  }
  finish(job, task, all);
}

void Attention::run(const AttentionJob& job, const StopFlag& stop) {
  plan(job);
  ThreadPool& pool = device_.pool;
  const auto n_tasks = static_cast<uint32_t>(tasks_.size());
  const bool long_tasks = std::any_of(tasks_.begin(), tasks_.end(),
                                      [](const Task& task) { return task.n_splits > 1; });
  if (long_tasks && pool.n_threads() > 1 && n_tasks < left_.size()) {
    plan_splits();
    const uint64_t bytes =
        splits_.size() * partial_floats(job.kv.shape.v_head_dim) * sizeof(float);
    if (partials_.bytes() < bytes) partials_ = Memory(2 * bytes);
    pool.run(static_cast<uint32_t>(splits_.size()), [&](uint32_t index, uint32_t thread) {
      if (!stop.raised()) run_split(job, index, thread);
    });
  } else {
    // Later tokens see more positions: their tasks go first, so that none is left for the end.
    pool.run(n_tasks, [&](uint32_t index, uint32_t thread) {
      run_whole(job, tasks_[n_tasks - 1 - index], stop, thread);
    });
  }
  stop.check();
}

}  // namespace forge::cpu

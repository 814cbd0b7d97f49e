#include "attention.h"

#include <algorithm>
#include <cmath>

#include "division.h"

namespace forge::cpu {

namespace {

constexpr int32_t kSplit = kAttentionSplit;

// Floats of a partial result of kAttentionRows rows.
uint64_t partial_floats(uint32_t v_head_dim) {
  return uint64_t{kAttentionRows} * (2 + padded_dim(v_head_dim));
}

AttentionPartial partial_at(float* memory) {
  return {memory, memory + kAttentionRows, memory + 2 * kAttentionRows};
}

// Sets a partial result to that of no positions.
void clear(const AttentionPartial& partial, uint32_t n_rows, uint32_t v_head_dim) {
  std::fill_n(partial.largest, n_rows, -INFINITY);
  std::fill_n(partial.total, n_rows, 0.0f);
  std::fill_n(partial.out, uint64_t{n_rows} * padded_dim(v_head_dim), 0.0f);
}

// Returns the first position of a split of a task whose positions start at `begin`.
int32_t split_begin(int32_t begin, uint32_t split) {
  return (begin / kSplit + static_cast<int32_t>(split)) * kSplit;
}

}  // namespace

Attention::Attention(CpuDevice& device) : device_(device), left_(4 * device.pool.n_threads()) {}

void Attention::reserve(const KvShape& shape) {
  kernel_floats_ = std::max<uint64_t>(kernel_floats_,
                                      attention_scratch(shape.k_head_dim, shape.v_head_dim));
  const uint64_t floats = kernel_floats_ + 2 * partial_floats(shape.v_head_dim);
  if (floats <= thread_floats_) return;
  thread_floats_ = floats;
  scratch_ = Memory(device_.pool.n_threads() * floats * sizeof(float));
}

void Attention::plan_tasks(const AttentionJob& job) {
  const StepInputs& in = job.inputs;
  visible_.clear();
  for (uint32_t t = 0; t < in.n_tokens; ++t) {
    const KeyRange keys = visible_keys(job.op, in, t);
    visible_.push_back({static_cast<int32_t>(keys.begin), static_cast<int32_t>(keys.end) - 1});
  }
  const uint32_t group = job.op.n_heads / job.kv.shape.n_kv_heads;
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
                          n_splits, 0, 0});
      }
    }
    t += n;
  }
}

void Attention::plan(const AttentionJob& job) {
  plan_tasks(job);
  units_.clear();
  ends_.clear();
  n_partials_ = 0;
  n_divided_ = 0;
  for (uint32_t node = 0; node < device_.pool.n_nodes(); ++node) {
    plan_node(job, node);
    ends_.push_back(static_cast<uint32_t>(units_.size()));
  }
  const uint64_t bytes = n_partials_ * partial_floats(job.kv.shape.v_head_dim) * sizeof(float);
  if (partials_.bytes() < bytes) partials_ = Memory(2 * bytes);
}

// Schedules whole tasks first, the longest first, then the splits of tasks longer than a quarter of
// a thread's share, so that no thread ends with a long piece alone.
void Attention::plan_node(const AttentionJob& job, uint32_t node) {
  const auto is_here = [&](const Task& task) { return job.kv.node_of(task.kv_head) == node; };
  uint32_t n_splits = 0;
  for (const Task& task : tasks_) n_splits += is_here(task) ? task.n_splits : 0;
  const uint32_t n_threads = device_.pool.nodes()[node].n_threads;
  const bool is_alone = device_.pool.n_threads() == 1;
  const uint32_t most = is_alone ? n_splits : most_whole_splits(n_splits, n_threads);
  const auto first_unit = static_cast<ptrdiff_t>(units_.size());
  for (uint32_t t = 0; t < tasks_.size(); ++t) {
    if (is_here(tasks_[t]) && tasks_[t].n_splits <= most) units_.push_back({t, kWhole});
  }
  const auto cost = [this](const Unit& unit) {
    return uint64_t{tasks_[unit.task].n_splits} * tasks_[unit.task].n_tokens;
  };
  std::sort(units_.begin() + first_unit, units_.end(), [&](const Unit& a, const Unit& b) {
    return cost(a) != cost(b) ? cost(a) > cost(b) : a.task < b.task;
  });
  for (uint32_t t = 0; t < tasks_.size(); ++t) {
    Task& task = tasks_[t];
    if (!is_here(task) || task.n_splits <= most) continue;
    task.first_partial = n_partials_;
    task.left = n_divided_++;
    // left_ has room for all divided tasks: each has more splits than a quarter of a thread's
    // share, so there are fewer than 4 for each thread.
    left_[task.left].store(task.n_splits, std::memory_order_relaxed);
    n_partials_ += task.n_splits;
    for (uint32_t i = 0; i < task.n_splits; ++i) units_.push_back({t, i});
  }
}

AttentionRows Attention::rows_of(const AttentionJob& job, const Task& task) const {
  const KvShape& shape = job.kv.shape;
  const uint64_t q_stride = uint64_t{job.op.n_heads} * shape.k_head_dim;
  AttentionRows rows{};
  rows.q = job.q + task.first_token * q_stride + uint64_t{task.first_head} * shape.k_head_dim;
  rows.q_stride = q_stride;
  rows.n_tokens = task.n_tokens;
  rows.n_heads = task.n_heads;
  rows.k_head_dim = shape.k_head_dim;
  rows.v_head_dim = shape.v_head_dim;
  rows.values_in_keys = shape.values_in_keys;
  rows.visible = visible_.data() + task.first_token;
  rows.pages = job.inputs.page_table(task.first_token).data();
  rows.page_tokens = shape.page_tokens;
  rows.type = shape.type;
  rows.kv = job.kv.head(task.kv_head);
  rows.scale = job.op.scale;
  rows.softcap = job.op.softcap;
  const AttentionMask& mask = job.inputs.attention_mask;
  if (job.op.masked && mask.kind != FORGE_MASK_NONE) {
    rows.mask = mask.row(task.first_token, task.first_head);
    rows.mask_stride = mask.stride;
    rows.mask_heads = mask.n_heads;
    rows.mask_is_bits = mask.is_bits();
  }
  return rows;
}

void Attention::finish(const AttentionJob& job, const Task& task, const AttentionPartial& partial,
                       uint32_t thread) const {
  const uint32_t dim = job.kv.shape.v_head_dim;
  const uint64_t width = uint64_t{task.n_heads} * dim;  // of a token
  const auto first_row = [&](uint32_t t) {
    return uint64_t{task.first_token + t} * job.op.n_heads + task.first_head;
  };
  for (uint32_t t = 0; t < task.n_tokens; ++t) {
    // Rows to be quantised are finished in place, without padding between heads.
    float* heads = job.blocks ? partial.out + t * width : job.out + first_row(t) * dim;
    for (uint32_t h = 0; h < task.n_heads; ++h) {
      const float* sink = job.sinks ? job.sinks + task.first_head + h : nullptr;
      device_.kernels.attention_finish(partial, t * task.n_heads + h, dim, sink, heads + h * dim);
    }
  }
  if (!job.blocks) return;
  // Reuses the memory of the next split, as no split follows.
  auto* blocks = reinterpret_cast<ActivationBlock*>(result(thread, 1, dim).largest);
  const uint64_t token_blocks = width / kBlockCols;
  device_.kernels.quantize(partial.out, task.n_tokens * width, blocks);
  for (uint32_t t = 0; t < task.n_tokens; ++t) {
    std::copy_n(blocks + t * token_blocks, token_blocks,
                job.blocks + first_row(t) * (dim / kBlockCols));
  }
}

AttentionPartial Attention::result(uint32_t thread, uint32_t index, uint32_t v_head_dim) const {
  return partial_at(thread_scratch(thread) + kernel_floats_ + index * partial_floats(v_head_dim));
}

void Attention::run_whole(const AttentionJob& job, const Task& task, const StopFlag& stop,
                          uint32_t thread) const {
  const uint32_t dim = job.kv.shape.v_head_dim, n_rows = task.n_tokens * task.n_heads;
  const AttentionPartial all = result(thread, 0, dim), one = result(thread, 1, dim);
  const AttentionRows rows = rows_of(job, task);
  clear(all, n_rows, dim);
  for (uint32_t split = 0; split < task.n_splits && !stop.raised(); ++split) {
    device_.kernels.attention_split(rows, split_begin(task.begin, split), one,
                                    thread_scratch(thread));
    device_.kernels.attention_merge(n_rows, dim, all, one);
  }
  finish(job, task, all, thread);
}

void Attention::run_split(const AttentionJob& job, const Task& task, uint32_t split,
                          uint32_t thread) {
  const uint32_t dim = job.kv.shape.v_head_dim, n_rows = task.n_tokens * task.n_heads;
  const auto partial = [&](uint32_t i) {
    return partial_at(partials_.floats() + (task.first_partial + i) * partial_floats(dim));
  };
  device_.kernels.attention_split(rows_of(job, task), split_begin(task.begin, split),
                                  partial(split), thread_scratch(thread));
  if (left_[task.left].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const AttentionPartial all = result(thread, 0, dim);
  clear(all, n_rows, dim);
  for (uint32_t i = 0; i < task.n_splits; ++i) {
    device_.kernels.attention_merge(n_rows, dim, all, partial(i));
  }
  finish(job, task, all, thread);
}

void Attention::run(const AttentionJob& job, const StopFlag& stop) {
  plan(job);
  device_.pool.run_divided(ends_, [&](uint32_t index, uint32_t thread) {
    if (stop.raised()) return;
    const Unit& unit = units_[index];
    if (unit.split == kWhole) {
      run_whole(job, tasks_[unit.task], stop, thread);
    } else {
      run_split(job, tasks_[unit.task], unit.split, thread);
    }
  });
  stop.check();
}

}  // namespace forge::cpu

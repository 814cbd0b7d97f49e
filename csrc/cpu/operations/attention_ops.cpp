// Rotary embedding, the KV cache and attention.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../cpu_executor.h"
#include "../caches.h"

namespace forge::cpu {

void CpuExecutor::prepare(const RopeTableOp& op) { floats_of(op.inv_freq); }

void CpuExecutor::execute(const RopeTableOp& op) {
  const Matrix out = matrix(op.out);
  const float* inv_freq = floats_of(op.inv_freq);
  const uint64_t n = op.inv_freq->cols;
  // A sine costs about 32 multiplications.
  for_rows(out.rows, 32 * out.cols, [&](uint64_t t, uint32_t) {
    for (uint64_t i = 0; i < n; ++i) {
      // The angle is rounded to float first, as in training.
      const float angle = static_cast<float>(inputs_->positions[t]) * inv_freq[i];
      out.row(t)[i] = static_cast<float>(std::cos(static_cast<double>(angle)) * op.scale);
      out.row(t)[n + i] = static_cast<float>(std::sin(static_cast<double>(angle)) * op.scale);
    }
  });
}

void CpuExecutor::prepare(const RopeAppendOp& op) {
  floats_of(op.q_norm);
  floats_of(op.k_norm);
  reserve_row(uint64_t{op.kv->shape.n_kv_heads} * op.kv->shape.k_head_dim);
}

void CpuExecutor::place_pages(CpuKv& kv, uint64_t n_tokens) {
  if (device_->pool.n_nodes() == 1) return;
  std::vector<uint32_t> pages;
  for (uint32_t t = 0; t < n_tokens; ++t) {
    for_places(*inputs_, t, kv.shape.page_tokens,
               [&](uint32_t page, uint32_t) { pages.push_back(page); });
  }
  kv.place(pages, device_->pool);
}

void CpuExecutor::execute(const RopeAppendOp& op) {
  const Matrix qkv = matrix(op.qkv), rope = matrix(op.rope), out = matrix(op.out);
  auto& kv = static_cast<CpuKv&>(*op.kv);
  place_pages(kv, qkv.rows);
  const KvShape& shape = kv.shape;
  const uint64_t k_cols = uint64_t{shape.n_kv_heads} * shape.k_head_dim;

  // Copies heads, then normalises in groups as wide as the norm's weight, then rotates.
  const auto transform = [&](const float* from, uint64_t cols, const WeightRef& norm, uint64_t t,
                             float* to) {
    if (norm) {
      const uint64_t width = norm->cols;
      for (uint64_t i = 0; i < cols; i += width) {
        kernels_.rms_norm(from + i, floats_of(norm), width, op.eps, op.weight_offset, nullptr,
                          to + i);
      }
    } else {
      std::memcpy(to, from, cols * sizeof(float));
    }
    if (rope.data) {
      kernels_.rotate(to + op.first_rotated(rope.cols),
                      static_cast<uint32_t>(cols / shape.k_head_dim), shape.k_head_dim,
                      rope.row(t), rope.cols / 2, op.rope_layout);
    }
  };

  for_rows(qkv.rows, qkv.cols, [&](uint64_t t, uint32_t thread) {
    const float* q = qkv.row(t);
    const float* k = q + out.cols;
    transform(q, out.cols, op.q_norm, t, out.row(t));
    float* keys = rows_[thread].data();
    transform(k, k_cols, op.k_norm, t, keys);
    for_places(*inputs_, static_cast<uint32_t>(t), shape.page_tokens,
               [&](uint32_t page, uint32_t slot) { kv.store(page, slot, keys, k + k_cols); });
  });
}

void CpuExecutor::execute(const PreviousRowsOp& op) {
  const Matrix x = matrix(op.x), out = matrix(op.out);
  auto& kv = static_cast<CpuKv&>(*op.kv);
  const uint32_t page_tokens = kv.shape.page_tokens;
  const auto page_of = [&](uint64_t t, uint32_t position) {
    const auto table = inputs_->page_table(static_cast<uint32_t>(t));
    return static_cast<uint32_t>(table[position / page_tokens]);
  };
  const auto position_of = [&](uint64_t t) { return static_cast<uint32_t>(inputs_->positions[t]); };
  if (x.data) {
    place_pages(kv, x.rows);
    for_rows(x.rows, x.cols, [&](uint64_t t, uint32_t) {
      for_places(*inputs_, static_cast<uint32_t>(t), page_tokens,
                 [&](uint32_t page, uint32_t slot) { kv.store(page, slot, x.row(t), nullptr); });
    });
  }
  for_rows(out.rows, out.cols, [&](uint64_t t, uint32_t) {
    const uint32_t position = position_of(t);
    if (position == 0) {
      std::fill_n(out.row(t), out.cols, 0.0f);
    } else {
      kv.read_keys(page_of(t, position - 1), (position - 1) % page_tokens, out.row(t));
    }
  });
}

void CpuExecutor::prepare(const AttentionOp& op) {
  floats_of(op.sinks);
  attention_.reserve(op.kv->shape);
}

void CpuExecutor::execute(const AttentionOp& op) {
  attention_.run({.op = op,
                  .inputs = *inputs_,
                  .kv = static_cast<const CpuKv&>(*op.kv),
                  .q = matrix(op.q).data,
                  .sinks = floats_of(op.sinks),
                  .out = matrix(op.out).data,
                  .blocks = blocks_of(op.out)},
                 *stop_);
}

}  // namespace forge::cpu

// Rotary embedding, the KV cache and attention.

#include <algorithm>
#include <bit>
#include <cmath>

#include "../common/host_weight.h"
#include "executor.h"
#include "reference_kv.h"

namespace forge::reference {

namespace {

// RMSNorm in place over groups as wide as the weight: one head, or all of them at once.
void norm_heads(std::vector<float>& x, const WeightRef& weight_ref, float eps, float offset) {
  if (!weight_ref) return;
  const std::vector<float> weight = vector_of(static_cast<const HostWeight&>(*weight_ref));
  const size_t width = weight.size();
  for (size_t begin = 0; begin < x.size(); begin += width) {
    double sum = 0;
    for (size_t i = 0; i < width; ++i) sum += static_cast<double>(x[begin + i]) * x[begin + i];
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(width) + eps);
    for (size_t i = 0; i < width; ++i) {
      x[begin + i] = static_cast<float>(x[begin + i] * scale * (weight[i] + offset));
    }
  }
}

// Rotates 2 n elements of every head, from `first` on; table holds n cosines, then n sines.
void rotate_heads(std::vector<float>& x, uint32_t head_dim, uint32_t first, const float* table,
                  uint64_t n, uint32_t layout) {
  for (size_t head = first; head < x.size(); head += head_dim) {
    for (uint64_t i = 0; i < n; ++i) {
      float& a = x[head + (layout == FORGE_ROPE_HALF ? i : 2 * i)];
      float& b = x[head + (layout == FORGE_ROPE_HALF ? i + n : 2 * i + 1)];
      const float cos = table[i], sin = table[n + i];
      const float rotated = a * cos - b * sin;
      b = a * sin + b * cos;
      a = rotated;
    }
  }
}

// The number that a mask adds to a score.
double mask_bias(const AttentionMask& mask, uint32_t token, uint32_t head, uint32_t position) {
  const uint32_t* row = mask.row(token, head);
  if (!mask.is_bits()) return std::bit_cast<float>(row[position]);
  return row[position / 32] >> position % 32 & 1 ? 0.0 : -INFINITY;
}

}  // namespace

void Executor::execute(const RopeTableOp& op) {
  const Matrix out = matrix(op.out);
  const std::vector<float> inv_freq = vector_of(static_cast<const HostWeight&>(*op.inv_freq));
  const size_t n = inv_freq.size();
  for (uint64_t t = 0; t < out.rows; ++t) {
    for (size_t i = 0; i < n; ++i) {
      // The angle is rounded to float first, as in training.
      const float angle = static_cast<float>(inputs_->positions[t]) * inv_freq[i];
      out.row(t)[i] = static_cast<float>(std::cos(static_cast<double>(angle)) * op.scale);
      out.row(t)[n + i] = static_cast<float>(std::sin(static_cast<double>(angle)) * op.scale);
    }
  }
}

void Executor::execute(const RopeAppendOp& op) {
  const Matrix qkv = matrix(op.qkv), rope = matrix(op.rope), out = matrix(op.out);
  auto& kv = static_cast<ReferenceKv&>(*op.kv);
  const uint32_t head_dim = kv.shape.k_head_dim;
  for (uint64_t t = 0; t < qkv.rows; ++t) {
    const float* from = qkv.row(t);
    std::vector<float> q(from, from + out.cols);
    std::vector<float> k(from + out.cols, from + out.cols + kv.k_cols());
    const float* v = from + out.cols + kv.k_cols();
    norm_heads(q, op.q_norm, op.eps, op.weight_offset);
    norm_heads(k, op.k_norm, op.eps, op.weight_offset);
    if (rope.data) {
      const uint32_t first = op.first_rotated(rope.cols);
      rotate_heads(q, head_dim, first, rope.row(t), rope.cols / 2, op.rope_layout);
      rotate_heads(k, head_dim, first, rope.row(t), rope.cols / 2, op.rope_layout);
    }
    std::copy(q.begin(), q.end(), out.row(t));
    for_places(*inputs_, static_cast<uint32_t>(t), kv.shape.page_tokens,
               [&](uint32_t page, uint32_t slot) { kv.store(page, slot, k.data(), v); });
  }
}

void Executor::execute(const PreviousRowsOp& op) {
  const Matrix x = matrix(op.x), out = matrix(op.out);
  auto& kv = static_cast<ReferenceKv&>(*op.kv);
  const uint32_t page_tokens = kv.shape.page_tokens;
  const auto page_of = [&](uint64_t t, uint32_t position) {
    const auto table = inputs_->page_table(static_cast<uint32_t>(t));
    return static_cast<uint32_t>(table[position / page_tokens]);
  };
  for (uint64_t t = 0; x.data && t < x.rows; ++t) {
    for_places(*inputs_, static_cast<uint32_t>(t), page_tokens,
               [&](uint32_t page, uint32_t slot) { kv.store(page, slot, x.row(t), nullptr); });
  }
  for (uint64_t t = 0; t < out.rows; ++t) {
    const auto position = static_cast<uint32_t>(inputs_->positions[t]);
    for (uint32_t i = 0; i < out.cols; ++i) {
      out.row(t)[i] =
          position == 0 ? 0.0f
                        : kv.k(page_of(t, position - 1), (position - 1) % page_tokens, 0, i);
    }
  }
}

void Executor::execute(const AttentionOp& op) {
  const Matrix q = matrix(op.q), out = matrix(op.out);
  const auto& kv = static_cast<const ReferenceKv&>(*op.kv);
  const KvShape& shape = kv.shape;
  const uint32_t group = op.n_heads / shape.n_kv_heads;
  std::vector<float> sinks;
  if (op.sinks) sinks = vector_of(static_cast<const HostWeight&>(*op.sinks));
  const AttentionMask mask = op.masked ? inputs_->attention_mask : AttentionMask{};

  for (uint64_t t = 0; t < q.rows; ++t) {
    const auto pages = inputs_->page_table(static_cast<uint32_t>(t));
    const KeyRange keys = visible_keys(op, *inputs_, static_cast<uint32_t>(t));
    std::vector<double> scores(keys.end - keys.begin);
    for (uint32_t head = 0; head < op.n_heads; ++head) {
      const uint32_t kv_head = head / group;
      const float* query = q.row(t) + static_cast<uint64_t>(head) * shape.k_head_dim;
      double largest = op.sinks ? sinks[head] : -INFINITY;
      for (uint32_t p = keys.begin; p < keys.end; ++p) {
        const auto page = static_cast<uint32_t>(pages[p / shape.page_tokens]);
        double score = 0;
        for (uint32_t i = 0; i < shape.k_head_dim; ++i) {
          score += static_cast<double>(query[i]) *
                   kv.k(page, p % shape.page_tokens, kv_head, i);
        }
        score *= op.scale;
        if (op.softcap > 0) score = op.softcap * std::tanh(score / op.softcap);
        if (mask.kind != FORGE_MASK_NONE) {
          score += mask_bias(mask, static_cast<uint32_t>(t), head, p);
        }
        scores[p - keys.begin] = score;
        largest = std::max(largest, score);
      }
      // A token that sees nothing gets zeros.
      const double base = std::isinf(largest) && largest < 0 ? 0 : largest;
      double total = op.sinks ? std::exp(sinks[head] - base) : 0;
      for (double& score : scores) total += score = std::exp(score - base);
      for (uint32_t i = 0; i < shape.v_head_dim; ++i) {
        double sum = 0;
        for (uint32_t p = keys.begin; p < keys.end; ++p) {
          const auto page = static_cast<uint32_t>(pages[p / shape.page_tokens]);
          sum += scores[p - keys.begin] * kv.v(page, p % shape.page_tokens, kv_head, i);
        }
        out.row(t)[static_cast<uint64_t>(head) * shape.v_head_dim + i] =
            total == 0 ? 0.0f : static_cast<float>(sum / total);
      }
    }
  }
}

}  // namespace forge::reference

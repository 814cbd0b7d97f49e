// Attention in plain loops: in double, and in float to measure the error of rounding alone. A GPU
// adds scores of E4M3 with few bits, so both take the scores that its instructions give.
#include <cmath>
#include <cstdio>
#include <limits>

#include "../../emulator/e4m3_sum.h"
#include "attention_case.h"

namespace flash_attn_test {

namespace {

// The largest difference; NaN counts as the largest of all.
struct LargestError {
  double value = 0;

  void add(double error) {
    if (!(error <= value)) value = std::isnan(error) ? INFINITY : error;
  }
};

double difference(double a, double b) { return a == b ? 0 : std::fabs(a - b); }

}  // namespace

template <class Real>
Real AttentionCase::product_of(const std::vector<float> &q, const std::vector<float> &k) const {
  if (is_e4m3()) {
    float sum = 0;
    for (size_t d = 0; d < q.size(); d += emulator::sm90::kE4m3Depth) {
      sum = emulator::sm90::add_e4m3_products(sum, &q[d], &k[d]);
    }
    return sum;
  }
  Real sum = 0;
  for (size_t d = 0; d < q.size(); d++) sum += Real{q[d]} * Real{k[d]};
  return sum;
}

// One row of the output, and the same sum over the values' magnitudes; returns its log-sum-exp.
template <class Real>
Real AttentionCase::reference_row(int32_t sequence, int32_t query, int32_t head,
                                  std::vector<Real> &out, std::vector<Real> &magnitude) const {
  const int32_t n_q = shape_.q[static_cast<size_t>(sequence)];
  const int32_t n_k = shape_.k[static_cast<size_t>(sequence)];
  const int32_t kv_head = head / (shape_.heads / shape_.kv_heads);
  const int64_t position = int64_t{query} + n_k - n_q;
  const int64_t right = shape_.causal != 0 ? 0 : shape_.right;
  const auto dims = static_cast<size_t>(shape_.head_dim);
  const std::vector<float> q = query_row(sequence, query, head);
  const Real score_scale = Real{params_.scale} * descale(q_descale_, sequence, kv_head) *
                           descale(k_descale_, sequence, kv_head);
  const Real v_scale = descale(v_descale_, sequence, kv_head);
  out.assign(dims, 0);
  magnitude.assign(dims, 0);

  std::vector<Real> scores;
  std::vector<int32_t> keys;
  Real top = shape_.sinks != 0 ? static_cast<Real>(sinks_[static_cast<size_t>(head)])
                               : -std::numeric_limits<Real>::infinity();
  for (int32_t key = 0; key < n_k; key++) {
    if (shape_.left >= 0 && key < position - shape_.left) continue;
    if (right >= 0 && key > position + right) continue;
    Real score = product_of<Real>(q, stored_row(k_, sequence, key, kv_head)) * score_scale;
    if (shape_.softcap > 0) {
      const Real cap = shape_.softcap;
      score = cap * std::tanh(score / cap);
    }
    if (has_mask()) {
      const float number = mask_number(sequence, query, head, key);
      if (number < -1e30f) continue;
      score += number;
    }
    scores.push_back(score);
    keys.push_back(key);
    top = std::fmax(top, score);
  }
  if (std::isinf(top)) return top;
  Real total = shape_.sinks != 0 ? std::exp(Real{sinks_[static_cast<size_t>(head)]} - top) : 0;
  std::vector<Real> values(is_e4m3() ? dims : 0);
  for (size_t i = 0; i < keys.size(); i++) {
    const Real weight = std::exp(scores[i] - top);
    total += weight;
    const std::vector<float> v = stored_row(v_, sequence, keys[i], kv_head);
    for (size_t d = 0; d < dims; d++) {
      out[d] += weight * Real{v[d]};
      magnitude[d] += weight * std::fabs(Real{v[d]});
      if (is_e4m3()) values[d] += std::fabs(Real{v[d]});
    }
  }
  for (Real &x : out) x *= v_scale / total;
  for (Real &x : magnitude) x *= v_scale / total;
  // Weights are multiples of 2^-15 of the largest one, which is at most the total.
  for (size_t d = 0; d < values.size(); d++) magnitude[d] += values[d] * v_scale * Real{0x1p-12f};
  return top + std::log(total);
}

void AttentionCase::report(flash_attn_status status) const {
  LargestError error, float_error, lse_error, lse_float_error, excess;
  // Weights are rounded to the type before they are multiplied, and so are values of Q8_0, and the
  // result.
  const double unit = shape_.dtype == "f16" ? 0x1p-11 : 0x1p-8;
  const double weight_unit = is_e4m3() ? 0x1p-4 : unit * (is_q8() ? 2 : 1);
  int64_t written = 0;
  if (status == FLASH_ATTN_OK) {
    std::vector<double> exact, magnitude;
    std::vector<float> plain, plain_magnitude;
    for (int32_t b = 0; b < batch(); b++) {
      for (int32_t i = 0; i < shape_.q[static_cast<size_t>(b)]; i++) {
        for (int32_t h = 0; h < shape_.heads; h++) {
          written += shape_.head_dim;
          if (b == shape_.nan_sequence) continue;
          const double lse = reference_row(b, i, h, exact, magnitude);
          const float float_lse = reference_row(b, i, h, plain, plain_magnitude);
          const uint16_t *const row = out_.data.get() + query_at(out_, b, i, h);
          for (size_t d = 0; d < exact.size(); d++) {
            const double off = difference(value(row[d]), exact[d]);
            error.add(off);
            excess.add(off - 1.01 * (unit * std::fabs(exact[d]) + weight_unit * magnitude[d]) -
                       1e-5);
            float_error.add(difference(rounded(plain[d]), exact[d]));
          }
          const int64_t at = (packed_queries() ? cu_q_[static_cast<size_t>(b)]
                                               : b * params_.lse_batch_stride) +
                             h * params_.lse_head_stride + i;
          // A mask's number is rounded in the unit of scores and in that of the softmax.
          const double rounding = std::isfinite(lse) ? 2 * 0x1p-23 * std::fabs(lse) : 0;
          lse_error.add(difference(lse_[static_cast<size_t>(at)], lse) - rounding);
          lse_float_error.add(difference(float_lse, lse));
        }
      }
    }
  }
  // Outputs of the sequence that is not compared are NaN, too, but with other bits than untouched
  // elements.
  int64_t untouched = 0;
  for (int64_t i = 0; i < out_.elements; i++) {
    untouched += out_.data[static_cast<size_t>(i)] == 0xffff ? 1 : 0;
  }
  const auto json = [](double x) { return std::isfinite(x) ? x : 1e30; };
  std::printf("{\"status\":%d,\"error\":%.9g,\"excess\":%.9g,\"float_error\":%.9g,"
              "\"lse_error\":%.9g,\"lse_float_error\":%.9g,\"outside_written\":%lld}\n",
              status, json(error.value), json(excess.value), json(float_error.value),
              json(lse_error.value), json(lse_float_error.value),
              static_cast<long long>(out_.elements - untouched - written));
  std::fflush(stdout);
}

}  // namespace flash_attn_test

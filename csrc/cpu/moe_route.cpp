// Which experts a token goes to.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "cpu_executor.h"

namespace forge::cpu {

namespace {

// The recorder admits no more experts a token, and no more groups.
constexpr size_t kMostExperts = 64;
constexpr size_t kMostGroups = 32;

constexpr double kOut = -std::numeric_limits<double>::infinity();

// The first of the largest. NaN is never above.
size_t best_of(const double* worth, size_t n) {
  size_t best = 0;
  for (size_t i = 1; i < n; ++i) {
    if (worth[i] > worth[best]) best = i;
  }
  return best;
}

void fill_scores(const float* logits, uint64_t n, uint32_t kind, double* scores) {
  if (kind == FORGE_SCORES_SIGMOID) {
    for (uint64_t e = 0; e < n; ++e) scores[e] = 1.0 / (1.0 + std::exp(-double{logits[e]}));
    return;
  }
  const double largest = *std::max_element(logits, logits + n);
  double total = 0;
  for (uint64_t e = 0; e < n; ++e) total += scores[e] = std::exp(logits[e] - largest);
  for (uint64_t e = 0; e < n; ++e) scores[e] /= total;
}

// Takes the experts of all groups but the best out.
void keep_best_groups(double* worth, uint64_t n, const MoeRouteOp& op) {
  const size_t size = n / op.n_groups;
  std::array<double, kMostGroups> of_group;
  for (size_t g = 0; g < op.n_groups; ++g) {
    double first = kOut, second = kOut;
    for (size_t e = g * size; e < (g + 1) * size; ++e) {
      if (worth[e] > first) {
        second = std::exchange(first, worth[e]);
      } else if (worth[e] > second) {
        second = worth[e];
      }
    }
    of_group[g] = op.bias && size > 1 ? first + second : first;
  }
  for (uint32_t k = 0; k < op.n_groups - op.top_groups; ++k) {
    // The last of the least.
    size_t worst = 0;
    for (size_t g = 1; g < op.n_groups; ++g) {
      if (of_group[g] <= of_group[worst]) worst = g;
    }
    of_group[worst] = std::numeric_limits<double>::infinity();
    std::fill_n(worth + worst * size, size, kOut);
  }
}

}  // namespace

void CpuExecutor::prepare(const MoeRouteOp& op) {
  floats_of(op.bias);
  floats_of(op.expert_scales);
}

void CpuExecutor::execute(const MoeRouteOp& op) {
  const Matrix logits = matrix(op.logits), out = matrix(op.out);
  const float* bias = floats_of(op.bias);
  const float* factors = floats_of(op.expert_scales);
  const uint64_t n = logits.cols;
  const uint32_t top_k = op.top_k;
  // The exponentials are what costs.
  for_rows(logits.rows, 64 * n, [&](uint64_t t, uint32_t) {
    std::vector<double> scores(n), worth;
    fill_scores(logits.row(t), n, op.scores, scores.data());
    worth = scores;
    for (uint64_t e = 0; bias && e < n; ++e) worth[e] += bias[e];
    if (op.top_groups < op.n_groups) keep_best_groups(worth.data(), n, op);
    std::array<size_t, kMostExperts> chosen;
    double total = 0;
    for (uint32_t k = 0; k < top_k; ++k) {
      chosen[k] = best_of(worth.data(), n);
      worth[chosen[k]] = kOut;
      total += scores[chosen[k]];
    }
    const double factor = op.scale / (op.normalize ? total : 1.0);
    for (uint32_t k = 0; k < top_k; ++k) {
      const double weight = scores[chosen[k]] * factor;
      out.row(t)[k] = static_cast<float>(chosen[k]);
      out.row(t)[top_k + k] = static_cast<float>(factors ? weight * factors[chosen[k]] : weight);
    }
  });
}

}  // namespace forge::cpu

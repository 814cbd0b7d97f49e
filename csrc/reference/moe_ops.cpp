// Mixture of experts: routing, products with the chosen experts, and their weighted sum.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "../common/host_weight.h"
#include "executor.h"

namespace forge::reference {

namespace {

std::vector<float> floats_of(const WeightRef& weight, size_t size, float missing) {
  if (!weight) return std::vector<float>(size, missing);
  return vector_of(static_cast<const HostWeight&>(*weight));
}

std::vector<double> scores_of(const float* logits, uint64_t n, uint32_t kind) {
  std::vector<double> scores(n);
  if (kind == FORGE_SCORES_SIGMOID) {
    std::transform(logits, logits + n, scores.begin(),
                   [](float logit) { return 1.0 / (1.0 + std::exp(-double{logit})); });
    return scores;
  }
  const double largest = *std::max_element(logits, logits + n);
  double total = 0;
  for (uint64_t e = 0; e < n; ++e) total += scores[e] = std::exp(logits[e] - largest);
  for (double& score : scores) score /= total;
  return scores;
}

// Returns the probability of the first of the experts in `order`, which has the largest logit
// (sparsemixer).
double sparse_score(const float* logits, std::span<const uint32_t> order, float threshold) {
  const double best = logits[order.front()];
  double total = 0;
  for (const uint32_t e : order) {
    const double logit = logits[e];
    const double below = (best - logit) / std::max(std::abs(logit), best);
    if (!(below > threshold)) total += std::exp(logit - best);
  }
  return 1.0 / total;
}

// Returns the indices sorted by descending worth, ties to the lower index.
std::vector<uint32_t> ranked(const std::vector<double>& worth) {
  std::vector<uint32_t> order(worth.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return worth[a] > worth[b]; });
  return order;
}

// Returns, for each group of experts, true if it is among the best.
std::vector<bool> best_groups(const std::vector<double>& worth, const MoeRouteOp& op) {
  const size_t size = worth.size() / op.n_groups;
  std::vector<double> of_group;
  for (size_t begin = 0; begin < worth.size(); begin += size) {
    const std::span members(worth.data() + begin, size);
    const auto largest = std::max_element(members.begin(), members.end());
    double second = size > 1 ? -std::numeric_limits<double>::infinity() : 0;
    for (auto member = members.begin(); member != members.end(); ++member) {
      if (member != largest) second = std::max(second, *member);
    }
    of_group.push_back(op.bias ? *largest + second : *largest);
  }
  const std::vector<uint32_t> order = ranked(of_group);
  std::vector<bool> is_best(op.n_groups);
  for (uint32_t k = 0; k < op.top_groups; ++k) is_best[order[k]] = true;
  return is_best;
}

}  // namespace

void Executor::execute(const MoeRouteOp& op) {
  const Matrix logits = matrix(op.logits), out = matrix(op.out);
  const uint64_t n = logits.cols;
  const uint32_t top_k = op.top_k;
  const std::vector<float> bias = floats_of(op.bias, op.bias ? n : 0, 0.0f);
  const std::vector<float> factors = floats_of(op.expert_scales, n, 1.0f);
  for (uint64_t t = 0; t < logits.rows; ++t) {
    std::vector<double> scores = scores_of(logits.row(t), n, op.scores);
    // Logits rank as their scores do, but scores of different logits may round to the same number.
    std::vector<double> worth(logits.row(t), logits.row(t) + n);
    for (uint64_t e = 0; e < bias.size(); ++e) worth[e] = scores[e] + bias[e];
    const std::vector<bool> takes_part = best_groups(worth, op);
    std::vector<uint32_t> order = ranked(worth);
    std::stable_partition(order.begin(), order.end(), [&](uint32_t e) {
      return bool{takes_part[e / (n / op.n_groups)]};
    });
    for (uint32_t k = 0; k < top_k && op.scores == FORGE_SCORES_SPARSEMIXER; ++k) {
      scores[order[k]] = sparse_score(logits.row(t), std::span(order).subspan(k), op.threshold);
    }
    double chosen = 0;
    for (uint32_t k = 0; k < top_k; ++k) chosen += scores[order[k]];
    const double divisor = op.normalize ? chosen : 1.0;
    for (uint32_t k = 0; k < top_k; ++k) {
      const uint32_t e = order[k];
      out.row(t)[k] = static_cast<float>(e);
      out.row(t)[top_k + k] =
          static_cast<float>(scores[e] / divisor * op.scale * factors[e]);
    }
  }
}

void Executor::execute(const MoeMatmulOp& op) {
  const Matrix x = matrix(op.x), route = matrix(op.route), out = matrix(op.out);
  const auto& weight = static_cast<const HostWeight&>(*op.weight);
  const uint64_t top_k = route.cols / 2;
  const uint64_t expert_rows = weight.rows / op.n_experts;
  const bool shared_input = x.cols == weight.cols;
  std::vector<float> weight_row(weight.cols), bias_row(expert_rows);
  for (uint64_t t = 0; t < x.rows; ++t) {
    for (uint64_t k = 0; k < top_k; ++k) {
      const auto expert = static_cast<uint64_t>(route.row(t)[k]);
      const float* input = x.row(t) + (shared_input ? 0 : k * weight.cols);
      if (op.bias) static_cast<const HostWeight&>(*op.bias).read(expert, 1, bias_row.data());
      for (uint64_t r = 0; r < expert_rows; ++r) {
        weight.read(expert * expert_rows + r, 1, weight_row.data());
        double sum = op.bias ? bias_row[r] : 0.0f;
        for (uint64_t i = 0; i < weight.cols; ++i) {
          sum += static_cast<double>(input[i]) * weight_row[i];
        }
        out.row(t)[k * expert_rows + r] = static_cast<float>(sum);
      }
    }
  }
}

void Executor::execute(const MoeCombineOp& op) {
  const Matrix x = matrix(op.x), route = matrix(op.route), residual = matrix(op.residual),
               out = matrix(op.out);
  const uint64_t top_k = route.cols / 2;
  for (uint64_t t = 0; t < out.rows; ++t) {
    for (uint64_t i = 0; i < out.cols; ++i) {
      double sum = residual.data ? residual.row(t)[i] : 0.0f;
      for (uint64_t k = 0; k < top_k; ++k) {
        sum += static_cast<double>(route.row(t)[top_k + k]) * x.row(t)[k * out.cols + i];
      }
      out.row(t)[i] = static_cast<float>(sum);
    }
  }
}

}  // namespace forge::reference

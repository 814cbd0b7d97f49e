// Mixture of experts: routing, products with the chosen experts, and their weighted sum.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "../cpu_executor.h"

namespace forge::cpu {

namespace {

// Maximum experts per token and groups of experts: see MoeRouteOp.
constexpr size_t kMostExperts = 64;
constexpr size_t kMostGroups = 32;

constexpr double kOut = -std::numeric_limits<double>::infinity();

// Returns the index of the largest number, the lowest on ties. NaN is never the largest.
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

// Returns the score of the best of the experts not chosen before, whose worth is above kOut; see
// FORGE_SCORES_SPARSEMIXER in MoeRouteOp.
double sparse_score(const float* logits, const double* worth, uint64_t n, size_t best,
                    float threshold) {
  const double most = logits[best];
  double total = 0;
  for (uint64_t e = 0; e < n; ++e) {
    const double logit = logits[e];
    const bool is_far = (most - logit) / std::max(std::abs(logit), most) > threshold;
    if (worth[e] != kOut && !is_far) total += std::exp(logit - most);
  }
  return 1.0 / total;
}

// Excludes the experts of all groups but the best.
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
    // The group with the least worth, the last one on ties.
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
  // An exponential costs about 64 multiplications.
  for_rows(logits.rows, 64 * n, [&](uint64_t t, uint32_t) {
    // Logits rank as their scores do, but scores of different logits may round to the same number.
    std::vector<double> scores(n), worth(logits.row(t), logits.row(t) + n);
    fill_scores(logits.row(t), n, op.scores, scores.data());
    for (uint64_t e = 0; bias && e < n; ++e) worth[e] = scores[e] + bias[e];
    if (op.top_groups < op.n_groups) keep_best_groups(worth.data(), n, op);
    std::array<size_t, kMostExperts> chosen;
    double total = 0;
    for (uint32_t k = 0; k < top_k; ++k) {
      chosen[k] = best_of(worth.data(), n);
      if (op.scores == FORGE_SCORES_SPARSEMIXER) {
        scores[chosen[k]] =
            sparse_score(logits.row(t), worth.data(), n, chosen[k], op.threshold);
      }
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

void CpuExecutor::prepare(const MoeMatmulOp& op) {
  floats_of(op.bias);
  prepare_product(*op.weight, op.weight->rows / op.n_experts, op.x);
}

void CpuExecutor::bring_experts(PackedWeight& weight, ValueId route) {
  chosen_.clear();
  for (const ProductGroup& group : groups_) {
    if (group.n_tokens > 0) chosen_.push_back(static_cast<uint32_t>(group.group));
  }
  for (const uint32_t expert : chosen_) weight.read_ahead(expert);
  for (size_t i = op_index_ + 1; i < program_->ops.size(); ++i) {
    const auto* next = std::get_if<MoeMatmulOp>(&program_->ops[i]);
    if (!next) continue;
    if (next->route == route && packed_[i]->is_streamed()) {
      for (const uint32_t expert : chosen_) packed_[i]->read_ahead(expert);
    }
    break;
  }
  weight.bring(chosen_, *device_);
}

void CpuExecutor::execute(const MoeMatmulOp& op) {
  const Matrix x = matrix(op.x), route = matrix(op.route), out = matrix(op.out);
  const uint64_t top_k = route.cols / 2;
  const uint64_t cols = op.weight->cols, expert_rows = op.weight->rows / op.n_experts;
  const bool shared_input = x.cols == cols;

  // Sorts the tokens by expert, so that each weight is read once for all tokens that chose it.
  groups_.assign(op.n_experts, {0, nullptr, 0});
  for (uint64_t t = 0; t < route.rows; ++t) {
    for (uint64_t k = 0; k < top_k; ++k) ++groups_[static_cast<size_t>(route.row(t)[k])].n_tokens;
  }
  tokens_.resize(route.rows * top_k);
  const MatmulToken* first = tokens_.data();
  for (uint64_t expert = 0; expert < op.n_experts; ++expert) {
    groups_[expert] = {expert, first, groups_[expert].n_tokens};
    first += groups_[expert].n_tokens;
  }
  std::vector<MatmulToken*> next(op.n_experts);
  for (uint64_t expert = 0; expert < op.n_experts; ++expert) {
    next[expert] = tokens_.data() + (groups_[expert].tokens - tokens_.data());
  }
  PackedWeight& weight = *packed_[op_index_];
  if (weight.is_streamed()) bring_experts(weight, op.route);
  const Activations rows = activations(weight, op.x, cols);
  for (uint64_t t = 0; t < route.rows; ++t) {
    for (uint64_t k = 0; k < top_k; ++k) {
      const uint64_t input = shared_input ? t : t * top_k + k;  // of rows of `cols`
      *next[static_cast<size_t>(route.row(t)[k])]++ =
          rows.token(input, out.row(t) + k * expert_rows, nullptr);
    }
  }
  products_.run(weight, groups_, {floats_of(op.bias)}, *stop_);
}

void CpuExecutor::execute(const MoeCombineOp& op) {
  const Matrix x = matrix(op.x), route = matrix(op.route), residual = matrix(op.residual),
               out = matrix(op.out);
  const uint64_t top_k = route.cols / 2;
  for_rows(out.rows, x.cols, [&](uint64_t t, uint32_t) {
    if (residual.data) {
      std::memcpy(out.row(t), residual.row(t), out.cols * sizeof(float));
    } else {
      std::fill_n(out.row(t), out.cols, 0.0f);
    }
    for (uint64_t k = 0; k < top_k; ++k) {
      kernels_.add_scaled(out.row(t), x.row(t) + k * out.cols, route.row(t)[top_k + k], out.cols);
    }
  });
}

}  // namespace forge::cpu

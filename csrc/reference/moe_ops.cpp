// Mixture of experts: routing, products with the chosen experts, and their weighted sum.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "../common/host_weight.h"
#include "executor.h"

namespace forge::reference {

void Executor::execute(const MoeRouteOp& op) {
  const Matrix logits = matrix(op.logits), out = matrix(op.out);
  for (uint64_t t = 0; t < logits.rows; ++t) {
    const float* row = logits.row(t);
    const double largest = *std::max_element(row, row + logits.cols);
    std::vector<double> probability(logits.cols);
    double total = 0;
    for (uint64_t e = 0; e < logits.cols; ++e) {
      total += probability[e] = std::exp(row[e] - largest);
    }
    std::vector<uint32_t> order(logits.cols);
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return probability[a] > probability[b];
    });
    double chosen = 0;
    for (uint32_t k = 0; k < op.top_k; ++k) chosen += probability[order[k]];
    const double divisor = op.normalize ? chosen : total;
    for (uint32_t k = 0; k < op.top_k; ++k) {
      out.row(t)[k] = static_cast<float>(order[k]);
      out.row(t)[op.top_k + k] = static_cast<float>(probability[order[k]] / divisor * op.scale);
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

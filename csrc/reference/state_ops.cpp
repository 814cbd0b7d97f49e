// Gates, and operations with recurrent state.

#include <algorithm>
#include <cmath>

#include "../common/host_weight.h"
#include "executor.h"
#include "reference_state.h"

namespace forge::reference {

namespace {

std::vector<float> floats_of(const WeightRef& weight) {
  return vector_of(static_cast<const HostWeight&>(*weight));
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// log(1 + exp(x))
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

// x * factor / sqrt(sum(x^2) + eps)
std::vector<double> normalized(const float* x, uint32_t n, double eps, double factor) {
  double squares = 0;
  for (uint32_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  std::vector<double> out(x, x + n);
  for (double& value : out) value *= factor / std::sqrt(squares + eps);
  return out;
}

// Applies one token of one head: updates S[k_dim, v_dim] with k and v, and reads `out` with q.
void delta_rule(float* S, const std::vector<double>& q, const std::vector<double>& k,
                const float* v, double beta, double decay, uint32_t v_dim, float* out) {
  for (uint32_t j = 0; j < v_dim; ++j) {
    double known = 0;
    for (size_t i = 0; i < k.size(); ++i) known += k[i] * decay * S[i * v_dim + j];
    double sum = 0;
    for (size_t i = 0; i < k.size(); ++i) {
      float& s = S[i * v_dim + j];
      s = static_cast<float>(decay * s + k[i] * beta * (v[j] - known));
      sum += q[i] * s;
    }
    out[j] = static_cast<float>(sum);
  }
}

}  // namespace

void Executor::execute(const SigmoidGateOp& op) {
  const Matrix x = matrix(op.x), gate = matrix(op.gate), residual = matrix(op.residual);
  const Matrix out = matrix(op.out);
  const uint64_t group = x.cols / gate.cols;
  for (uint64_t t = 0; t < x.rows; ++t) {
    for (uint64_t i = 0; i < x.cols; ++i) {
      const double gated = sigmoid(gate.row(t)[i / group]) * x.row(t)[i];
      out.row(t)[i] = static_cast<float>(gated + (residual.data ? residual.row(t)[i] : 0.0f));
    }
  }
}

void Executor::execute(const GatedRmsNormOp& op) {
  const Matrix x = matrix(op.x), gate = matrix(op.gate), out = matrix(op.out);
  const std::vector<float> weight = floats_of(op.weight);
  const size_t width = op.weight->cols;
  for (uint64_t t = 0; t < x.rows; ++t) {
    for (uint64_t begin = 0; begin < x.cols; begin += width) {
      const float* group = x.row(t) + begin;
      const float* gains = weight.data() + begin % weight.size();
      double squares = 0;
      for (size_t i = 0; i < width; ++i) squares += static_cast<double>(group[i]) * group[i];
      const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + op.eps);
      for (size_t i = 0; i < width; ++i) {
        const double normed = group[i] * scale * gains[i];
        out.row(t)[begin + i] =
            static_cast<float>(normed * activate(op.activation, gate.row(t)[begin + i]));
      }
    }
  }
}

void Executor::execute(const CausalConv1dOp& op) {
  const Matrix x = matrix(op.x), out = matrix(op.out);
  auto& state = static_cast<ReferenceState&>(*op.state);
  const uint64_t width = op.weight->cols, before = width - 1;
  std::vector<float> weight(op.weight->rows * width);
  static_cast<const HostWeight&>(*op.weight).read(0, op.weight->rows, weight.data());
  const std::vector<float> bias = op.bias ? floats_of(op.bias) : std::vector<float>(x.cols);

  for (const StateRun& run : state_runs(*inputs_)) {
    float* kept = state.slot(run.slot);
    if (run.from_zero) std::fill(kept, kept + before * x.cols, 0.0f);
    // The rows from the slot, then those of the run.
    std::vector<float> rows(kept, kept + before * x.cols);
    rows.insert(rows.end(), x.row(run.begin), x.row(run.end));
    for (uint32_t t = 0; t < run.length(); ++t) {
      for (uint64_t c = 0; c < x.cols; ++c) {
        double sum = bias[c];
        for (uint64_t i = 0; i < width; ++i) {
          sum += static_cast<double>(weight[c * width + i]) * rows[(t + i) * x.cols + c];
        }
        out.row(run.begin + t)[c] = activate(op.activation, static_cast<float>(sum));
      }
    }
    std::copy(rows.end() - static_cast<ptrdiff_t>(before * x.cols), rows.end(), kept);
  }
}

void Executor::execute(const GatedDeltaRuleOp& op) {
  const Matrix qkv = matrix(op.qkv), ba = matrix(op.ba), out = matrix(op.out);
  auto& state = static_cast<ReferenceState&>(*op.state);
  const std::vector<float> rate = floats_of(op.rate), dt_bias = floats_of(op.dt_bias);
  const uint64_t head_size = uint64_t{op.k_dim()} * op.v_dim();
  const uint64_t k_begin = uint64_t{op.n_k_heads} * op.k_dim();

  for (const StateRun& run : state_runs(*inputs_)) {
    float* S = state.slot(run.slot);
    if (run.from_zero) std::fill(S, S + op.n_v_heads() * head_size, 0.0f);
    for (uint32_t t = run.begin; t < run.end; ++t) {
      const float* b = ba.row(t);
      const float* a = b + op.n_v_heads();
      for (uint32_t head = 0; head < op.n_v_heads(); ++head) {
        const float* q = qkv.row(t) + uint64_t{op.key_head(head)} * op.k_dim();
        const float* v = qkv.row(t) + 2 * k_begin + uint64_t{head} * op.v_dim();
        delta_rule(S + head * head_size, normalized(q, op.k_dim(), op.eps, op.scale),
                   normalized(q + k_begin, op.k_dim(), op.eps, 1), v, sigmoid(b[head]),
                   std::exp(rate[head] * softplus(static_cast<double>(a[head]) + dt_bias[head])),
                   op.v_dim(), out.row(t) + uint64_t{head} * op.v_dim());
      }
    }
  }
}

void Executor::execute(const SelectiveScanOp& op) {
  const Matrix xbc = matrix(op.xbc), dt = matrix(op.dt), gate = matrix(op.gate);
  const Matrix out = matrix(op.out);
  auto& state = static_cast<ReferenceState&>(*op.state);
  const std::vector<float> rate = floats_of(op.rate), dt_bias = floats_of(op.dt_bias);
  const std::vector<float> skip = floats_of(op.skip);
  const uint32_t d_state = op.d_state(), head_dim = op.head_dim();

  for (const StateRun& run : state_runs(*inputs_)) {
    float* slot = state.slot(run.slot);
    if (run.from_zero) std::fill(slot, slot + out.cols * d_state, 0.0f);
    for (uint32_t t = run.begin; t < run.end; ++t) {
      for (uint32_t head = 0; head < op.n_heads(); ++head) {
        const double step =
            std::clamp<double>(softplus(static_cast<double>(dt.row(t)[head]) + dt_bias[head]),
                               op.dt_min, op.dt_max);
        const double decay = std::exp(rate[head] * step);
        const float* b = xbc.row(t) + out.cols + uint64_t{op.group_of(head)} * d_state;
        const float* c = b + uint64_t{op.n_groups} * d_state;
        float* S = slot + uint64_t{head} * d_state * head_dim;
        for (uint32_t j = 0; j < head_dim; ++j) {
          const uint64_t column = uint64_t{head} * head_dim + j;
          const double x = xbc.row(t)[column];
          double sum = skip[head] * x;
          for (uint32_t i = 0; i < d_state; ++i) {
            float& s = S[uint64_t{i} * head_dim + j];
            s = static_cast<float>(decay * s + b[i] * step * x);
            sum += static_cast<double>(c[i]) * s;
          }
          if (gate.data) sum *= gate.row(t)[column] * sigmoid(gate.row(t)[column]);
          out.row(t)[column] = static_cast<float>(sum);
        }
      }
    }
  }
}

}  // namespace forge::reference

// Gates, and operations with recurrent state.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../cpu_executor.h"
#include "../caches.h"

namespace forge::cpu {

namespace {

// Number of tokens whose queries and keys are normalised at a time.
constexpr uint32_t kDeltaTokens = 64;

float sigmoid(float x) { return static_cast<float>(1.0 / (1.0 + std::exp(-double{x}))); }

// exp(rate log(1 + exp(x)))
float decay_of(float rate, double x) {
  const double softplus = x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
  return static_cast<float>(std::exp(rate * softplus));
}

// log(1 + exp(x))
float softplus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::fabs(x))); }

}  // namespace

void CpuExecutor::execute(const SigmoidGateOp& op) {
  const Matrix x = matrix(op.x), gate = matrix(op.gate), residual = matrix(op.residual);
  const Matrix out = matrix(op.out);
  const uint64_t width = x.cols / gate.cols;
  for_rows(x.rows, x.cols, [&](uint64_t t, uint32_t) {
    if (width == 1) {
      kernels_.sigmoid_gate(x.row(t), gate.row(t), x.cols, residual.row(t), out.row(t));
      return;
    }
    for (uint64_t i = 0; i < gate.cols; ++i) {
      const float factor = sigmoid(gate.row(t)[i]);
      float* to = out.row(t) + i * width;
      if (residual.data) {
        std::memcpy(to, residual.row(t) + i * width, width * sizeof(float));
        kernels_.add_scaled(to, x.row(t) + i * width, factor, width);
      } else {
        kernels_.scale(x.row(t) + i * width, width, factor, to);
      }
    }
  });
}

void CpuExecutor::prepare(const GatedRmsNormOp& op) { floats_of(op.weight); }

void CpuExecutor::execute(const GatedRmsNormOp& op) {
  const Matrix x = matrix(op.x), gate = matrix(op.gate), out = matrix(op.out);
  const float* weight = floats_of(op.weight);
  const uint64_t width = op.weight->cols, gains = op.weight->rows * width;
  for_rows(x.rows, x.cols, [&](uint64_t t, uint32_t) {
    for (uint64_t i = 0; i < x.cols; i += width) {
      kernels_.gated_rms_norm(x.row(t) + i, gate.row(t) + i, weight + i % gains, width, op.eps,
                              op.activation, out.row(t) + i);
    }
  });
}

void CpuExecutor::prepare(const CausalConv1dOp& op) {
  floats_of(op.bias);
  const float* weight = floats_of(op.weight);
  const uint64_t cols = op.weight->rows, width = op.weight->cols;
  std::vector<float>& taps = taps_[op_index_];
  taps.resize(cols * width);
  for (uint64_t c = 0; c < cols; ++c) {
    for (uint64_t tap = 0; tap < width; ++tap) taps[tap * cols + c] = weight[c * width + tap];
  }
}

void CpuExecutor::execute(const CausalConv1dOp& op) {
  const Matrix x = matrix(op.x), out = matrix(op.out);
  auto& state = static_cast<CpuState&>(*op.state);
  const float* bias = floats_of(op.bias);
  const float* taps = taps_[op_index_].data();
  const auto width = static_cast<uint32_t>(op.weight->cols);
  const uint64_t before = (width - 1) * x.cols;

  const std::vector<StateRun> runs = state_runs(*inputs_);
  const auto n_runs = static_cast<uint32_t>(runs.size());
  std::vector<uint32_t> run_of(x.rows);
  conv_rows_.resize(std::max<size_t>(conv_rows_.size(), n_runs * before));
  device_->pool.run(n_runs, [&](uint32_t i, uint32_t) {
    const StateRun& run = runs[i];
    std::fill(run_of.begin() + run.begin, run_of.begin() + run.end, i);
    float* rows = conv_rows_.data() + i * before;
    if (run.from_zero) {
      std::memset(rows, 0, before * sizeof(float));
    } else {
      state.read_rows(run.slot, rows);
    }
  });

  // Row `offset` of the rows of a run: the width - 1 rows from the slot, then those of x.
  const auto row_at = [&](uint32_t i, uint32_t offset) {
    return offset < width - 1 ? conv_rows_.data() + i * before + offset * x.cols
                              : x.row(runs[i].begin + offset - (width - 1));
  };
  for_rows(x.rows, x.cols, [&](uint64_t t, uint32_t) {
    const uint32_t i = run_of[t];
    const float* rows[kMostConvWidth];
    for (uint32_t tap = 0; tap < width; ++tap) {
      rows[tap] = row_at(i, static_cast<uint32_t>(t) - runs[i].begin + tap);
    }
    kernels_.conv1d_row(rows, taps, width, bias, x.cols, op.activation, out.row(t));
  });
  device_->pool.run(n_runs, [&](uint32_t i, uint32_t) {
    for (uint32_t row = 0; row + 1 < width; ++row) {
      state.write_row(runs[i].slot, row, row_at(i, runs[i].length() + row));
    }
  });
}

void CpuExecutor::prepare(const GatedDeltaRuleOp& op) {
  floats_of(op.rate);
  floats_of(op.dt_bias);
  const size_t floats = size_t{kDeltaTokens} * (2 * size_t{op.k_dim()} + 2);
  for (std::vector<float>& tokens : delta_tokens_) tokens.resize(std::max(tokens.size(), floats));
}

void CpuExecutor::execute(const GatedDeltaRuleOp& op) {
  const Matrix qkv = matrix(op.qkv), ba = matrix(op.ba), out = matrix(op.out);
  const auto& state = static_cast<const CpuState&>(*op.state);
  const float* rate = floats_of(op.rate);
  const float* dt_bias = floats_of(op.dt_bias);
  // The rows of one head are adjacent in every panel of the slot.
  const uint64_t n_panels = (uint64_t{op.v_dim()} + kStateColumns - 1) / kStateColumns;
  const uint64_t k_begin = uint64_t{op.n_k_heads} * op.k_dim();
  const std::vector<StateRun> runs = state_runs(*inputs_);

  const auto n_tasks = static_cast<uint32_t>(runs.size() * op.n_v_heads());
  device_->pool.run(n_tasks, [&](uint32_t task, uint32_t thread) {
    if (stop_->raised()) return;
    const StateRun& run = runs[task / op.n_v_heads()];
    const uint32_t head = task % op.n_v_heads();
    float* q = delta_tokens_[thread].data();
    float* k = q + uint64_t{kDeltaTokens} * op.k_dim();
    float* beta = k + uint64_t{kDeltaTokens} * op.k_dim();
    float* decay = beta + kDeltaTokens;
    DeltaBlock block{.state = state.slot(run.slot) + uint64_t{head} * op.k_dim() * kStateColumns,
                     .panel_stride = uint64_t{op.n_v_heads()} * op.k_dim() * kStateColumns,
                     .q = q,
                     .k = k,
                     .v = nullptr,
                     .v_stride = qkv.cols,
                     .beta = beta,
                     .decay = decay,
                     .out = nullptr,
                     .out_stride = out.cols,
                     .n_tokens = 0,
                     .k_dim = op.k_dim(),
                     .v_dim = op.v_dim()};
    if (run.from_zero) {
      for (uint64_t panel = 0; panel < n_panels; ++panel) {
        std::memset(block.state + panel * block.panel_stride, 0,
                    uint64_t{op.k_dim()} * kStateColumns * sizeof(float));
      }
    }
    for (uint32_t begin = run.begin; begin < run.end; begin += block.n_tokens) {
      block.n_tokens = std::min(kDeltaTokens, run.end - begin);
      for (uint32_t i = 0; i < block.n_tokens; ++i) {
        const float* from = qkv.row(begin + i) + uint64_t{op.key_head(head)} * op.k_dim();
        const float* gates = ba.row(begin + i) + head;
        kernels_.l2_normalize(from, op.k_dim(), op.eps, op.scale, q + uint64_t{i} * op.k_dim());
        kernels_.l2_normalize(from + k_begin, op.k_dim(), op.eps, 1, k + uint64_t{i} * op.k_dim());
        beta[i] = sigmoid(gates[0]);
        decay[i] = decay_of(rate[head], double{gates[op.n_v_heads()]} + dt_bias[head]);
      }
      block.v = qkv.row(begin) + 2 * k_begin + uint64_t{head} * op.v_dim();
      block.out = out.row(begin) + uint64_t{head} * op.v_dim();
      kernels_.delta_rule(block);
    }
  });
  stop_->check();
}

void CpuExecutor::prepare(const SelectiveScanOp& op) {
  floats_of(op.rate);
  floats_of(op.dt_bias);
  floats_of(op.skip);
}

void CpuExecutor::execute(const SelectiveScanOp& op) {
  const Matrix xbc = matrix(op.xbc), dt = matrix(op.dt), gate = matrix(op.gate);
  const Matrix out = matrix(op.out);
  const auto& state = static_cast<const CpuState&>(*op.state);
  const float *rate = floats_of(op.rate), *dt_bias = floats_of(op.dt_bias);
  const float* skip = floats_of(op.skip);
  const uint32_t n_heads = op.n_heads(), d_state = op.d_state(), head_dim = op.head_dim();
  const std::vector<StateRun> runs = state_runs(*inputs_);

  const auto n_tasks = static_cast<uint32_t>(runs.size() * n_heads);
  device_->pool.run(n_tasks, [&](uint32_t task, uint32_t) {
    if (stop_->raised()) return;
    const StateRun& run = runs[task / n_heads];
    const uint32_t head = task % n_heads;
    const uint64_t b_begin = out.cols + uint64_t{op.group_of(head)} * d_state;
    const uint64_t c_begin = b_begin + uint64_t{op.n_groups} * d_state;
    float steps[kScanTokens], decays[kScanTokens];
    ScanBlock block{.state = state.slot(run.slot) + uint64_t{head} * d_state * kStateColumns,
                    .panel_stride = uint64_t{n_heads} * d_state * kStateColumns,
                    .x = nullptr,
                    .b = nullptr,
                    .c = nullptr,
                    .stride = xbc.cols,
                    .dt = steps,
                    .decay = decays,
                    .skip = skip[head],
                    .gate = nullptr,
                    .out = nullptr,
                    .out_stride = out.cols,
                    .n_tokens = 0,
                    .d_state = d_state,
                    .head_dim = head_dim};
    if (run.from_zero) {
      float* panel = block.state;
      for (uint32_t column = 0; column < head_dim; column += kStateColumns) {
        std::memset(panel, 0, uint64_t{d_state} * kStateColumns * sizeof(float));
        panel += block.panel_stride;
      }
    }
    for (uint32_t begin = run.begin; begin < run.end; begin += block.n_tokens) {
      block.n_tokens = std::min(kScanTokens, run.end - begin);
      for (uint32_t i = 0; i < block.n_tokens; ++i) {
        const float step = softplus(dt.row(begin + i)[head] + dt_bias[head]);
        steps[i] = std::clamp(step, op.dt_min, op.dt_max);
        decays[i] = std::exp(rate[head] * steps[i]);
      }
      const uint64_t x_begin = uint64_t{head} * head_dim;
      block.x = xbc.row(begin) + x_begin;
      block.b = xbc.row(begin) + b_begin;
      block.c = xbc.row(begin) + c_begin;
      block.gate = gate.data ? gate.row(begin) + x_begin : nullptr;
      block.out = out.row(begin) + x_begin;
      kernels_.selective_scan(block);
    }
  });
  stop_->check();
}

}  // namespace forge::cpu

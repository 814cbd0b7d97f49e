// Embedding, norms, products, activations and row selection.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../common/host_weight.h"
#include "executor.h"

namespace forge::reference {

namespace {

const HostWeight& host(const WeightRef& weight) {
  return static_cast<const HostWeight&>(*weight);
}

std::vector<float> optional_vector(const WeightRef& weight, size_t size, float missing) {
  return weight ? vector_of(host(weight)) : std::vector<float>(size, missing);
}

double dot(const float* a, const float* b, uint64_t n) {
  double sum = 0;
  for (uint64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

}  // namespace

float activate(uint32_t activation, float x) {
  switch (activation) {
    case FORGE_SILU:
      return static_cast<float>(x / (1.0 + std::exp(-static_cast<double>(x))));
    case FORGE_GELU_TANH: {
      const double inner = 0.7978845608028654 * (x + 0.044715 * x * x * x);
      return static_cast<float>(0.5 * x * (1.0 + std::tanh(inner)));
    }
    case FORGE_GELU_ERF:
      return static_cast<float>(0.5 * x * (1.0 + std::erf(x * 0.7071067811865476)));
    case FORGE_RELU_SQUARED:
      return x < 0 ? 0.0f : x * x;
    default:
      return x;
  }
}

void Executor::execute(const EmbedOp& op) {
  const Matrix out = matrix(op.out);
  for (uint64_t t = 0; t < out.rows; ++t) {
    const uint64_t row = static_cast<uint64_t>(inputs_->tokens[t]) % op.weight->rows;
    host(op.weight).read(row, 1, out.row(t));
    for (uint64_t i = 0; i < out.cols; ++i) out.row(t)[i] *= op.scale;
  }
}

void Executor::execute(const AddEmbeddingOp& op) {
  const Matrix x = matrix(op.x), out = matrix(op.out);
  std::vector<float> row(out.cols);
  for (uint64_t t = 0; t < out.rows; ++t) {
    const auto token = static_cast<uint64_t>(inputs_->tokens[t]);
    const auto position = static_cast<uint64_t>(inputs_->positions[t]);
    host(op.weight).read(op.period ? token / op.period : position, 1, row.data());
    for (uint64_t i = 0; i < out.cols; ++i) out.row(t)[i] = x.row(t)[i] + row[i];
  }
}

void Executor::execute(const RmsNormOp& op) {
  const Matrix x = matrix(op.x), residual = matrix(op.residual), out = matrix(op.out);
  const std::vector<float> weight = vector_of(host(op.weight));
  const uint64_t group = op.weight->cols;
  for (uint64_t t = 0; t < x.rows; ++t) {
    for (uint64_t begin = 0; begin < x.cols; begin += group) {
      const float* in = x.row(t) + begin;
      const float* gains = weight.data() + begin % weight.size();
      const double mean_square = dot(in, in, group) / static_cast<double>(group);
      const double scale = 1.0 / std::sqrt(mean_square + op.eps);
      for (uint64_t i = 0; i < group; ++i) {
        const double normed = in[i] * scale * (gains[i] + op.weight_offset);
        const float before = residual.data ? residual.row(t)[begin + i] : 0.0f;
        out.row(t)[begin + i] = static_cast<float>(normed + before);
      }
    }
  }
}

void Executor::execute(const LayerNormOp& op) {
  const Matrix x = matrix(op.x), out = matrix(op.out);
  const std::vector<float> weight = vector_of(host(op.weight));
  const std::vector<float> bias = optional_vector(op.bias, x.cols, 0.0f);
  for (uint64_t t = 0; t < x.rows; ++t) {
    double mean = 0, variance = 0;
    for (uint64_t i = 0; i < x.cols; ++i) mean += x.row(t)[i];
    mean /= static_cast<double>(x.cols);
    for (uint64_t i = 0; i < x.cols; ++i) {
      variance += (x.row(t)[i] - mean) * (x.row(t)[i] - mean);
    }
    variance /= static_cast<double>(x.cols);
    const double scale = 1.0 / std::sqrt(variance + op.eps);
    for (uint64_t i = 0; i < x.cols; ++i) {
      out.row(t)[i] = static_cast<float>((x.row(t)[i] - mean) * scale * weight[i] + bias[i]);
    }
  }
}

void Executor::execute(const MatmulOp& op) {
  const Matrix x = matrix(op.x), residual = matrix(op.residual), out = matrix(op.out);
  const std::vector<float> bias = optional_vector(op.bias, out.cols, 0.0f);
  std::vector<float> weight_row(x.cols);
  for (uint64_t r = 0; r < out.cols; ++r) {
    host(op.weight).read(r, 1, weight_row.data());
    for (uint64_t t = 0; t < x.rows; ++t) {
      const auto product = static_cast<float>(dot(x.row(t), weight_row.data(), x.cols) + bias[r]);
      const float value = op.alpha * activate(op.activation, product);
      out.row(t)[r] = value + (residual.data ? residual.row(t)[r] : 0.0f);
    }
  }
}

void Executor::execute(const HeadMatmulOp& op) {
  const Matrix x = matrix(op.x), out = matrix(op.out);
  const uint64_t cols = op.weight->cols, head_rows = op.weight->rows / op.n_heads;
  std::vector<float> weight_row(cols);
  for (uint64_t r = 0; r < out.cols; ++r) {
    host(op.weight).read(r, 1, weight_row.data());
    const uint64_t head = r / head_rows;
    for (uint64_t t = 0; t < x.rows; ++t) {
      out.row(t)[r] = static_cast<float>(dot(x.row(t) + head * cols, weight_row.data(), cols));
    }
  }
}

void Executor::execute(const LoraOp& op) {
  const Matrix y = matrix(op.y), x = matrix(op.x), out = matrix(op.out);
  const Matrix residual = matrix(op.residual), route = matrix(op.route);
  const std::vector<float> a = vector_of(host(op.a)), b = vector_of(host(op.b));
  const std::vector<float> ranks = vector_of(host(op.ranks));
  const uint64_t n_results = program_->results_a_row(op);
  const uint64_t x_cols = op.a->cols, cols = out.cols / n_results;
  std::vector<double> sums(cols);
  for (uint64_t t = 0; t < x.rows; ++t) {
    const float* scales = inputs_->scales_of(program_->value(op.x).rows, t);
    for (uint64_t k = 0; k < n_results; ++k) {
      const uint64_t block = route.data ? static_cast<uint64_t>(route.row(t)[k]) : k;
      const float* row = x.row(t) + (x.cols == x_cols ? 0 : k * x_cols);
      std::copy_n(y.row(t) + k * cols, cols, sums.begin());
      for (uint64_t r = 0; r < op.ranks->rows; ++r) {
        const float scale = scales[static_cast<size_t>(ranks[3 * r])];
        if (scale == 0) continue;
        const double product =
            scale * dot(a.data() + (block * op.a_step() + r) * x_cols, row, x_cols);
        const float* b_row = b.data() + (block * op.b_step() + r) * op.b->cols;
        const auto first = static_cast<uint64_t>(ranks[3 * r + 1]);
        const auto width = static_cast<uint64_t>(ranks[3 * r + 2]);
        for (uint64_t i = 0; i < width; ++i) sums[first + i] += product * b_row[i];
      }
      for (uint64_t i = 0; i < cols; ++i) {
        const uint64_t at = k * cols + i;
        const float value = op.alpha * activate(op.activation, static_cast<float>(sums[i]));
        out.row(t)[at] = value + (residual.data ? residual.row(t)[at] : 0.0f);
      }
    }
  }
}

void Executor::execute(const GatherColumnsOp& op) {
  const Matrix out = matrix(op.out);
  for (uint64_t t = 0; t < out.rows; ++t) {
    float* to = out.row(t);
    for (uint64_t group = 0; group < op.n_groups; ++group) {
      for (const Piece& piece : op.pieces) {
        if (piece.value == 0) continue;
        const float* from = matrix(piece.value).row(t) + piece.first + group * piece.step;
        for (uint32_t i = 0; i < piece.width; ++i) *to++ = piece.scale * from[i];
      }
    }
  }
}

void Executor::execute(const PermuteColumnsOp& op) {
  const Matrix x = matrix(op.x), route = matrix(op.route), out = matrix(op.out);
  const std::vector<float> order = vector_of(host(op.order));
  const uint64_t cols = op.order->cols;
  for (uint64_t t = 0; t < out.rows; ++t) {
    for (uint64_t i = 0; i < out.cols; ++i) {
      const uint64_t k = i / cols;
      const auto expert = static_cast<uint64_t>(route.data ? route.row(t)[k] : 0.0f);
      const auto column = static_cast<uint64_t>(order[expert * cols + i % cols]);
      out.row(t)[i] = x.row(t)[(x.cols == cols ? 0 : k * cols) + column];
    }
  }
}

float gated_unit(uint32_t unit, float gate, float up) {
  if (unit != FORGE_CLAMPED_SWIGLU) return activate(unit, gate) * up;
  // NaN fails the comparisons and passes through.
  const double g = gate > 7 ? 7 : gate, u = up > 7 ? 7 : up < -7 ? -7 : up;
  return static_cast<float>((u + 1) * g / (1.0 + std::exp(-1.702 * g)));
}

void Executor::execute(const GluOp& op) {
  const Matrix x = matrix(op.x), out = matrix(op.out);
  const uint64_t width = op.width;
  for (uint64_t t = 0; t < x.rows; ++t) {
    for (uint64_t i = 0; i < out.cols; ++i) {
      const float* group = x.row(t) + i / width * 2 * width;
      const uint64_t j = i % width;
      out.row(t)[i] = gated_unit(op.unit, group[j], group[width + j]);
    }
  }
}

void Executor::execute(const GatherOutputsOp& op) {
  const Matrix x = matrix(op.x), out = matrix(op.out);
  for (uint64_t o = 0; o < out.rows; ++o) {
    const auto from = static_cast<uint64_t>(inputs_->output_rows[o]);
    std::memcpy(out.row(o), x.row(from), x.cols * sizeof(float));
  }
}

void Executor::execute(const SoftcapOp& op) {
  const Matrix x = matrix(op.x), out = matrix(op.out);
  for (uint64_t i = 0; i < x.rows * x.cols; ++i) {
    out.data[i] = op.cap * std::tanh(x.data[i] / op.cap);
  }
}

void Executor::execute(const AllReduceOp& op) { exchange(op); }
void Executor::execute(const SendOp& op) { exchange(op); }
void Executor::execute(const ReceiveOp& op) { exchange(op); }

void Executor::execute(const ClampOp& op) {
  const Matrix x = matrix(op.x), out = matrix(op.out);
  for (uint64_t i = 0; i < x.rows * x.cols; ++i) {
    out.data[i] = std::clamp(x.data[i], -op.limit, op.limit);
  }
}

void Executor::execute(const XieluOp& op) {
  const Matrix in = matrix(op.x), out = matrix(op.out);
  for (uint64_t i = 0; i < in.rows * in.cols; ++i) {
    const double x = in.data[i];
    const double bent = x > 0 ? op.alpha_p * x * x
                              : op.alpha_n * (std::expm1(std::min<double>(x, op.eps)) - x);
    out.data[i] = static_cast<float>(bent + op.beta * x);
  }
}

}  // namespace forge::reference

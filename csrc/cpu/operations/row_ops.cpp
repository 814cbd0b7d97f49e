// Operations on one row of activations at a time.

#include <algorithm>
#include <array>
#include <cstring>
#include <tuple>

#include "../cpu_executor.h"

namespace forge::cpu {

void CpuExecutor::execute(const EmbedOp& op) {
  const Matrix out = matrix(op.out);
  const auto& weight = static_cast<const CpuWeight&>(*op.weight);
  for_rows(out.rows, out.cols, [&](uint64_t t, uint32_t) {
    weight.read(static_cast<uint64_t>(inputs_->tokens[t]) % weight.rows, 1, out.row(t));
    if (op.scale != 1.0f) kernels_.scale(out.row(t), out.cols, op.scale, out.row(t));
  });
}

void CpuExecutor::execute(const AddEmbeddingOp& op) {
  const Matrix x = matrix(op.x), out = matrix(op.out);
  const auto& weight = static_cast<const CpuWeight&>(*op.weight);
  for_rows(out.rows, out.cols, [&](uint64_t t, uint32_t) {
    const auto token = static_cast<uint64_t>(inputs_->tokens[t]);
    const auto position = static_cast<uint64_t>(inputs_->positions[t]);
    weight.read(op.period ? token / op.period : position, 1, out.row(t));
    kernels_.add_scaled(out.row(t), x.row(t), 1.0f, out.cols);
  });
}

void CpuExecutor::prepare(const RmsNormOp& op) {
  floats_of(op.weight);
  reserve_row(program_->value(op.out).cols);
}

void CpuExecutor::execute(const RmsNormOp& op) {
  const Matrix x = matrix(op.x), residual = matrix(op.residual);
  const float* weight = floats_of(op.weight);
  const uint64_t group = op.weight->cols, gains = op.weight->rows * group;
  for_rows(x.rows, x.cols, [&](uint64_t t, uint32_t thread) {
    write_row(op.out, t, thread, [&](float* out) {
      for (uint64_t i = 0; i < x.cols; i += group) {
        kernels_.rms_norm(x.row(t) + i, weight + i % gains, group, op.eps, op.weight_offset,
                          residual.data ? residual.row(t) + i : nullptr, out + i);
      }
    });
  });
}

void CpuExecutor::prepare(const LayerNormOp& op) {
  floats_of(op.weight);
  floats_of(op.bias);
  reserve_row(program_->value(op.out).cols);
}

void CpuExecutor::execute(const LayerNormOp& op) {
  const Matrix x = matrix(op.x);
  const float* weight = floats_of(op.weight);
  const float* bias = floats_of(op.bias);
  for_rows(x.rows, x.cols, [&](uint64_t t, uint32_t thread) {
    write_row(op.out, t, thread, [&](float* out) {
      kernels_.layer_norm(x.row(t), weight, bias, x.cols, op.eps, out);
    });
  });
}

void CpuExecutor::prepare(const GluOp& op) { reserve_row(program_->value(op.out).cols); }

void CpuExecutor::execute(const GluOp& op) {
  if (gated_units_[op_index_ - 1] == &op) return;  // computed with the product before it
  const Matrix x = matrix(op.x);
  const uint64_t width = op.width;
  for_rows(x.rows, x.cols, [&](uint64_t t, uint32_t thread) {
    write_row(op.out, t, thread, [&](float* out) {
      for (uint64_t i = 0; i < x.cols / 2; i += width) {
        const float* gate = x.row(t) + 2 * i;
        kernels_.glu(gate, gate + width, width, op.unit, out + i);
      }
    });
  });
}

void CpuExecutor::execute(const GatherColumnsOp& op) {
  std::array<Matrix, kMaxPieces> from;
  std::ranges::transform(op.pieces, from.begin(),
                         [&](const Piece& piece) { return matrix(piece.value); });
  const Matrix out = matrix(op.out);
  for_rows(out.rows, out.cols, [&](uint64_t t, uint32_t) {
    float* to = out.row(t);
    for (uint64_t group = 0; group < op.n_groups; ++group) {
      for (size_t p = 0; p < from.size(); ++p) {
        const auto& [value, width, first, step, scale] = op.pieces[p];
        if (value == 0) continue;
        const float* in = from[p].row(t) + first + group * step;
        if (scale == 1.0f) {
          std::memcpy(to, in, width * sizeof(float));
        } else {
          kernels_.scale(in, width, scale, to);
        }
        to += width;
      }
    }
  });
}

void CpuExecutor::prepare(const PermuteColumnsOp& op) { floats_of(op.order); }

void CpuExecutor::execute(const PermuteColumnsOp& op) {
  const Matrix x = matrix(op.x), route = matrix(op.route), out = matrix(op.out);
  const uint64_t cols = op.order->cols;
  const float* orders = floats_of(op.order);
  for_rows(out.rows, out.cols, [&](uint64_t t, uint32_t) {
    for (uint64_t k = 0; k < out.cols / cols; ++k) {
      const auto expert = static_cast<uint64_t>(route.data ? route.row(t)[k] : 0.0f);
      const float* order = orders + expert * cols;
      const float* from = x.row(t) + (x.cols == cols ? 0 : k * cols);
      float* to = out.row(t) + k * cols;
      for (uint64_t i = 0; i < cols; ++i) to[i] = from[static_cast<int32_t>(order[i])];
    }
  });
}

void CpuExecutor::execute(const AllReduceOp& op) { exchange(op); }
void CpuExecutor::execute(const SendOp& op) { exchange(op); }
void CpuExecutor::execute(const ReceiveOp& op) { exchange(op); }

void CpuExecutor::execute(const GatherOutputsOp& op) {
  const Matrix x = matrix(op.x), out = matrix(op.out);
  for_rows(out.rows, out.cols, [&](uint64_t o, uint32_t) {
    const auto from = static_cast<uint64_t>(inputs_->output_rows[o]);
    std::memcpy(out.row(o), x.row(from), x.cols * sizeof(float));
  });
}

template <class Op, class Kernel>
void CpuExecutor::map_rows(const Op& op, Kernel* kernel) {
  const Matrix x = matrix(op.x), out = matrix(op.out);
  op.with_operands([&](const Input&, auto... numbers) {
    for_rows(x.rows, x.cols, [&](uint64_t t, uint32_t) {
      kernel(x.row(t), x.cols, numbers..., out.row(t));
    });
  });
}

#define KERNEL(...)
#define MAP_KERNEL(Op, kernel, parameters) \
  void CpuExecutor::execute(const Op& op) { map_rows(op, kernels_.kernel); }
#include "../kernel_list.h"
#undef KERNEL

void CpuExecutor::execute(const SampleOp& op) {
  const Matrix logits = matrix(op.logits);
  inputs_->masks_ready.wait();
  device_->pool.run(static_cast<uint32_t>(logits.rows), [&](uint32_t o, uint32_t thread) {
    if (!stop_->raised()) sampling_.choose(*inputs_, o, logits.row(o), *results_, thread);
  });
  stop_->check();
}

}  // namespace forge::cpu

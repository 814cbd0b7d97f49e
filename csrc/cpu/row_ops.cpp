// Operations on one row of activations at a time.

#include <cstring>

#include "cpu_executor.h"

namespace forge::cpu {

void CpuExecutor::execute(const EmbedOp& op) {
  const Matrix out = matrix(op.out);
  const auto& weight = static_cast<const CpuWeight&>(*op.weight);
  for_rows(out.rows, out.cols, [&](uint64_t t, uint32_t) {
    weight.read(static_cast<uint64_t>(inputs_->tokens[t]), 1, out.row(t));
    if (op.scale != 1.0f) kernels_.scale(out.row(t), out.cols, op.scale, out.row(t));
  });
}

void CpuExecutor::prepare(const RmsNormOp& op) {
  floats_of(op.weight);
  reserve_row(program_->value(op.out).cols);
}

void CpuExecutor::execute(const RmsNormOp& op) {
  const Matrix x = matrix(op.x), residual = matrix(op.residual);
  const float* weight = floats_of(op.weight);
  for_rows(x.rows, x.cols, [&](uint64_t t, uint32_t thread) {
    write_row(op.out, t, thread, [&](float* out) {
      kernels_.rms_norm(x.row(t), weight, x.cols, op.eps, op.weight_offset, residual.row(t), out);
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
  if (gated_units_[op_index_ - 1] == &op) return;  // the product before it did this as well
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

void CpuExecutor::execute(const GatherOutputsOp& op) {
  const Matrix x = matrix(op.x), out = matrix(op.out);
  for_rows(out.rows, out.cols, [&](uint64_t o, uint32_t) {
    const auto from = static_cast<uint64_t>(inputs_->output_rows[o]);
    std::memcpy(out.row(o), x.row(from), x.cols * sizeof(float));
  });
}

void CpuExecutor::execute(const SoftcapOp& op) {
  const Matrix x = matrix(op.x), out = matrix(op.out);
  for_rows(x.rows, x.cols, [&](uint64_t t, uint32_t) {
    kernels_.softcap(x.row(t), x.cols, op.cap, out.row(t));
  });
}

void CpuExecutor::execute(const SampleOp& op) {
  const Matrix logits = matrix(op.logits);
  inputs_->masks_ready.wait();
  device_->pool.run(static_cast<uint32_t>(logits.rows), [&](uint32_t o, uint32_t thread) {
    if (!stop_->raised()) sampling_.choose(*inputs_, o, logits.row(o), *results_, thread);
  });
  stop_->check();
}

}  // namespace forge::cpu

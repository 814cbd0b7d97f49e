#pragma once

#include <optional>

#include "../../../../kernels/metal/arguments.h"
#include "../../metal_registry.h"
#include "../operations.h"

namespace kernel_test {

// In place of a missing optional buffer.
constexpr const void* kNothing = nullptr;

// Launches a kernel by its name with its buffers in order, then its struct of scalars. A missing
// optional buffer is replaced by an inaccessible address.
void launch_metal(const std::string& name, const emulator::MetalLaunch& shape,
                  std::vector<const void*> buffers, const void* scalars, size_t scalar_bytes);
template <class Args, class... Pointers>
void launch_metal(const std::string& name, const emulator::MetalLaunch& shape, const Args& args,
                  Pointers... pointers) {
  launch_metal(name, shape, {static_cast<const void*>(pointers)...}, &args, sizeof(Args));
}

// Rows that a SIMD group of matvec computes together.
u32 simdgroup_rows(const DeviceWeight& weight);
metal_args::MatvecArgs matvec_args(const DeviceWeight& weight, u32 out_stride, u32 split,
                                   const Epilogue& epilogue);

// A weight in up to three pieces in memory: a third of its rows each, if it has so many.
class WeightPieces {
 public:
  explicit WeightPieces(const DeviceWeight& weight);

  metal_args::MatvecArgs in(metal_args::MatvecArgs args) const;
  // Null for a missing piece.
  const u8* data(u32 piece) const {
    if (!pieces_.empty()) return pieces_[piece].data();
    return piece == 0 ? whole_ : nullptr;
  }

 private:
  const u8* whole_;
  std::vector<Buffer<u8>> pieces_;
  u32 begins_[2];
};

// Rows as gemm reads them: in F16 with factors, or in F32.
class GemmRows {
 public:
  GemmRows(const DeviceWeight& weight, const float* x, u32 max_rows, u32 pieces,
           const u32* n_rows, const u32* row_list = nullptr);

  const void* x() const { return rounded_ ? static_cast<const void*>(rounded_->data()) : x_; }
  const float* factors() const { return factors_ ? factors_->data() : nullptr; }

 private:
  const float* x_;
  std::optional<Buffer<u16>> rounded_;
  std::optional<Buffer<float>> factors_;
};

// Groups the experts of the tokens of a list, or of the first tokens without a list.
void launch_moe_group(const PairGroups& op, const u32* row_list);

}  // namespace kernel_test

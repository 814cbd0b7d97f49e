#pragma once

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

// Groups the experts of the tokens of a list, or of the first tokens without a list.
void launch_moe_group(const PairGroups& op, const u32* row_list);

}  // namespace kernel_test

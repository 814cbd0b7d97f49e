#include "launch.h"

namespace kernel_test {

// In the layout of the file.
PlacedRows place_rows(const WeightKind&, const std::vector<u8>& raw, u32 rows, u32) {
  Buffer<u8> data(raw.size());
  std::memcpy(data.data(), raw.data(), raw.size());
  return {raw.size() / rows, std::move(data)};
}

WeightPieces::WeightPieces(const DeviceWeight& weight)
    : whole_(weight.data.data()), begins_{weight.rows, weight.rows} {
  // Weights whose rows are spread over gigabytes stay whole.
  const u32 each = weight.rows / 3;
  if (each == 0 || weight.data.size() > 1 << 28) return;
  begins_[0] = each;
  begins_[1] = 2 * each;
  for (u32 piece = 0; piece < 3; ++piece) {
    const u32 first = piece * each, end = piece == 2 ? weight.rows : first + each;
    pieces_.emplace_back(u64(end - first) * weight.row_stride);
    std::memcpy(pieces_.back().data(), whole_ + first * weight.row_stride, pieces_.back().size());
  }
}

metal_args::MatvecArgs WeightPieces::in(metal_args::MatvecArgs args) const {
  args.second_row = begins_[0];
  args.third_row = begins_[1];
  return args;
}

}  // namespace kernel_test

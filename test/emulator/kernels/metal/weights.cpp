#include "../weights.h"

namespace kernel_test {

// In the layout of the file.
PlacedRows place_rows(const WeightKind&, const std::vector<u8>& raw, u32 rows, u32) {
  Buffer<u8> data(raw.size());
  std::memcpy(data.data(), raw.data(), raw.size());
  return {raw.size() / rows, std::move(data)};
}

}  // namespace kernel_test

#pragma once

#include <optional>

#include "../common/host_weight.h"
#include "../common/program.h"
#include "buffer.h"

namespace forge::metal {

// Pieces of a weight in memory that one product reads.
constexpr size_t kMostPieces = 3;

// Consecutive rows of a weight of one type, in the layout of the file.
struct WeightRows {
  WeightType type;
  uint64_t first_row;
  uint64_t rows;
  uint64_t row_bytes;
  std::shared_ptr<const Buffer> buffer;
  uint64_t offset;  // of the first row in the buffer

  Place place() const { return buffer ? buffer->at(offset) : Place{}; }
};

// A weight. It stays in host memory until a step that uses it is compiled. `WeightStore` then maps
// or copies it for the GPU in the forms that the step's operations read.
class MetalWeight : public HostWeight {
 public:
  explicit MetalWeight(WeightSource source) : HostWeight(std::move(source)) {}

  // For products: every row in its own type. Empty until a step requests it.
  mutable std::vector<WeightRows> matrix;
  // For kernels that read one type: one piece, in F32 if the types of the parts differ.
  mutable std::optional<WeightRows> unified;
  // Floats: norms, biases, frequencies.
  mutable std::shared_ptr<const Buffer> floats;
};

inline const MetalWeight& metal_weight(const Weight& weight) {
  return static_cast<const MetalWeight&>(weight);
}

// Address of the floats of an optional vector weight, or null.
inline Place floats_of(const WeightRef& weight) {
  return weight && metal_weight(*weight).floats ? metal_weight(*weight).floats->at() : Place{};
}

}  // namespace forge::metal

#pragma once

#include <optional>

#include "../common/host_weight.h"
#include "../common/program.h"
#include "buffer.h"

namespace forge::metal {

// Rows of one type of a weight, one after another as in their file.
struct WeightRows {
  WeightType type;
  uint64_t first_row;
  uint64_t rows;
  uint64_t row_bytes;
  std::shared_ptr<const Buffer> buffer;
  uint64_t offset;  // of the first row in the buffer

  Place place() const { return buffer ? buffer->at(offset) : Place{}; }
};

// A weight, which stays where it came from until a step that uses it is compiled. `WeightStore`
// then gives it to the device in the form that the step's operations read, where it can without a
// copy.
class MetalWeight : public HostWeight {
 public:
  explicit MetalWeight(WeightSource source) : HostWeight(std::move(source)) {}

  // As products read it: every row in its own type. Empty until a step asks for it.
  mutable std::vector<WeightRows> matrix;
  // As kernels read it that cannot tell rows apart: in one piece of one type, which is F32 where
  // the types of the parts differ.
  mutable std::optional<WeightRows> unified;
  // As floats: norms, biases, frequencies.
  mutable std::shared_ptr<const Buffer> floats;
};

inline const MetalWeight& metal_weight(const Weight& weight) {
  return static_cast<const MetalWeight&>(weight);
}

// The floats of an optional vector weight on the device, or no place.
inline Place floats_of(const WeightRef& weight) {
  return weight && metal_weight(*weight).floats ? metal_weight(*weight).floats->at() : Place{};
}

}  // namespace forge::metal

#pragma once

#include "../common/host_weight.h"
#include "../common/program.h"
#include "memory.h"
#include "weight_layout.h"

namespace forge::cuda {

// Rows of one type of a weight on the device.
struct DevicePart {
  WeightType type;
  uint64_t first_row;
  uint64_t rows;
  uint64_t row_bytes;  // from one row to the next
  uint64_t offset;     // of the first row in the weight's memory
};

// A weight. It stays in host memory until a step that uses it is compiled; `WeightStore` then
// copies it to the device in the forms that the step's operations read.
class CudaWeight : public HostWeight {
 public:
  explicit CudaWeight(WeightSource source);

  // Layout of the rows in `matrix`.
  const std::vector<DevicePart>& device_parts() const { return device_parts_; }
  uint64_t matrix_bytes() const { return matrix_bytes_; }
  // True if all rows have the same type.
  bool is_uniform() const { return device_parts_.size() == 1; }

  // For products: every part in its own type.
  mutable DeviceBuffer matrix;
  // For kernels that need all rows in one type: F32. Empty if the parts have the same type; those
  // kernels then read `matrix`.
  mutable DeviceBuffer unified;
  // Floats without padding: norms, biases, frequencies.
  mutable DeviceBuffer floats;

 private:
  std::vector<DevicePart> device_parts_;
  uint64_t matrix_bytes_ = 0;
};

// A weight in one type.
struct UnifiedWeight {
  WeightType type;
  DevicePointer data;
  uint64_t row_bytes;
};

inline UnifiedWeight unified(const CudaWeight& weight) {
  const DevicePart& part = weight.device_parts()[0];
  if (weight.is_uniform()) return {part.type, weight.matrix.at(), part.row_bytes};
  const uint64_t row_bytes = device_row_bytes(WeightType::F32, weight.cols);
  return {WeightType::F32, weight.unified.at(), row_bytes};
}

inline const CudaWeight& cuda_weight(const Weight& weight) {
  return static_cast<const CudaWeight&>(weight);
}

// Address of the floats of an optional vector weight, or 0.
inline DevicePointer floats_of(const WeightRef& weight) {
  return weight ? cuda_weight(*weight).floats.at() : 0;
}

}  // namespace forge::cuda

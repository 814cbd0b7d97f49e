#pragma once

#include "backend.h"

namespace forge {

// A weight that is used where it lies in host memory, in the layout of its file.
struct HostWeight : Weight {
  explicit HostWeight(WeightSource source);

  // The part that holds a row, and the row's index inside it.
  struct Location {
    const WeightPart* part;
    uint64_t row;
  };
  Location locate(uint64_t row) const;

  // Dequantises rows into out[n_rows, cols].
  void read(uint64_t first_row, uint64_t n_rows, float* out) const;

  std::vector<WeightPart> parts;
};

// The floats of a vector weight (one row), dequantised.
std::vector<float> vector_of(const HostWeight& weight);

}  // namespace forge

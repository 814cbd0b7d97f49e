#pragma once

#include "backend.h"

namespace forge {

// A weight in host memory, in the layout of its file.
struct HostWeight : Weight {
  explicit HostWeight(WeightSource source);

  // The part that contains a row, and the index of the row in the part.
  struct Location {
    const WeightPart* part;
    uint64_t row;
  };
  Location locate(uint64_t row) const;

  // Dequantises rows into out[n_rows, cols].
  void read(uint64_t first_row, uint64_t n_rows, float* out) const;

  std::vector<WeightPart> parts;
};

// Returns all values of a weight as floats, row by row.
std::vector<float> vector_of(const HostWeight& weight);

}  // namespace forge

#pragma once

#include <cstdint>
#include <span>

namespace forge {

// Makes the rows of a weight that lies in a file in some other form. Its methods are called from
// any thread, several at a time.
class RowSource {
 public:
  virtual ~RowSource() = default;
  // Writes rows, in the block format of the part that has this source, to `out`.
  virtual void make(uint64_t first_row, uint64_t n_rows, uint8_t* out) const = 0;
  // What of a file nothing but these rows is made of; empty where others are made of it too.
  virtual std::span<const uint8_t> made_of(uint64_t first_row, uint64_t n_rows) const = 0;
};

}  // namespace forge

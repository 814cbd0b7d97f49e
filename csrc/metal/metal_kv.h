#pragma once

#include "../../kernels/metal/arguments.h"
#include "../common/backend.h"
#include "buffer.h"

namespace forge::metal {

// The pages of one layer. Memory is taken when the first step that uses them is compiled, which knows
// all that the model needs.
class MetalKv : public KvCache {
 public:
  MetalKv(const KvShape& cache_shape, std::shared_ptr<const Device> device);

  void copy_page(uint32_t from, uint32_t to) override;
  void read_page(uint32_t page, uint8_t* data) const override;
  void write_page(uint32_t page, const uint8_t* data) override;

  bool is_allocated() const { return static_cast<bool>(memory_); }
  // Takes the memory, filled with zeros, unless it is there already.
  void allocate() const;
  // What kernels take.
  const metal_args::KvPages& pages() const { return pages_; }
  Place memory() const { return memory_.at(); }
  // The kernels' name of the element type: "float", "f16", "bf16" or "q8".
  const char* element() const;

 private:
  Place page(uint32_t index) const { return memory_.at(index * page_bytes); }
  // A page in memory that the CPU sees.
  Buffer staging() const;

  std::shared_ptr<const Device> device_;
  metal_args::KvPages pages_{};
  mutable Buffer memory_;
};

}  // namespace forge::metal

#pragma once

#include "../common/backend.h"
#include "kernel_types.h"
#include "memory.h"

namespace forge::cuda {

// The pages of one layer. Memory is taken when the first step that
// uses them is compiled, which knows all that the model needs.
class CudaKv : public KvCache {
 public:
  CudaKv(const KvShape& cache_shape, std::shared_ptr<DeviceState> state);

  void copy_page(uint32_t from, uint32_t to) override;
  void read_page(uint32_t page, uint8_t* data) const override;
  void write_page(uint32_t page, const uint8_t* data) override;

  uint64_t bytes() const { return page_bytes * shape.n_pages; }
  bool is_allocated() const { return static_cast<bool>(memory_); }
  // Takes the memory, filled with zeros, unless it is there already.
  void allocate() const;
  // What kernels take.
  KvPages pages() const;
  // The kernels' name of the element type: "float", "f16", "bf16" or "q8".
  const char* element() const;

 private:
  DevicePointer page(uint32_t index) const { return memory_.at(index * page_bytes); }

  std::shared_ptr<DeviceState> state_;
  KvPages layout_{};
  mutable DeviceBuffer memory_;
};

}  // namespace forge::cuda

#pragma once

#include "../common/program.h"
#include "../gpu/device_kv.h"
#include "kernel_types.h"
#include "memory.h"

namespace forge::cuda {

class CudaKv : public DeviceKv {
 public:
  CudaKv(const KvShape& cache_shape, std::shared_ptr<DeviceState> state);

  void copy_page(uint32_t from, uint32_t to) override;
  void read_page(uint32_t page, uint8_t* data) const override;
  void write_page(uint32_t page, const uint8_t* data) override;

  bool is_allocated() const override { return static_cast<bool>(memory_); }
  void allocate() const override;
  // What kernels take.
  KvPages pages() const;

 private:
  DevicePointer page(uint32_t index) const { return memory_.at(index * page_bytes); }

  std::shared_ptr<DeviceState> state_;
  mutable DeviceBuffer memory_;
};

inline const CudaKv& cuda_kv(const KvRef& kv) { return static_cast<const CudaKv&>(*kv); }

}  // namespace forge::cuda

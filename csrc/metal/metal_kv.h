#pragma once

#include "../../kernels/metal/arguments.h"
#include "../common/program.h"
#include "../gpu/device_kv.h"
#include "buffer.h"

namespace forge::metal {

class MetalKv : public DeviceKv {
 public:
  MetalKv(const KvShape& cache_shape, std::shared_ptr<const Device> device);

  void copy_page(uint32_t from, uint32_t to) override;
  void read_page(uint32_t page, uint8_t* data) const override;
  void write_page(uint32_t page, const uint8_t* data) override;

  bool is_allocated() const override { return static_cast<bool>(memory_); }
  void allocate() const override;
  // What kernels take.
  metal_args::KvPages pages() const;
  Place memory() const { return memory_.at(); }

 private:
  Place page(uint32_t index) const { return memory_.at(index * page_bytes); }

  std::shared_ptr<const Device> device_;
  mutable Buffer memory_;
};

inline const MetalKv& metal_kv(const KvRef& kv) { return static_cast<const MetalKv&>(*kv); }

}  // namespace forge::metal

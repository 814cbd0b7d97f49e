#pragma once

#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "../gpu/launch_geometry.h"
#include "device.h"
#include "kernels.h"

namespace forge::cuda {

// Maximum number of blocks along y and z of a grid.
constexpr uint32_t kMostGridRows = 65535;

// One launch of a kernel with its parameters.
class Launch {
 public:
  // A kernel that takes its addresses and scalars as one struct (kernels/arguments).
  Launch(const Kernel& kernel, const Geometry& geometry, std::span<const DevicePointer> buffers,
         std::span<const uint8_t> scalars);

  // A kernel that takes device addresses, uint32_t, uint64_t, float and the structs of
  // kernels/arguments/cuda_arguments.h, in the order of its declaration.
  template <class... Parameters>
  Launch(const Kernel& kernel, Grid grid, uint32_t block, uint32_t shared_bytes,
         const Parameters&... parameters)
      : kernel_(&kernel), grid_(grid), block_(block), shared_bytes_(shared_bytes) {
    offsets_.reserve(sizeof...(parameters));
    (add(parameters), ...);
  }

  // Launches all blocks at once, or none: they wait for each other.
  void keep_blocks() { keeps_blocks_ = true; }

  // Compares the parameters with those of the loaded kernel, if the driver reports them.
  void verify(const Device& device) const;
  // `follows_kernel`: true if the previous work on the stream is a kernel. Only then may the launch
  // start early: kernels wait for the previous kernel (wait_for_previous_kernel), not for copies.
  void enqueue(const Device& device, bool follows_kernel) const;
  // As in "matvec<FormatQ8_0, 1>".
  const std::string& name() const { return kernel_->instance; }
  const Kernel& kernel() const { return *kernel_; }
  Grid grid() const { return grid_; }
  uint32_t block() const { return block_; }
  uint32_t shared_bytes() const { return shared_bytes_; }
  // All of them, each aligned to 8 bytes.
  std::span<const uint8_t> parameters() const { return storage_; }

 private:
  template <class T>
  void add(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> &&
                      (std::is_class_v<T> || std::is_same_v<T, uint32_t> ||
                       std::is_same_v<T, uint64_t> || std::is_same_v<T, float>),
                  "kernels take addresses, u32, u64, float and structs");
    // The driver reads each in place; 8 bytes align any of them.
    const size_t at = (storage_.size() + 7) / 8 * 8;
    storage_.resize(at + sizeof(T));
    std::memcpy(storage_.data() + at, &value, sizeof(T));
    offsets_.push_back(static_cast<uint32_t>(at));
    sizes_.push_back(static_cast<uint32_t>(sizeof(T)));
  }

  Result launch_with(int attribute, const Device& device, void** parameters) const;

  const Kernel* kernel_;
  Grid grid_;
  uint32_t block_;
  uint32_t shared_bytes_;
  bool keeps_blocks_ = false;
  std::vector<uint32_t> offsets_, sizes_;  // of the parameters in storage_
  std::vector<uint8_t> storage_;
};

}  // namespace forge::cuda

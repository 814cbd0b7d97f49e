#pragma once

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <vector>

#include "../gpu/launch_geometry.h"
#include "buffer.h"
#include "kernels.h"

namespace forge::metal {

// One launch of a kernel: its buffers, by index, then its struct of scalars
// (kernels/metal/arguments.h).
class Launch {
 public:
  template <class Arguments>
  Launch(const Kernel& kernel, Grid grid, Group group, std::initializer_list<Place> buffers,
         const Arguments& arguments)
      : kernel_(&kernel), grid_(grid), group_(group), buffers_(buffers) {
    static_assert(std::is_trivially_copyable_v<Arguments>);
    // Limit of setBytes.
    static_assert(sizeof(Arguments) <= 4096);
    scalars_.resize(sizeof(Arguments));
    std::memcpy(scalars_.data(), &arguments, sizeof(Arguments));
  }

  Launch(const Kernel& kernel, const Geometry& geometry, std::span<const Place> buffers,
         std::span<const uint8_t> scalars)
      : kernel_(&kernel),
        grid_(geometry.grid),
        group_(geometry.group),
        buffers_(buffers.begin(), buffers.end()),
        scalars_(scalars.begin(), scalars.end()) {}

  const Kernel& kernel() const { return *kernel_; }
  Grid grid() const { return grid_; }
  Group group() const { return group_; }
  const std::vector<Place>& buffers() const { return buffers_; }
  const std::vector<uint8_t>& scalars() const { return scalars_; }
  // The length to set for threadgroup memory at index 0: in units of 16 bytes, and at least one
  // unit, since it is set for every kernel.
  uint64_t set_threadgroup_bytes() const {
    return padded_to(std::max<uint64_t>(group_.memory, 1), 16);
  }

  // Throws FORGE_UNSUPPORTED if the device cannot run a threadgroup of this size.
  void verify(const DeviceProperties& device) const;

 private:
  const Kernel* kernel_;
  Grid grid_;
  Group group_;
  std::vector<Place> buffers_;
  std::vector<uint8_t> scalars_;
};

}  // namespace forge::metal

#include "launch.h"

#include "../common/error.h"

namespace forge::metal {

void Launch::verify(const DeviceProperties& device) const {
  if (group_.threads > kernel_->max_threads) {
    fail(FORGE_UNSUPPORTED, kernel_->name, " needs ", group_.threads,
         " threads a threadgroup, of which ", device.name, " runs ", kernel_->max_threads);
  }
  const uint64_t bytes = set_threadgroup_bytes() + kernel_->static_threadgroup_bytes;
  if (bytes > device.max_threadgroup_bytes) {
    fail(FORGE_UNSUPPORTED, kernel_->name, " needs ", bytes,
         " bytes of threadgroup memory, of which ", device.name, " has ",
         device.max_threadgroup_bytes);
  }
}

}  // namespace forge::metal

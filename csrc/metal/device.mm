#include "device.h"

#include "../common/error.h"
#include "../gpu/environment.h"
#include "apple.h"

namespace forge::metal {

namespace {

DeviceProperties properties_of(id<MTLDevice> device) {
  return {.name = [[device name] UTF8String],
          .memory_bytes = [device recommendedMaxWorkingSetSize],
          .max_buffer_bytes = [device maxBufferLength],
          .max_threadgroup_bytes = [device maxThreadgroupMemoryLength]};
}

// True if the device has the features that the kernels use. Virtual machines of macOS have a GPU of
// the family Apple5.
bool is_usable(id<MTLDevice> device) { return [device supportsFamily:MTLGPUFamilyApple7]; }

}  // namespace

std::optional<DeviceProperties> usable_device() {
  const AutoreleasePool pool;
  const Object object(MTLCreateSystemDefaultDevice());
  id<MTLDevice> device = static_cast<id<MTLDevice>>(object.get());
  if (!device || !is_usable(device)) return std::nullopt;
  return properties_of(device);
}

Device::Device() {
  const AutoreleasePool pool;
  device_ = Object(MTLCreateSystemDefaultDevice());
  if (!device_) {
    fail(FORGE_DEVICE_FAILED, "Metal has no device here; it needs a Mac with Apple silicon");
  }
  id<MTLDevice> device = static_cast<id<MTLDevice>>(device_.get());
  properties_ = properties_of(device);
  if (!is_usable(device)) {
    fail(FORGE_UNSUPPORTED, properties_.name,
         " is not of the GPU family Apple7; forge needs the GPU of an M1 or newer");
  }
  queue_ = Object([device newCommandQueue]);
  if (!queue_) fail(FORGE_DEVICE_FAILED, properties_.name, " gives no command queue");
  residency_ = std::make_unique<Residency>(handle(), queue());
  is_debugged_ = is_turned_on("FORGE_DEBUG");
  // Otherwise Metal compiles kernels with few threads, however many ask for it.
  if (@available(macOS 13.3, *)) [device setShouldMaximizeConcurrentCompilation:YES];
}

uint64_t Device::free_bytes() const {
  const AutoreleasePool pool;
  const uint64_t taken = [static_cast<id<MTLDevice>>(handle()) currentAllocatedSize];
  return taken < properties_.memory_bytes ? properties_.memory_bytes - taken : 0;
}

DeviceRoom Device::room() const {
  return {"the GPU (" + properties_.name + ")", free_bytes(), properties_.memory_bytes};
}

}  // namespace forge::metal

#include "launch.h"

#include <array>

namespace forge::cuda {

Launch::Launch(const Kernel& kernel, const Geometry& geometry,
               std::span<const DevicePointer> buffers, std::span<const uint8_t> scalars)
    : kernel_(&kernel),
      grid_(geometry.grid),
      block_(geometry.group.threads),
      shared_bytes_(static_cast<uint32_t>(geometry.group.memory)),
      offsets_{0} {
  // A struct of addresses has a multiple of 8 bytes.
  storage_.resize(padded_to(buffers.size_bytes() + scalars.size(), alignof(DevicePointer)));
  std::memcpy(storage_.data(), buffers.data(), buffers.size_bytes());
  std::memcpy(storage_.data() + buffers.size_bytes(), scalars.data(), scalars.size());
  sizes_ = {static_cast<uint32_t>(storage_.size())};
}

void Launch::verify(const Device& device) const {
  const auto info = device.api().parameter_info;
  if (!info) return;
  size_t offset = 0, bytes = 0, count = 0;
  while (info(kernel_->function, count, &offset, &bytes) == kSuccess) {
    if (count >= sizes_.size() || sizes_[count] != bytes) break;
    ++count;
  }
  const bool has_more = info(kernel_->function, count, &offset, &bytes) == kSuccess;
  if (has_more || count != sizes_.size()) {
    fail(FORGE_INTERNAL, kernel_->instance,
         " takes other parameters than it is given, from number ", count, " on");
  }
}

Result Launch::launch_with(int id, const Device& device, void** parameters) const {
  LaunchAttribute attribute{};
  attribute.id = id;
  attribute.value = 1;
  const LaunchConfig config = {grid_.x, grid_.y, grid_.z,         block_,     1,
                               1,       shared_bytes_, device.stream(), &attribute, 1};
  return device.api().launch_with(&config, kernel_->function, parameters, nullptr);
}

void Launch::enqueue(const Device& device, bool follows_kernel) const {
  std::array<void*, 32> pointers;
  if (offsets_.size() > pointers.size() || !kernel_->function) {
    fail(FORGE_INTERNAL, kernel_->instance, " cannot be launched");
  }
  for (size_t i = 0; i < offsets_.size(); ++i) {
    pointers[i] = const_cast<uint8_t*>(storage_.data() + offsets_[i]);
  }
  // Every kernel but step_kernel waits for the previous one (prelude.cuh).
  const bool is_early = device.overlaps_kernels() && follows_kernel && !keeps_blocks_;
  const Result result =
      is_early || keeps_blocks_
          ? launch_with(is_early ? kProgrammaticSerialization : kCooperative, device,
                        pointers.data())
          : device.api().launch(kernel_->function, grid_.x, grid_.y, grid_.z, block_, 1, 1,
                                shared_bytes_, device.stream(), pointers.data(), nullptr);
  device.check(result, "launching ", kernel_->instance);
  if (device.is_synchronous()) device.synchronize("running " + kernel_->instance);
}

}  // namespace forge::cuda

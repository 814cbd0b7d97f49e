#include "cache_memory.h"

#include "transfers.h"

namespace forge::metal {

void CacheMemory::allocate() const {
  if (buffer_) return;
  Buffer buffer(device_, bytes_, Purpose::kv_cache, Storage::gpu_only);
  fill_with_zeros(*device_, buffer, ("clearing " + name_).c_str());
  buffer_ = std::move(buffer);
}

void CacheMemory::copy(uint64_t to, uint64_t from, uint64_t bytes) const {
  const std::lock_guard lock(device_->mutex());
  allocate();
  copy_on_gpu(*device_, buffer_.at(to), buffer_.at(from), bytes, ("copying " + name_).c_str());
}

void CacheMemory::read(uint8_t* to, uint64_t from, uint64_t bytes) const {
  const std::lock_guard lock(device_->mutex());
  allocate();
  read_from_gpu(device_, to, buffer_.at(from), bytes, ("reading " + name_).c_str());
}

void CacheMemory::write(uint64_t to, const uint8_t* from, uint64_t bytes) const {
  const std::lock_guard lock(device_->mutex());
  allocate();
  write_to_gpu(device_, buffer_.at(to), from, bytes, ("writing " + name_).c_str());
}

}  // namespace forge::metal

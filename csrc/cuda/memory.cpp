#include "memory.h"

#include <utility>

namespace forge::cuda {

DeviceRoom DeviceState::room() const {
  const DeviceProperties& properties = device.properties();
  return {"CUDA device " + std::to_string(properties.index) + " (" + properties.name + ")",
          device.free_bytes(), properties.memory_bytes};
}

DeviceBuffer::DeviceBuffer(std::shared_ptr<DeviceState> state, uint64_t bytes, Purpose purpose)
    : state_(std::move(state)), bytes_(bytes), purpose_(purpose) {
  if (bytes == 0) return;
  const Device& device = state_->device;
  const DeviceScope scope(device);
  const DeviceRoom room = state_->room();
  if (bytes > room.free_bytes) fail_out_of_memory(room, state_->ledger, bytes, purpose);
  const Result result = device.api().memory_alloc(&pointer_, bytes);
  // Free memory may be in pieces, or another process was faster.
  if (result == kOutOfMemory) fail_out_of_memory(room, state_->ledger, bytes, purpose);
  device.check(result, "cuMemAlloc of ", bytes, " bytes");
  state_->ledger.add(purpose, static_cast<int64_t>(bytes));
}

DeviceBuffer::~DeviceBuffer() {
  if (pointer_ == 0) return;
  const DeviceScope scope(state_->device);
  state_->device.api().memory_free(pointer_);
  state_->ledger.add(purpose_, -static_cast<int64_t>(bytes_));
}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(state_, other.state_);
  std::swap(pointer_, other.pointer_);
  std::swap(bytes_, other.bytes_);
  std::swap(purpose_, other.purpose_);
  return *this;
}

PinnedBuffer::PinnedBuffer(std::shared_ptr<DeviceState> state, uint64_t bytes)
    : state_(std::move(state)), bytes_(bytes) {
  const Device& device = state_->device;
  const DeviceScope scope(device);
  void* pointer = nullptr;
  const Result result = device.api().host_alloc(&pointer, bytes, kHostAllocPortable);
  if (result == kOutOfMemory) {
    fail(FORGE_OUT_OF_MEMORY, "no ", size_text(bytes), " of host memory can be pinned");
  }
  device.check(result, "cuMemHostAlloc of ", bytes, " bytes");
  data_ = static_cast<uint8_t*>(pointer);
}

PinnedBuffer::~PinnedBuffer() {
  if (!data_) return;
  const DeviceScope scope(state_->device);
  state_->device.api().host_free(data_);
}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(state_, other.state_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace forge::cuda

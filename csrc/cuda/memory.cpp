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
  // Free memory may be fragmented, or another process allocated it first.
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

void InputArea::allocate(uint64_t bytes) {
  host_ = PinnedBuffer(state_, bytes);
  // Frees the old memory first.
  device_ = DeviceBuffer();
  device_ = DeviceBuffer(state_, bytes, Purpose::activations);
}

void InputArea::send(uint64_t bytes) const {
  const auto& device = state_->device;
  device.check(device.api().copy_to_device(at(), host(), bytes, device.stream()),
               "copying the step's inputs");
}

void InputArea::send_rows(uint64_t pitch, uint64_t width, uint64_t n_rows) const {
  Copy2D copy{};
  copy.src_type = kMemoryTypeHost;
  copy.src_host = host();
  copy.src_pitch = copy.dst_pitch = pitch;
  copy.dst_type = kMemoryTypeDevice;
  copy.dst_device = at();
  copy.width_bytes = width;
  copy.height = n_rows;
  const auto& device = state_->device;
  device.check(device.api().copy_2d(&copy, device.stream()), "copying page tables");
}

}  // namespace forge::cuda

#include "memory.h"

#include <cstdio>
#include <utility>

namespace forge::cuda {

namespace {

const char* name_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::weights:
      return "weights";
    case Purpose::kv_cache:
      return "KV cache";
    case Purpose::activations:
      return "activations";
  }
  return "";
}

const char* advice_for(Purpose purpose) {
  switch (purpose) {
    case Purpose::weights:
      return "a smaller quantisation of the model takes less";
    case Purpose::kv_cache:
      return "a shorter context takes less";
    case Purpose::activations:
      return "a shorter context leaves more";
  }
  return "";
}

[[noreturn]] void fail_out_of_memory(const DeviceState& state, uint64_t bytes, Purpose purpose,
                                     uint64_t free) {
  std::string held;
  for (const Purpose each : {Purpose::weights, Purpose::kv_cache, Purpose::activations}) {
    const uint64_t taken = state.ledger.bytes(each);
    if (taken == 0) continue;
    held += std::string(held.empty() ? "" : ", ") + name_of(each) + " " + size_text(taken);
  }
  const DeviceProperties& properties = state.device.properties();
  fail(FORGE_OUT_OF_MEMORY, "CUDA device ", properties.index, " (", properties.name, "): ",
       size_text(bytes), " more for ", name_of(purpose), " do not fit: ", size_text(free), " of ",
       size_text(properties.memory_bytes), " are free", held.empty() ? "" : "; forge holds ", held,
       "; ", advice_for(purpose));
}

}  // namespace

std::string size_text(uint64_t bytes) {
  const char* unit = bytes >= 1u << 30 ? "GiB" : bytes >= 1u << 20 ? "MiB" : "KiB";
  const double scale = bytes >= 1u << 30 ? 0x1p-30 : bytes >= 1u << 20 ? 0x1p-20 : 0x1p-10;
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %s", static_cast<double>(bytes) * scale, unit);
  return text;
}

DeviceBuffer::DeviceBuffer(std::shared_ptr<DeviceState> state, uint64_t bytes, Purpose purpose)
    : state_(std::move(state)), bytes_(bytes), purpose_(purpose) {
  if (bytes == 0) return;
  const Device& device = state_->device;
  const DeviceScope scope(device);
  const uint64_t free = device.free_bytes();
  if (bytes > free) fail_out_of_memory(*state_, bytes, purpose, free);
  const Result result = device.api().memory_alloc(&pointer_, bytes);
  // Free memory may be in pieces, or another process was faster.
  if (result == kOutOfMemory) fail_out_of_memory(*state_, bytes, purpose, free);
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

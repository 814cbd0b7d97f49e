#include "buffer.h"

#include "../common/error.h"
#include "apple.h"

namespace forge::metal {

Buffer::Buffer(std::shared_ptr<const Device> device, uint64_t bytes, Purpose purpose,
               Storage storage)
    : device_(std::move(device)), bytes_(bytes), purpose_(purpose) {
  if (bytes == 0) return;
  const AutoreleasePool pool;
  const DeviceRoom room = device_->room();
  if (bytes > room.free_bytes) fail_out_of_memory(room, device_->ledger(), bytes, purpose);
  const uint64_t longest = device_->properties().max_buffer_bytes;
  if (bytes > longest) {
    fail(FORGE_OUT_OF_MEMORY, room.device, ": ", size_text(bytes),
         " are wanted in one piece, and a buffer holds ", size_text(longest), " at most");
  }
  const bool is_shared = storage == Storage::shared || device_->is_debugged();
  const NSUInteger options =
      is_shared ? MTLResourceStorageModeShared : MTLResourceStorageModePrivate;
  id<MTLBuffer> buffer =
      [static_cast<id<MTLDevice>>(device_->handle()) newBufferWithLength:bytes options:options];
  // Other programs use the same memory.
  if (!buffer) fail_out_of_memory(room, device_->ledger(), bytes, purpose);
  object_ = Object(buffer);
  device_->residency().add(buffer);
  if (is_shared) data_ = static_cast<uint8_t*>([buffer contents]);
  device_->ledger().add(purpose, static_cast<int64_t>(bytes));
}

Buffer::Buffer(std::shared_ptr<const Device> device, const uint8_t* pages, uint64_t bytes,
               std::shared_ptr<const void> owner)
    : device_(std::move(device)),
      owner_(std::move(owner)),
      bytes_(bytes),
      purpose_(Purpose::weights) {
  const AutoreleasePool pool;
  // Metal declares the pages writable; kernels only read them.
  id<MTLBuffer> buffer = [static_cast<id<MTLDevice>>(device_->handle())
      newBufferWithBytesNoCopy:const_cast<uint8_t*>(pages)
                        length:bytes
                       options:MTLResourceStorageModeShared
                   deallocator:nullptr];
  if (!buffer) {
    fail(FORGE_OUT_OF_MEMORY, "Metal cannot map ", size_text(bytes), " of weights");
  }
  object_ = Object(buffer);
  device_->residency().add(buffer);
  device_->ledger().add(purpose_, static_cast<int64_t>(bytes));
}

Buffer::~Buffer() {
  if (!object_) return;
  device_->ledger().add(purpose_, -static_cast<int64_t>(bytes_));
  const AutoreleasePool pool;
  device_->residency().remove(object_.get());
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(owner_, other.owner_);
  std::swap(object_, other.object_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(purpose_, other.purpose_);
  return *this;
}

}  // namespace forge::metal

// Device memory, pinned memory and copies.

#include <cstdlib>
#include <cstring>

#include "exports.h"
#include "launch_log.h"
#include "options.h"

using namespace fake_driver;

namespace {

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

bool is_pinned(const ContextState& context, const void* data, size_t bytes) {
  const auto* begin = static_cast<const char*>(data);
  for (const auto& [start, size] : context.pinned) {
    const auto* pinned = static_cast<const char*>(start);
    if (begin < pinned || begin >= pinned + size) continue;
    if (bytes > size - static_cast<size_t>(begin - pinned)) {
      misuse("a copy of %zu bytes passes the end of a pinned buffer of %zu", bytes, size);
    }
    return true;
  }
  return false;
}

// Memory is checked again when the copy runs, since it may have been freed in the meantime.
Work checked_copy(ContextState& context, DevicePointer to, DevicePointer from, void* host_to,
                  const void* host_from, size_t bytes) {
  return [&context, to, from, host_to, host_from, bytes] {
    if (to) context.memory.check(to, bytes, "a copy to the device");
    if (from) context.memory.check(from, bytes, "a copy from the device");
    if (is_dry_run()) {
      if (host_to) std::memset(host_to, 0, bytes);
      return;
    }
    std::memmove(to ? pointer(to) : host_to, from ? pointer(from) : host_from, bytes);
  };
}

// A copy from unpinned memory: the data is read before the call returns.
Work copy_of_snapshot(ContextState& context, DevicePointer to, const void* from, size_t bytes) {
  const auto* begin = static_cast<const char*>(from);
  return [&context, to, data = std::string(begin, begin + bytes)] {
    context.memory.check(to, data.size(), "a copy to the device");
    std::memcpy(pointer(to), data.data(), data.size());
  };
}

void to_device(ContextState& context, StreamQueue& queue, DevicePointer to, const void* from,
               size_t bytes) {
  if (is_dry_run()) return;
  if (is_pinned(context, from, bytes)) {
    queue.add(checked_copy(context, to, 0, nullptr, from, bytes));
  } else {
    if (queue.capture) misuse("a copy from memory that is not pinned is captured");
    queue.add(copy_of_snapshot(context, to, from, bytes));
  }
}

}  // namespace

Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  return with_context([&](ContextState& context) {
    *total = options().memory_mib << 20;
    *free = *total - context.memory.used();
    return kSuccess;
  });
}

Result cuMemAlloc_v2(DevicePointer* address, size_t bytes) {
  return with_context([&](ContextState& context) {
    for (const StreamQueue* stream : context.streams) {
      if (stream->capture) return kCaptureUnsupported;
    }
    if (is_failing(context, ++context.allocations, options().fail_allocation)) return kOutOfMemory;
    *address = context.memory.allocate(bytes);
    return *address ? kSuccess : kOutOfMemory;
  });
}

Result cuMemFree_v2(DevicePointer address) {
  return with_context([&](ContextState& context) {
    // Freeing waits for the device.
    for (StreamQueue* stream : context.streams) stream->run_all();
    context.memory.free(address);
    return kSuccess;
  });
}

Result cuMemHostAlloc(void** address, size_t bytes, unsigned) {
  return with_context([&](ContextState& context) {
    if (bytes == 0) misuse("cuMemHostAlloc of 0 bytes");
    *address = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!*address) return kOutOfMemory;
    std::memset(*address, 0xff, bytes);
    context.pinned[*address] = bytes;
    return kSuccess;
  });
}

Result cuMemFreeHost(void* address) {
  return with_context([&](ContextState& context) {
    if (context.pinned.erase(address) == 0) misuse("cuMemFreeHost of memory that is not pinned");
    for (StreamQueue* stream : context.streams) stream->run_all();
    std::free(address);
    return kSuccess;
  });
}

Result cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from, size_t bytes, Stream stream) {
  return with_context([&](ContextState& context) {
    if (bytes == 0 || !from) misuse("an empty copy to the device");
    context.memory.check(to, bytes, "a copy to the device");
    to_device(context, stream_of(context, stream), to, from, bytes);
    return kSuccess;
  });
}

Result cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, size_t bytes, Stream stream) {
  return with_context([&](ContextState& context) {
    if (bytes == 0 || !to) misuse("an empty copy from the device");
    context.memory.check(from, bytes, "a copy from the device");
    is_pinned(context, to, bytes);
    stream_of(context, stream).add(checked_copy(context, 0, from, to, nullptr, bytes));
    return kSuccess;
  });
}

Result cuMemcpyDtoDAsync_v2(DevicePointer to, DevicePointer from, size_t bytes, Stream stream) {
  return with_context([&](ContextState& context) {
    context.memory.check(to, bytes, "a copy on the device");
    context.memory.check(from, bytes, "a copy on the device");
    stream_of(context, stream).add(checked_copy(context, to, from, nullptr, nullptr, bytes));
    return kSuccess;
  });
}

Result cuMemcpy2DAsync_v2(const Copy2D* copy, Stream stream) {
  return with_context([&](ContextState& context) {
    if (copy->src_type != kMemoryTypeHost || copy->dst_type != kMemoryTypeDevice) {
      misuse("a 2D copy in a direction that forge does not use");
    }
    if (copy->width_bytes > copy->src_pitch || copy->width_bytes > copy->dst_pitch) {
      return kInvalidValue;
    }
    StreamQueue& queue = stream_of(context, stream);
    for (size_t row = 0; row < copy->height; ++row) {
      const auto* from = static_cast<const char*>(copy->src_host) + row * copy->src_pitch;
      const DevicePointer to = copy->dst_device + row * copy->dst_pitch;
      context.memory.check(to, copy->width_bytes, "a row of a 2D copy");
      to_device(context, queue, to, from, copy->width_bytes);
    }
    return kSuccess;
  });
}

Result cuMemsetD8Async(DevicePointer to, unsigned char value, size_t bytes, Stream stream) {
  return with_context([&](ContextState& context) {
    context.memory.check(to, bytes, "cuMemsetD8");
    stream_of(context, stream).add([&context, to, value, bytes] {
      context.memory.check(to, bytes, "cuMemsetD8");
      if (!is_dry_run()) std::memset(pointer(to), value, bytes);
    });
    return kSuccess;
  });
}

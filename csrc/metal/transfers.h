#pragma once

// Transfers to and from memory that only the GPU can access, complete on return. Callers hold the
// device's mutex; offsets and sizes are multiples of 4 bytes; `what` names the work in errors.

#include <memory>

#include "buffer.h"

namespace forge::metal {

void fill_with_zeros(const Device& device, const Buffer& buffer, const char* what);
void copy_on_gpu(const Device& device, Place to, Place from, uint64_t bytes, const char* what);
// Through a shared buffer.
void read_from_gpu(const std::shared_ptr<const Device>& device, void* to, Place from,
                   uint64_t bytes, const char* what);
void write_to_gpu(const std::shared_ptr<const Device>& device, Place to, const void* from,
                  uint64_t bytes, const char* what);

}  // namespace forge::metal

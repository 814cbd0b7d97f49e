#include "transfers.h"

#include <cstring>

#include "commands.h"

namespace forge::metal {

void fill_with_zeros(const Device& device, const Buffer& buffer, const char* what) {
  Commands commands(device);
  commands.clear(buffer.at(), buffer.bytes());
  commands.commit();
  commands.wait(what);
}

void copy_on_gpu(const Device& device, Place to, Place from, uint64_t bytes, const char* what) {
  Commands commands(device);
  commands.copy(to, from, bytes);
  commands.commit();
  commands.wait(what);
}

void read_from_gpu(const std::shared_ptr<const Device>& device, void* to, Place from,
                   uint64_t bytes, const char* what) {
  const Buffer host(device, bytes, Purpose::activations, Storage::shared);
  copy_on_gpu(*device, host.at(), from, bytes, what);
  std::memcpy(to, host.data(), bytes);
}

void write_to_gpu(const std::shared_ptr<const Device>& device, Place to, const void* from,
                  uint64_t bytes, const char* what) {
  const Buffer host(device, bytes, Purpose::activations, Storage::shared);
  std::memcpy(host.data(), from, bytes);
  copy_on_gpu(*device, to, host.at(), bytes, what);
}

}  // namespace forge::metal

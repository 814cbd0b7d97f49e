// Calls on a GPU: copies the host memory of a case to the device and back. FORGE_FLASH_ATTN names
// the library.

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "../../../csrc/cuda/memory.h"
#include "../emulated/case_call.h"

namespace flash_attn_test {

namespace {

using namespace forge::cuda;

class Library {
 public:
  Library() {
    const char *path = std::getenv("FORGE_FLASH_ATTN");
    handle_ = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (!handle_) throw std::runtime_error("FORGE_FLASH_ATTN names no library");
    load(workspace_size, "flash_attn_workspace_size");
    load(functions[FLASH_ATTN_FWD], "flash_attn_fwd");
    load(functions[FLASH_ATTN_VARLEN_FWD], "flash_attn_varlen_fwd");
    load(functions[FLASH_ATTN_DECODE], "flash_attn_decode");
  }

  decltype(&flash_attn_workspace_size) workspace_size = nullptr;
  decltype(&flash_attn_fwd) functions[3] = {};

 private:
  template <class Function>
  void load(Function &function, const char *symbol) {
    function = reinterpret_cast<Function>(dlsym(handle_, symbol));
    if (!function) throw std::runtime_error(std::string("the library has no ") + symbol);
  }
  void *handle_;
};

struct Gpu {
  std::shared_ptr<DeviceState> state = std::make_shared<DeviceState>(0);
  Library library;
};

Gpu &gpu() {
  static Gpu *const opened = new Gpu;  // never closed
  return *opened;
}

DeviceBuffer buffer_of(size_t bytes) {
  return DeviceBuffer(gpu().state, std::max<size_t>(bytes, 16), forge::Purpose::activations);
}

// An array of the call, kept on the device for the lifetime of this object.
class DeviceArray {
 public:
  explicit DeviceArray(const CallArray &array) : array_(array), memory_(buffer_of(array.bytes)) {
    std::memcpy(&host_, array.member, sizeof host_);
    const Device &device = gpu().state->device;
    if (array.bytes > 0) {
      device.check(device.api().copy_to_device(memory_.at(), host_, array.bytes, device.stream()),
                   "copying to the device");
    }
    const DevicePointer address = memory_.at();
    std::memcpy(array.member, &address, sizeof address);
  }
  DeviceArray(DeviceArray &&) = default;

  void finish() {
    const Device &device = gpu().state->device;
    if (array_.is_result && array_.bytes > 0) {
      device.check(device.api().copy_to_host(host_, memory_.at(), array_.bytes, device.stream()),
                   "copying from the device");
      device.synchronize("copying from the device");
    }
    std::memcpy(array_.member, &host_, sizeof host_);
  }

 private:
  CallArray array_;
  DeviceBuffer memory_;
  void *host_ = nullptr;
};

}  // namespace

flash_attn_status call_library(const CaseShape &shape, uint32_t function, flash_attn_params &params,
                               const std::vector<CallArray> &arrays) {
  const Device &device = gpu().state->device;
  const DeviceScope scope(device);
  // A device of SM90 runs either kernel.
  if (shape.capability < 90) params.flags |= FLASH_ATTN_FORCE_SM80;
  params.stream = device.stream();
  std::vector<DeviceArray> copies;
  for (const CallArray &array : arrays) {
    void *host = nullptr;
    std::memcpy(&host, array.member, sizeof host);
    if (host) copies.emplace_back(array);
  }
  uint64_t bytes = 0;
  const Library &library = gpu().library;
  flash_attn_status status = library.workspace_size(function, &params, &bytes);
  if (status == FLASH_ATTN_OK) {
    const DeviceBuffer workspace = buffer_of(bytes);
    device.check(device.api().fill_bytes(workspace.at(), 0xff, workspace.bytes(), device.stream()),
                 "filling the workspace");
    params.workspace = reinterpret_cast<void *>(workspace.at());
    params.workspace_size = bytes;
    // An emulated library does not wait for the stream.
    device.synchronize("copying to the device");
    status = library.functions[function](&params);
    device.synchronize("running the kernels");
  }
  for (DeviceArray &copy : copies) copy.finish();
  return status;
}

}  // namespace flash_attn_test

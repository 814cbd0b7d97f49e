// Runs the tests' kernels on a GPU, compiled and launched by csrc/cuda. Buffers are pinned host
// memory, which the device accesses at the same addresses.

#include <map>
#include <thread>

#include "../../../../csrc/cuda/kernels.h"
#include "../../../../csrc/gpu/kernel_sources.h"
#include "../support.h"

namespace kernel_test {

namespace {

using namespace forge::cuda;
using forge::KernelSource;
using forge::kernel_sources;

class Gpu {
 public:
  Gpu() {
    const std::string opening = "\nINSTANCE(";
    for (const KernelSource& source : kernel_sources()) {
      const std::string text = source.text;
      for (size_t at = text.find(opening); at != std::string::npos; at = text.find(opening, at)) {
        at += opening.size();
        if (std::string(source.name).starts_with("wgmma_") && !has_wgmma()) continue;
        files_.emplace(text.substr(at, text.find(")\n", at) - at), source.name);
      }
    }
  }

  bool has_wgmma() const { return device().properties().architecture == 90; }

  const std::map<std::string, const char*>& files() const { return files_; }
  const Device& device() const { return state_->device; }

  void load_all() {
    for (const auto& [name, file] : files_) kernels_.get(file, name);
    kernels_.load();
  }

  Function function(const std::string& name) {
    const auto file = files_.find(name);
    if (file == files_.end()) fail_test("there is no kernel %s", name.c_str());
    const Kernel& kernel = kernels_.get(file->second, name);
    kernels_.load();
    return kernel.function;
  }

 private:
  std::shared_ptr<DeviceState> state_ = std::make_shared<DeviceState>(0);
  Kernels kernels_{state_, std::max(1u, std::thread::hardware_concurrency())};
  std::map<std::string, const char*> files_;  // by the names of their kernels
};

// Never destroyed, since buffers in static memory outlive it.
Gpu& gpu() {
  static Gpu* const opened = new Gpu;
  return *opened;
}

void check_parameters(const std::string& name, Function function,
                      const std::vector<size_t>& param_bytes) {
  const auto info = gpu().device().api().parameter_info;
  if (!info) return;  // not supported by drivers before CUDA 12.4
  size_t offset = 0, bytes = 0;
  for (size_t i = 0; i < param_bytes.size(); ++i) {
    if (info(function, i, &offset, &bytes) != kSuccess || bytes != param_bytes[i]) {
      fail_test("parameter %zu of %s has another size", i, name.c_str());
    }
  }
  if (info(function, param_bytes.size(), &offset, &bytes) == kSuccess) {
    fail_test("%s takes more parameters", name.c_str());
  }
}

}  // namespace

void* allocate(size_t bytes) {
  const Device& device = gpu().device();
  const DeviceScope scope(device);
  void* memory = nullptr;
  device.check(device.api().host_alloc(&memory, std::max<size_t>(bytes, 1), kHostAllocPortable),
               "cuMemHostAlloc");
  return memory;
}

void release(void* memory) {
  const DeviceScope scope(gpu().device());
  gpu().device().api().host_free(memory);
}

// Pinned memory cannot be sparse.
void* reserve(size_t) { return nullptr; }

void run_kernel(const std::string& name, const emulator::Launch& shape,
                const std::vector<size_t>& param_bytes, void** params) {
  const Function function = gpu().function(name);
  check_parameters(name, function, param_bytes);
  const Device& device = gpu().device();
  const DeviceScope scope(device);
  device.check(device.api().launch(function, shape.grid.x, shape.grid.y, shape.grid.z,
                                   shape.block.x, shape.block.y, shape.block.z,
                                   static_cast<unsigned>(shape.dynamic_shared), device.stream(),
                                   params, nullptr),
               "launching ", name);
  device.synchronize("running " + name);
}

bool run_step_kernel(const std::vector<std::string>&, const emulator::Launch&,
                     const std::vector<size_t>&, void**) {
  return false;
}

bool describe_tensor(TensorMap& map, const void* data, const uint64_t (&sizes)[4],
                     const uint64_t (&strides)[3], uint32_t box_rows) {
  if (!gpu().has_wgmma()) return false;
  const uint32_t box[] = {64, box_rows, 1, 1}, steps[] = {1, 1, 1, 1};
  const Device& device = gpu().device();
  const DeviceScope scope(device);
  forge::cuda::TensorMap encoded;
  device.check(device.api().encode_tensor_map(&encoded, kTensorBfloat16, 4, const_cast<void*>(data),
                                              sizes, strides, box, steps, 0, kSwizzle128Bytes,
                                              kPromotion256Bytes, 0),
               "cuTensorMapEncodeTiled");
  std::memcpy(map.opaque, encoded.opaque, sizeof map.opaque);
  return true;
}

void prepare_kernels() { gpu().load_all(); }

std::vector<std::pair<std::string, std::string>> kernel_names() {
  std::vector<std::pair<std::string, std::string>> names;
  for (const auto& [name, file] : gpu().files()) names.emplace_back(name, file);
  return names;
}

}  // namespace kernel_test

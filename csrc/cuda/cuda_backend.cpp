// The CUDA device: see common/backend.h.

#include <charconv>
#include <cstring>

#include "../common/error.h"
#include "../common/json_text.h"
#include "../gpu/gpu_backend.h"
#include "bandwidth.h"
#include "cuda_device.h"
#include "cuda_executor.h"

namespace forge {

namespace cuda {

namespace {

std::string architecture_name(int architecture) { return "sm_" + std::to_string(architecture); }

struct CudaGpu {
  using Device = CudaDevice;
  using Weight = CudaWeight;
  using CacheTransfers = cuda::CacheTransfers;
  using Executor = CudaExecutor;
};

class CudaBackend : public GpuBackend<CudaGpu> {
 public:
  CudaBackend(int index, uint32_t n_threads)
      : GpuBackend(std::make_shared<CudaDevice>(index, n_threads)) {
    // Fails without a compiler before weights are read.
    device_->kernels.compiler_version();
  }

  std::string info() const override {
    const DeviceProperties& properties = device_->device().properties();
    const Driver& driver = device_->device().driver();
    JsonObject info;
    info.add("name", properties.name);
    info.add("threads", uint64_t{device_->n_threads});
    info.add_raw("features", json_list({architecture_name(properties.architecture)}));
    info.add("kernels", "CUDA");
    info.add("memory_bytes", properties.memory_bytes);
    info.add("free_bytes", device_->device().free_bytes());
    std::vector<std::string> details = {
        size_text(device_->device().free_bytes()) + " of " + size_text(properties.memory_bytes) +
            " are free",
        "driver " + driver.path() + ", CUDA " + version_text(driver.version()),
        "compiler " + device_->kernels.compiler_path() + ", NVRTC " +
            device_->kernels.compiler_version(),
        "compiled kernels are kept in " + device_->kernels.cache_folder(),
    };
    CublasLt& cublaslt = device_->cublaslt();
    details.push_back(cublaslt.problem().empty()
                          ? "products of long prompts by cuBLASLt " + cublaslt.version() + ", " +
                                cublaslt.path()
                          : "cuBLASLt is not used: " + cublaslt.problem());
    const AttentionChoice attention(device_->attention, device_->flash(),
                                    device_->device().properties().multiprocessors);
    for (const std::string& line : attention.describe()) details.push_back(line);
    info.add_raw("details", json_list(details));
    return info.str();
  }

  void set_attention(uint32_t attention) override {
    if (attention == FORGE_ATTENTION_FLASH && !device_->flash().problem().empty()) {
      fail(FORGE_UNSUPPORTED, device_->flash().problem());
    }
    device_->attention = attention;
  }

  void join(std::span<Backend* const> devices, const GroupPart& part) override {
    std::vector<const Device*> joining;
    for (Backend* device : devices) {
      joining.push_back(&static_cast<CudaBackend*>(device)->device_->device());
    }
    const auto group = std::make_shared<NcclGroup>(joining, part);
    for (uint32_t i = 0; i < devices.size(); ++i) {
      static_cast<CudaBackend*>(devices[i])->device_->links = {group, part.first + i};
    }
  }

  void make_keys(std::span<uint8_t> keys) override {
    const Nccl nccl;
    static_assert(sizeof(NcclUniqueId) == FORGE_GROUP_KEY_BYTES);
    for (uint64_t at = 0; at < keys.size(); at += sizeof(NcclUniqueId)) {
      NcclUniqueId id;
      nccl.check(nccl.api().unique_id(&id), "ncclGetUniqueId");
      std::memcpy(&keys[at], &id, sizeof(id));
    }
  }

  void abort_group(const std::string& reason) override {
    if (device_->links.group) device_->links.group->abort(reason);
  }

  GroupPlace place() const override {
    const NcclLinks& links = device_->links;
    return links.group ? links.group->place(links.device) : GroupPlace();
  }

  // Compiling a step copies its weights to the device.
  bool reads_files() const override { return false; }

  uint64_t read_bandwidth() override { return measure_bandwidth(*device_); }
};

// Parses a selector; "" is device 0.
int parse_index(std::string_view selector, int count) {
  int index = 0;
  const char* end = selector.data() + selector.size();
  const auto [stop, error] = std::from_chars(selector.data(), end, index);
  const bool is_number = selector.empty() || (error == std::errc() && stop == end);
  if (count == 0) {
    fail(FORGE_DEVICE_FAILED, "the CUDA driver knows no device; nvidia-smi tells more");
  }
  if (!is_number || index < 0 || index >= count) {
    fail(FORGE_INVALID_ARGUMENT, "there is no CUDA device \"", selector, "\"; valid are 0 to ",
         count - 1);
  }
  return index;
}

}  // namespace

}  // namespace cuda

const char* backend_name() { return "cuda"; }

// Empty without a driver; opening a device reports the reason.
std::string list_devices() {
  std::string list;
  if (cuda::Driver::problem().empty()) {
    const cuda::Driver& driver = cuda::Driver::get();
    for (int index = 0; index < driver.device_count(); ++index) {
      const cuda::DeviceProperties properties = cuda::device_properties(driver, index);
      JsonObject device;
      device.add("selector", std::to_string(index));
      device.add("name", properties.name);
      device.add("memory_bytes", properties.memory_bytes);
      device.add("architecture", cuda::architecture_name(properties.architecture));
      if (!list.empty()) list += ", ";
      list += device.str();
    }
  }
  return "[" + list + "]";
}

std::unique_ptr<Backend> open_backend(std::string_view selector, uint32_t n_threads) {
  const int index = cuda::parse_index(selector, cuda::Driver::get().device_count());
  return std::make_unique<cuda::CudaBackend>(index, host_threads(n_threads));
}

}  // namespace forge

#include "device.h"

#include "../gpu/environment.h"

namespace forge::cuda {

namespace {

int attribute(const Driver& driver, DeviceAttribute which, DeviceOrdinal ordinal) {
  int value = 0;
  check_driver(driver.api().device_attribute(&value, which, ordinal), "cuDeviceGetAttribute");
  return value;
}

// The first driver that captures overlapping kernels in graphs.
constexpr int kOverlapVersion = 12030;

}  // namespace

DeviceProperties device_properties(const Driver& driver, int index) {
  DeviceProperties properties;
  properties.index = index;
  check_driver(driver.api().device_get(&properties.ordinal, index), "cuDeviceGet(", index, ")");
  const DeviceOrdinal ordinal = properties.ordinal;
  char name[256] = "";
  check_driver(driver.api().device_name(name, sizeof name, ordinal), "cuDeviceGetName");
  properties.name = name;
  size_t bytes = 0;
  check_driver(driver.api().device_total_memory(&bytes, ordinal), "cuDeviceTotalMem");
  properties.memory_bytes = bytes;
  properties.architecture = 10 * attribute(driver, DeviceAttribute::compute_major, ordinal) +
                            attribute(driver, DeviceAttribute::compute_minor, ordinal);
  properties.multiprocessors =
      static_cast<uint32_t>(attribute(driver, DeviceAttribute::multiprocessors, ordinal));
  properties.max_shared_bytes = static_cast<uint32_t>(
      attribute(driver, DeviceAttribute::max_shared_per_block_optin, ordinal));
  properties.l2_bytes =
      static_cast<uint64_t>(attribute(driver, DeviceAttribute::l2_cache_bytes, ordinal));
  return properties;
}

Device::Device(int index) : driver_(Driver::get()), properties_(device_properties(driver_, index)) {
  if (properties_.architecture < kOldestArchitecture) {
    fail(FORGE_UNSUPPORTED, "CUDA device ", index, " (", properties_.name,
         ") is of architecture sm_", properties_.architecture, "; forge needs sm_",
         kOldestArchitecture, " or newer");
  }
  check_driver(api().primary_context_retain(&context_, properties_.ordinal),
               "opening CUDA device ", index, " (", properties_.name, ")");
  is_synchronous_ = is_turned_on("FORGE_CUDA_SYNC");
  is_traced_ = is_turned_on("FORGE_CUDA_TRACE");
  fuses_operations_ = environment("FORGE_CUDA_FUSION") != "0";
  captures_graphs_ = environment("FORGE_CUDA_GRAPHS") != "0" && !is_synchronous_;
  keeps_blocks_ = environment("FORGE_CUDA_PERSISTENT") == "1" && !is_synchronous_;
  overlaps_kernels_ = properties_.architecture >= 90 && api().launch_with &&
                      driver_.version() >= kOverlapVersion &&
                      environment("FORGE_CUDA_OVERLAP") != "0" && !is_synchronous_;
  try {
    const DeviceScope scope(*this);
    check(api().stream_create(&stream_, kStreamNonBlocking), "cuStreamCreate");
  } catch (...) {
    api().primary_context_release(properties_.ordinal);
    throw;
  }
}

Device::~Device() {
  {
    const DeviceScope scope(*this);
    api().stream_destroy(stream_);
  }
  api().primary_context_release(properties_.ordinal);
}

uint64_t Device::free_bytes() const {
  const DeviceScope scope(*this);
  size_t free = 0, total = 0;
  check(api().memory_info(&free, &total), "cuMemGetInfo");
  return free;
}

void Device::give_up(Result result, const std::string& what) const {
  const std::string text = what + ": " + driver_.describe(result);
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_.empty()) failure_ = text;
  }
  fail(FORGE_DEVICE_FAILED, text, "; this process cannot use the device any more");
}

void Device::require_working() const {
  const std::lock_guard lock(failure_mutex_);
  if (!failure_.empty()) {
    fail(FORGE_DEVICE_FAILED, "CUDA device ", properties_.index, " failed earlier: ", failure_,
         "; start forge again to use it");
  }
}

}  // namespace forge::cuda

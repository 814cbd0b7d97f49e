#pragma once

// One GPU: its primary context, one stream on which all of forge's work runs in order, and what
// happens when it fails.

#include <mutex>
#include <string>
#include <string_view>

#include "driver.h"

namespace forge::cuda {

// What the driver tells of a device without opening it.
struct DeviceProperties {
  int index = 0;
  DeviceOrdinal ordinal = 0;
  std::string name;
  uint64_t memory_bytes = 0;
  int architecture = 0;  // 80 for compute capability 8.0
  uint32_t multiprocessors = 0;
  uint32_t max_shared_bytes = 0;  // of a block that asks for more than the default
};

// The oldest architecture whose instructions the kernels use.
constexpr int kOldestArchitecture = 80;

DeviceProperties device_properties(const Driver& driver, int index);

class Device {
 public:
  // Opens a device by its index. Throws FORGE_UNSUPPORTED for one that is too old.
  explicit Device(int index);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Driver& driver() const { return driver_; }
  const DriverApi& api() const { return driver_.api(); }
  const DeviceProperties& properties() const { return properties_; }
  Stream stream() const { return stream_; }
  // Held by whatever puts work on the stream: one caller at a time.
  std::mutex& mutex() const { return mutex_; }

  // Throws when a call failed. After a failure that the context does not survive, every later use
  // of the device is refused with the text of that first one.
  template <class... Parts>
  void check(Result result, const Parts&... what) const {
    if (result == kSuccess) return;
    if (is_fatal(result)) give_up(result, (text_of(what) + ...));
    check_driver(result, what...);
  }

  // Waits for everything on the stream. `what` names the work in the error.
  void synchronize(const std::string& what) const {
    check(api().stream_synchronize(stream_), what);
  }

  uint64_t free_bytes() const;

  // Whether each launch is waited for, so that a failure names its kernel: FORGE_CUDA_SYNC=1.
  bool is_synchronous() const { return is_synchronous_; }
  // Whether a kernel may start while the one before it ends: from SM90 on, with a driver for CUDA
  // 12.3 or newer, unless FORGE_CUDA_OVERLAP=0.
  bool overlaps_kernels() const { return overlaps_kernels_; }
  // Whether neighbouring operations become one launch where one kernel can compute them: unless
  // FORGE_CUDA_FUSION=0.
  bool fuses_operations() const { return fuses_operations_; }
  // Whether short plans are captured into graphs: unless FORGE_CUDA_GRAPHS=0.
  bool captures_graphs() const { return captures_graphs_; }
  // Whether each plan of launches, and each graph, is described on stderr: FORGE_CUDA_TRACE=1.
  bool is_traced() const { return is_traced_; }

  // Throws FORGE_DEVICE_FAILED when the device has failed before.
  void require_working() const;

 private:
  friend class DeviceScope;
  static std::string text_of(const std::string& part) { return part; }
  static std::string text_of(const char* part) { return part; }
  static std::string text_of(uint64_t part) { return std::to_string(part); }
  [[noreturn]] void give_up(Result result, const std::string& what) const;

  const Driver& driver_;
  DeviceProperties properties_;
  Context context_ = nullptr;
  Stream stream_ = nullptr;
  bool is_synchronous_ = false;
  bool is_traced_ = false;
  bool overlaps_kernels_ = false;
  bool fuses_operations_ = true;
  bool captures_graphs_ = true;
  mutable std::mutex mutex_;
  mutable std::mutex failure_mutex_;
  mutable std::string failure_;
};

// Makes a device's context current for the calling thread while it lives. Calls from TypeScript
// come from a pool of threads, so that every entry point needs one.
class DeviceScope {
 public:
  explicit DeviceScope(const Device& device) : device_(device) {
    device.api().context_push(device.context_);
  }
  ~DeviceScope() {
    Context popped;
    device_.api().context_pop(&popped);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  const Device& device_;
};

// What every use of a device begins with: no one else puts work on its stream meanwhile, it has not
// failed before, and its context is current.
class DeviceTurn {
 public:
  explicit DeviceTurn(const Device& device) : lock_(device.mutex()), scope_(working(device)) {}

 private:
  static const Device& working(const Device& device) {
    device.require_working();
    return device;
  }

  std::lock_guard<std::mutex> lock_;
  DeviceScope scope_;
};

}  // namespace forge::cuda

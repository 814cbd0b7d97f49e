#pragma once

// One GPU: its primary context, one stream on which all of forge's work runs in order, and its
// failures.

#include <mutex>
#include <string>
#include <string_view>

#include "driver.h"

namespace forge::cuda {

// Properties that can be read without opening the device.
struct DeviceProperties {
  int index = 0;
  DeviceOrdinal ordinal = 0;
  std::string name;
  uint64_t memory_bytes = 0;
  int architecture = 0;  // 80 for compute capability 8.0
  uint32_t multiprocessors = 0;
  uint32_t max_shared_bytes = 0;  // maximum of a block, by opt-in
  uint64_t l2_bytes = 0;          // of the second-level cache
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
  // Held while work is enqueued: one caller at a time.
  std::mutex& mutex() const { return mutex_; }

  // Throws if a call failed. After a failure that destroys the context, every later use of the
  // device throws with the text of the first failure.
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

  // True if each launch is waited for, so that a failure names its kernel: FORGE_CUDA_SYNC=1.
  bool is_synchronous() const { return is_synchronous_; }
  // True if a kernel may start while the previous one ends: from SM90 on, with a driver for CUDA
  // 12.3 or newer, unless FORGE_CUDA_OVERLAP=0.
  bool overlaps_kernels() const { return overlaps_kernels_; }
  // True if neighbouring operations that one kernel can compute become one launch: unless
  // FORGE_CUDA_FUSION=0.
  bool fuses_operations() const { return fuses_operations_; }
  // True if short plans are captured into graphs: unless FORGE_CUDA_GRAPHS=0.
  bool captures_graphs() const { return captures_graphs_; }
  // True if small steps of decoding are one kernel, whose blocks wait for each other
  // (step_kernel.h): FORGE_CUDA_PERSISTENT=1.
  bool keeps_blocks() const { return keeps_blocks_; }
  // True if each plan and graph is described on stderr: FORGE_CUDA_TRACE=1.
  bool is_traced() const { return is_traced_; }

  // Throws FORGE_DEVICE_FAILED if the device has failed before.
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
  bool keeps_blocks_ = false;
  mutable std::mutex mutex_;
  mutable std::mutex failure_mutex_;
  mutable std::string failure_;
};

// Makes a device's context current for the calling thread while it lives. Every entry point needs
// one, since calls from TypeScript come from a pool of threads.
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

// Exclusive use of a working device: locks its stream, throws if it has failed, and makes its
// context current.
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

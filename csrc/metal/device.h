#pragma once

// The system's GPU: its queue, on which all of forge's work runs in order, and its memory.

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "../gpu/device_memory.h"
#include "residency.h"

namespace forge::metal {

struct DeviceProperties {
  std::string name;
  uint64_t memory_bytes = 0;      // that Metal recommends to use at a time
  uint64_t max_buffer_bytes = 0;  // of one buffer
  uint64_t max_threadgroup_bytes = 0;
};

// Properties of the system's GPU; empty if forge cannot use it or Metal has no device.
std::optional<DeviceProperties> usable_device();

class Device {
 public:
  // Throws FORGE_DEVICE_FAILED if Metal has no device, FORGE_UNSUPPORTED if the device lacks
  // features that the kernels use.
  Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceProperties& properties() const { return properties_; }
  // The MTLDevice and its MTLCommandQueue.
  void* handle() const { return device_.get(); }
  void* queue() const { return queue_.get(); }
  // Held while work is enqueued: one caller at a time.
  std::mutex& mutex() const { return mutex_; }
  MemoryLedger& ledger() const { return ledger_; }
  Residency& residency() const { return *residency_; }

  // Unused part of the memory that Metal recommends to use.
  uint64_t free_bytes() const;
  DeviceRoom room() const;

  // True if the CPU can read every buffer, for debuggers: FORGE_DEBUG=1.
  bool is_debugged() const { return is_debugged_; }

 private:
  Object device_, queue_;
  DeviceProperties properties_;
  bool is_debugged_ = false;
  mutable std::mutex mutex_;
  mutable MemoryLedger ledger_;
  std::unique_ptr<Residency> residency_;
};

}  // namespace forge::metal

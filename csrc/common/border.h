#pragma once

// Shared by the exported functions: the objects that handles name, and the conversion of C++
// exceptions to statuses.

#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend.h"
#include "mapped_file.h"
#include "objects.h"
#include "recorder.h"
#include "run_profile.h"

namespace forge {

struct DeviceObject : Object {
  std::unique_ptr<Backend> backend;

  void add_file(const std::shared_ptr<MappedFile>& file);
  // Throws FORGE_IO if a mapped file was changed: data read from it since may be wrong.
  void check_files() const;

 private:
  mutable std::mutex files_mutex_;
  std::vector<std::weak_ptr<MappedFile>> files_;
};

struct FileObject : Object {
  std::shared_ptr<MappedFile> file;
};

// The rows of a packed matrix.
struct RowsObject : Object {
  std::shared_ptr<const RowSource> source;
  WeightType type{};
  uint64_t rows = 0;
  uint64_t cols = 0;
};

struct WeightObject : Object {
  std::shared_ptr<DeviceObject> device;
  std::shared_ptr<Weight> weight;
};

struct KvObject : Object {
  std::shared_ptr<DeviceObject> device;
  std::shared_ptr<KvCache> kv;
};

struct StateObject : Object {
  std::shared_ptr<DeviceObject> device;
  std::shared_ptr<StateCache> state;
};

struct StepObject : Object {
  StepObject(std::shared_ptr<DeviceObject> owner, const StepLimits& limits)
      : device(std::move(owner)), recorder(limits) {}
  std::shared_ptr<DeviceObject> device;
  Recorder recorder;
  std::shared_ptr<const Program> program;
  std::unique_ptr<Executable> executable;
  RunProfile profile;
  uint32_t last_tokens = 0;
  uint32_t last_outputs = 0;
  uint64_t last_nanoseconds = 0;
};

// Copies text to the buffer of a caller, truncated and NUL-terminated.
void copy_text(const std::string& text, char* buffer, uint64_t capacity);

// Stores the text of a failure on the object of a live handle.
void keep_error(uint32_t handle, const std::string& text);

// Runs `body`. Converts what it throws to a status, and passes the text to `report`.
template <class Body, class Report>
forge_status guarded(Body&& body, Report&& report) noexcept {
  try {
    try {
      body();
      return FORGE_OK;
    } catch (const Error& error) {
      report(std::string(error.what()));
      return error.status();
    } catch (const std::bad_alloc&) {
      report(std::string("out of memory"));
      return FORGE_OUT_OF_MEMORY;
    } catch (const std::length_error&) {
      // Containers throw it for sizes that no machine could hold.
      report(std::string("out of memory"));
      return FORGE_OUT_OF_MEMORY;
    } catch (const std::exception& error) {
      report(std::string("internal error: ") + error.what());
      return FORGE_INTERNAL;
    }
  } catch (...) {
    return FORGE_INTERNAL;
  }
}

// The same, with the text stored on a handle.
template <class Body>
forge_status on_handle(uint32_t handle, Body&& body) noexcept {
  return guarded(body, [handle](const std::string& text) { keep_error(handle, text); });
}

inline std::shared_ptr<DeviceObject> get_device(uint32_t handle) {
  return get<DeviceObject>(handle, "device");
}

// Return a weight (null for handle 0 if it is optional), KV cache or state cache, which must belong
// to the device.
WeightRef get_weight(const DeviceObject& device, uint32_t handle, bool optional);
KvRef get_kv(const DeviceObject& device, uint32_t handle);
StateRef get_state(const DeviceObject& device, uint32_t handle);

template <class T>
T& not_null(T* pointer, const char* name) {
  require(pointer != nullptr, name, " is null");
  return *pointer;
}

}  // namespace forge

#pragma once

// Handles: small integers that name objects. A handle includes a generation, so that a released
// handle stays invalid when its slot is reused.

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "error.h"

namespace forge {

class Object {
 public:
  virtual ~Object() = default;

  void set_error(const std::string& text) {
    std::lock_guard lock(error_mutex_);
    error_text_ = text;
  }
  std::string error_text() const {
    std::lock_guard lock(error_mutex_);
    return error_text_;
  }

 private:
  mutable std::mutex error_mutex_;
  std::string error_text_;
};

class HandleTable {
 public:
  uint32_t insert(std::shared_ptr<Object> object);
  // Returns null if no live object has the handle.
  std::shared_ptr<Object> find(uint32_t handle) const;
  // Removes and returns the object, so that it is destroyed outside the lock of the table.
  std::shared_ptr<Object> remove(uint32_t handle);

 private:
  static constexpr uint32_t kIndexBits = 20;

  struct Slot {
    std::shared_ptr<Object> object;
    uint32_t generation = 1;
  };
  const Slot* slot_of(uint32_t handle) const;

  mutable std::mutex mutex_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
};

// Returns the only table of the library.
HandleTable& handles();

// Returns the object of a handle. Throws FORGE_BAD_HANDLE if it is not of type T.
template <class T>
std::shared_ptr<T> get(uint32_t handle, const char* expected) {
  auto object = std::dynamic_pointer_cast<T>(handles().find(handle));
  if (!object) fail(FORGE_BAD_HANDLE, "handle ", handle, " is not a live ", expected);
  return object;
}

}  // namespace forge

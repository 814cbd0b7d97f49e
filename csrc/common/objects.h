#pragma once

// Handles: small integers that name objects. A handle carries a generation, so that one that was
// released stays invalid when its place is used again.

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
  // Null when the handle names nothing alive.
  std::shared_ptr<Object> find(uint32_t handle) const;
  // Removes and returns the object, so that it is destroyed outside the table's lock.
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

// The library's one table.
HandleTable& handles();

// The object of a handle, or an Error that says what was expected.
template <class T>
std::shared_ptr<T> get(uint32_t handle, const char* expected) {
  auto object = std::dynamic_pointer_cast<T>(handles().find(handle));
  if (!object) fail(FORGE_BAD_HANDLE, "handle ", handle, " is not a live ", expected);
  return object;
}

}  // namespace forge

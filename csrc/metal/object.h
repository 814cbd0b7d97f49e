#pragma once

// Objective-C objects as plain C++ holds them: only files ending in .mm see more than a pointer.

#include <utility>

namespace forge::metal {

// An object that is owned: it is released with this. Empty by default.
class Object {
 public:
  Object() = default;
  // Takes over an object that the caller owns, as methods named new..., alloc and retain return it.
  explicit Object(void* owned) : pointer_(owned) {}
  ~Object();
  Object(Object&& other) noexcept : pointer_(std::exchange(other.pointer_, nullptr)) {}
  Object& operator=(Object&& other) noexcept {
    std::swap(pointer_, other.pointer_);
    return *this;
  }

  void* get() const { return pointer_; }
  explicit operator bool() const { return pointer_ != nullptr; }

 private:
  void* pointer_ = nullptr;
};

// Objects that methods hand out without ownership live until the pool of their thread ends. Threads
// of TypeScript have no pool of their own, so that every function that calls Metal begins with one.
class AutoreleasePool {
 public:
  AutoreleasePool();
  ~AutoreleasePool();
  AutoreleasePool(const AutoreleasePool&) = delete;
  AutoreleasePool& operator=(const AutoreleasePool&) = delete;

 private:
  void* pool_;
};

}  // namespace forge::metal

#pragma once

// Objective-C objects for plain C++: only files ending in .mm see more than a pointer.

#include <utility>

namespace forge::metal {

// Owns an Objective-C object and releases it. Empty by default.
class Object {
 public:
  Object() = default;
  // Takes over an object that the caller owns, as returned by new..., alloc and retain.
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

// Autoreleased objects live until the pool of their thread ends. Deno's threads have no pool, so
// every function that calls Metal begins with one.
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

#pragma once

// Stackful coroutines for the threads of a block. A switch saves six registers and changes the
// stack. Sanitizers are notified through hooks that exist only in programs built with them.

#include <cstddef>

namespace emulator {

class Fiber {
 public:
  // Stands for the stack of the code that first switches away from it.
  Fiber() = default;
  // Allocates a stack, on which the first switch to it calls `entry`, which must not return.
  explicit Fiber(void (*entry)());
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Continues `next`, and returns when a fiber switches back. This fiber must be the running one.
  void switch_to(Fiber& next);
  // True if the address is on this fiber's stack.
  bool holds(const void* address) const;

 private:
  void arrive();

  void (*entry_)() = nullptr;
  void* stack_pointer_ = nullptr;
  // Known for a caller's stack only under AddressSanitizer.
  const void* stack_ = nullptr;
  size_t stack_bytes_ = 0;
  void* race_context_ = nullptr;     // ThreadSanitizer's context of this fiber
  void* address_context_ = nullptr;  // AddressSanitizer's context

  friend void begin_fiber();
};

// Notifications for ThreadSanitizer; no effect in other builds.
namespace races {
// True in a program linked with ThreadSanitizer.
bool is_watched();
// Accesses in this scope are the emulator's own, not the kernel's.
struct Ignored {
  Ignored();
  ~Ignored();
};
// The kinds of memory whose races are reported: both, or the one that the variable
// FORGE_EMULATOR_RACES names, "device" or "shared". Metal's barriers order only the kinds in their
// flags, but ThreadSanitizer orders all memory; so a run for each kind checks the flags.
enum Memory : unsigned { kDevice = 1, kShared = 2 };
unsigned watched();
// Declares the kind of memory that kernels access.
void declare(Memory kind, void* address, size_t bytes);
// Everything before a release of `tag` happens before everything after a later acquire of it.
void release(void* tag);
void acquire(void* tag);
// Records that the kernel reads or writes these bytes through code that is not instrumented.
void read(const void* address, size_t bytes);
void write(void* address, size_t bytes);
}  // namespace races

}  // namespace emulator

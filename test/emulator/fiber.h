#pragma once

// Stackful coroutines for the threads of a block. A switch saves six registers and changes the
// stack; the sanitizers are told about it through hooks that exist only in programs built with
// them.

#include <cstddef>

namespace emulator {

class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Makes the next resume() begin `entry` on an empty stack.
  void start(void (*entry)());
  // From the scheduler: runs the fiber until it yields or finishes.
  void resume();
  // From the fiber: back to the scheduler. A fiber that `finished` is not resumed but started anew.
  void yield(bool finished);

 private:
  void* stack_;
  void* stack_pointer_ = nullptr;
  void* scheduler_pointer_ = nullptr;
  void* race_context_ = nullptr;            // what ThreadSanitizer knows of this fiber
  void* scheduler_race_context_ = nullptr;
  void* address_context_ = nullptr;         // AddressSanitizer's
  void* scheduler_address_context_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_bytes_ = 0;
  bool fresh_ = true;

  friend void begin_fiber();
};

// What ThreadSanitizer is told; nothing happens in other builds.
namespace races {
// True in a program that is linked with it.
bool is_watched();
// Accesses in this scope are the emulator's own, not the kernel's.
struct Ignored {
  Ignored();
  ~Ignored();
};
// Everything before a release of `tag` happens before what follows a later acquire of it.
void release(void* tag);
void acquire(void* tag);
// The kernel itself reads or writes these bytes, through code that is not instrumented.
void read(const void* address, size_t bytes);
void write(void* address, size_t bytes);
}  // namespace races

}  // namespace emulator

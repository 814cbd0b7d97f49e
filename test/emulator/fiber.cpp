#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "access_trace.h"

#if !defined(__x86_64__)
#error "the emulator switches stacks with x86-64 instructions"
#endif

// Defined only if the program is linked with the sanitizer that they belong to.
extern "C" {
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
[[gnu::weak]] void __tsan_acquire(void* tag);
[[gnu::weak]] void __tsan_release(void* tag);
[[gnu::weak]] void __tsan_read_range(void* address, unsigned long bytes);
[[gnu::weak]] void __tsan_write_range(void* address, unsigned long bytes);
[[gnu::weak]] void AnnotateBenignRaceSized(const char* file, int line, void* address,
                                           unsigned long bytes, const char* description);
[[gnu::weak]] void AnnotateIgnoreReadsBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreReadsEnd(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesBegin(const char* file, int line);
[[gnu::weak]] void AnnotateIgnoreWritesEnd(const char* file, int line);
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** save, const void* stack, size_t bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* save, const void** stack, size_t* bytes);

// Pushes the callee-saved registers, stores the stack pointer, and continues on another stack.
[[gnu::visibility("hidden")]] void emulator_switch_stack(void** save, void* to);
}

asm(R"(
  .text
  .globl emulator_switch_stack
  .hidden emulator_switch_stack
  .type emulator_switch_stack, @function
emulator_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size emulator_switch_stack, .-emulator_switch_stack
)");

namespace emulator {

namespace {

constexpr size_t kStackBytes = 256 * 1024;
constexpr size_t kPage = 4096, kCacheLine = 64;
constexpr unsigned kNoSynchronization = 1;  // a switch orders no memory accesses

// The fiber that left last, and the one that continues.
Fiber* left = nullptr;
Fiber* running = nullptr;

}  // namespace

// The first function on a fiber's stack.
void begin_fiber() {
  running->arrive();
  running->entry_();
  std::abort();
}

Fiber::Fiber(void (*entry)()) : entry_(entry), stack_bytes_(kStackBytes) {
  void* memory = mmap(nullptr, kPage + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  mprotect(memory, kPage, PROT_NONE);
  stack_ = static_cast<char*>(memory) + kPage;
  // Stacks begin at different cache lines of their pages: otherwise the few bytes that each thread
  // of a block uses would compete for the same sets of the cache.
  static unsigned made = 0;
  const size_t line = made++ * 17 % (kPage / kCacheLine);
  auto** top = reinterpret_cast<void**>(static_cast<char*>(memory) + kPage + kStackBytes -
                                        line * kCacheLine);
  *--top = nullptr;  // aligns the stack as a call would
  *--top = reinterpret_cast<void*>(begin_fiber);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  stack_pointer_ = top;
  if (__tsan_create_fiber) race_context_ = __tsan_create_fiber(0);
}

Fiber::~Fiber() {
  // ThreadSanitizer's context is kept: destroying it costs more than keeping the few.
  if (!entry_) return;
  munmap(const_cast<char*>(static_cast<const char*>(stack_)) - kPage, kPage + stack_bytes_);
}

bool Fiber::holds(const void* address) const {
  const auto* stack = static_cast<const char*>(stack_);
  return address >= stack && address < stack + stack_bytes_;
}

void Fiber::switch_to(Fiber& next) {
  left = this;
  running = &next;
  if (__sanitizer_start_switch_fiber) {
    __sanitizer_start_switch_fiber(&address_context_, next.stack_, next.stack_bytes_);
  }
  if (__tsan_switch_to_fiber) {
    if (!entry_) race_context_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(next.race_context_, kNoSynchronization);
  }
  emulator_switch_stack(&stack_pointer_, next.stack_pointer_);
  arrive();
}

void Fiber::arrive() {
  if (!__sanitizer_finish_switch_fiber) return;
  const void* stack;
  size_t bytes;
  __sanitizer_finish_switch_fiber(address_context_, &stack, &bytes);
  if (!left->entry_) {
    left->stack_ = stack;
    left->stack_bytes_ = bytes;
  }
}

namespace races {

bool is_watched() { return __tsan_create_fiber != nullptr; }

unsigned watched() {
  static const unsigned kinds = [] {
    const char* const name = std::getenv("FORGE_EMULATOR_RACES");
    if (!name) return kDevice | kShared;
    if (std::strcmp(name, "device") == 0) return unsigned{kDevice};
    if (std::strcmp(name, "shared") == 0) return unsigned{kShared};
    std::fprintf(stderr, "FORGE_EMULATOR_RACES is \"%s\"; valid are device and shared\n", name);
    std::abort();
  }();
  return kinds;
}

void declare(Memory kind, void* address, size_t bytes) {
  if ((watched() & kind) != 0 || !AnnotateBenignRaceSized) return;
  AnnotateBenignRaceSized("", 0, address, bytes, "");
}

Ignored::Ignored() {
  if (AnnotateIgnoreReadsBegin) {
    AnnotateIgnoreReadsBegin("", 0);
    AnnotateIgnoreWritesBegin("", 0);
  }
}

Ignored::~Ignored() {
  if (AnnotateIgnoreReadsEnd) {
    AnnotateIgnoreWritesEnd("", 0);
    AnnotateIgnoreReadsEnd("", 0);
  }
}

void release(void* tag) {
  if (__tsan_release) __tsan_release(tag);
}

void acquire(void* tag) {
  if (__tsan_acquire) __tsan_acquire(tag);
}

void read(const void* address, size_t bytes) {
  if (__tsan_read_range) __tsan_read_range(const_cast<void*>(address), bytes);
  trace_access(__builtin_return_address(0), Access::load, address, bytes);
}

void write(void* address, size_t bytes) {
  if (__tsan_write_range) __tsan_write_range(address, bytes);
  trace_access(__builtin_return_address(0), Access::store, address, bytes);
}

}  // namespace races

}  // namespace emulator

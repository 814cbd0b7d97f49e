#pragma once

// The part of the emulator that kernels use to make themselves known. Each kernel is compiled many
// times, and headers of the standard library would take most of that, so this includes few.

#include <cstddef>
#include <cstdint>
#include <utility>

namespace emulator {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

// Prints the error with its thread, and aborts.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// A function of any type.
typedef void (*Function)();

// A kernel; `call` calls its function as one thread.
struct KernelEntry {
  const char* name;
  Function function;
  const size_t* param_bytes;
  size_t n_params;
  void (*call)(Function function, void** params);
};
void register_kernel(const KernelEntry& entry);

struct Registration {
  template <class... Params>
  Registration(const char* name, void (*kernel)(Params...)) {
    const size_t param_bytes[] = {sizeof(Params)..., 0};
    register_kernel({name, reinterpret_cast<Function>(kernel), param_bytes, sizeof...(Params),
                     [](Function function, void** params) {
                       call(reinterpret_cast<void (*)(Params...)>(function), params,
                            std::index_sequence_for<Params...>{});
                     }});
  }

 private:
  template <class... Params, size_t... i>
  static void call(void (*kernel)(Params...), void** params, std::index_sequence<i...>) {
    kernel(*static_cast<Params*>(params[i])...);
  }
};

// A Metal kernel's argument at one buffer index.
struct MetalArgument {
  size_t bytes;      // of a struct passed by value (setBytes); 0: a buffer
  size_t alignment;  // of the buffer's elements
  bool writable;     // true if the kernel may write the buffer
};

// A Metal kernel; `call` calls its function as one thread.
struct MetalEntry {
  const char* name;
  Function function;
  const MetalArgument* arguments;  // by buffer index
  size_t n_arguments;
  bool takes_threadgroup_memory;  // true if index 0 of threadgroup memory must be set
  void (*call)(Function function, void* const* buffers);
};
void register_metal_kernel(const MetalEntry& entry);

// Memory of an array of threadgroup memory that a Metal kernel declares.
void* threadgroup_array(const void* declaration, size_t bytes);
// Follows a Metal kernel's last declaration of threadgroup memory.
void end_threadgroup_arrays();

// True if lanes hold the numbers of SIMD group matrices in another layout than on Apple's GPUs,
// which Metal allows. Initially false.
bool has_other_matrix_places();

}  // namespace emulator

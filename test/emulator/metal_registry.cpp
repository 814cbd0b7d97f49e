#include "metal_registry.h"

#include <xmmintrin.h>

#include <mutex>

#include "block.h"

namespace emulator {

namespace {

// The limit on every Apple GPU.
constexpr size_t kMostThreadgroupBytes = 32 * 1024;

std::vector<MetalKernel>& registered() {
  static std::vector<MetalKernel> list;
  return list;
}

bool other_matrix_places = false;

// Flushes subnormal floats to zero, as inputs and as results, which Metal allows GPUs to do.
class FlushedSubnormals {
 public:
  FlushedSubnormals() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | kFlushResults | kFlushInputs);
  }
  ~FlushedSubnormals() { _mm_setcsr(before_); }
  FlushedSubnormals(const FlushedSubnormals&) = delete;
  FlushedSubnormals& operator=(const FlushedSubnormals&) = delete;

 private:
  static constexpr unsigned kFlushResults = 0x8000, kFlushInputs = 0x0040;
  const unsigned before_;
};

}  // namespace

bool has_other_matrix_places() { return other_matrix_places; }
void use_other_matrix_places() { other_matrix_places = true; }

const std::vector<MetalKernel>& metal_kernels() { return registered(); }

const MetalKernel* find_metal_kernel(const std::string& name) {
  for (const MetalKernel& kernel : registered()) {
    if (kernel.name == name) return &kernel;
  }
  return nullptr;
}

void register_metal_kernel(const MetalEntry& entry) {
  registered().push_back({
      entry.name,
      {entry.arguments, entry.arguments + entry.n_arguments},
      entry.takes_threadgroup_memory,
      [call = entry.call, function = entry.function](void* const* buffers) {
        call(function, buffers);
      },
  });
}

namespace {

// While a kernel's threadgroup memory is measured: its bytes.
thread_local size_t* measured_bytes = nullptr;
// Ends a kernel whose threadgroup memory was measured.
struct MeasuredAll {};
// Held while a kernel runs: the emulator has one running block.
std::mutex running;

alignas(16) char unused_memory[2 * kMostThreadgroupBytes];

}  // namespace

void* threadgroup_array(const void* declaration, size_t bytes) {
  if (!measured_bytes) return shared_array(declaration, bytes);
  *measured_bytes += bytes;
  return unused_memory;
}

void end_threadgroup_arrays() {
  if (measured_bytes) throw MeasuredAll();
}

size_t MetalKernel::static_threadgroup_bytes() const {
  size_t bytes = 0;
  const std::vector<void*> buffers(arguments.size(), unused_memory);
  const std::lock_guard lock(running);
  run_grid({{}, {}, takes_threadgroup_memory ? size_t{16} : 0}, [&] {
    measured_bytes = &bytes;
    try {
      thread(buffers.data());
      fail("%s has no end of threadgroup memory", name.c_str());
    } catch (const MeasuredAll&) {
    }
    measured_bytes = nullptr;
  });
  return bytes;
}

void MetalKernel::launch(const MetalLaunch& shape, void* const* buffers) const {
  if (takes_threadgroup_memory != (shape.threadgroup_bytes > 0)) {
    fail("%s %s threadgroup memory at index 0", name.c_str(),
         takes_threadgroup_memory ? "needs" : "takes no");
  }
  const FlushedSubnormals flushed;
  const std::lock_guard lock(running);
  run_grid({shape.grid, shape.threads, shape.threadgroup_bytes, kMostThreadgroupBytes},
           [&] { thread(buffers); });
}

}  // namespace emulator

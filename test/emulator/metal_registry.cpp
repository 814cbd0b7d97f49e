#include "metal_registry.h"

namespace emulator {

namespace {

// The limit on every Apple GPU.
constexpr size_t kMostThreadgroupBytes = 32 * 1024;

std::vector<MetalKernel>& registered() {
  static std::vector<MetalKernel> list;
  return list;
}

bool other_matrix_places = false;

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

void register_metal_kernel(MetalKernel kernel) { registered().push_back(std::move(kernel)); }

void MetalKernel::launch(const MetalLaunch& shape, void* const* buffers) const {
  if (takes_threadgroup_memory != (shape.threadgroup_bytes > 0)) {
    fail("%s %s threadgroup memory at index 0", name.c_str(),
         takes_threadgroup_memory ? "needs" : "takes no");
  }
  run_grid({shape.grid, shape.threads, shape.threadgroup_bytes, kMostThreadgroupBytes},
           [&] { thread(buffers); });
}

}  // namespace emulator

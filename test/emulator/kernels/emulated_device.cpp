#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <new>

#include "../fiber.h"
#include "../sm90.h"
#include "support.h"

namespace kernel_test {

// Of exactly the requested length, so that AddressSanitizer detects accesses beyond the end.
void* allocate(size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, bytes) != 0) throw std::bad_alloc();
  emulator::races::declare(emulator::races::kDevice, memory, bytes);
  return memory;
}

namespace {

std::map<void*, size_t>& reserved() {
  static std::map<void*, size_t> sizes;
  return sizes;
}

}  // namespace

void* reserve(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  reserved()[memory] = bytes;
  return memory;
}

void release(void* memory) {
  const auto found = reserved().find(memory);
  if (found == reserved().end()) return std::free(memory);
  munmap(memory, found->second);
  reserved().erase(found);
}

void run_kernel(const std::string& name, const emulator::Launch& shape,
                const std::vector<size_t>& param_bytes, void** params) {
  const emulator::Kernel* kernel = emulator::find_kernel(name);
  if (!kernel) fail_test("there is no kernel %s", name.c_str());
  if (param_bytes != kernel->param_bytes) fail_test("%s takes other parameters", name.c_str());
  kernel->launch(shape, params);
}

bool run_step_kernel(const std::vector<std::string>& operations, const emulator::Launch& shape,
                     const std::vector<size_t>& param_bytes, void** params) {
  std::vector<const emulator::Kernel*> kernels;
  for (const std::string& name : operations) {
    kernels.push_back(emulator::find_kernel(name));
    if (!kernels.back()) fail_test("there is no kernel %s", name.c_str());
  }
  emulator::Launch resident = shape;
  resident.operations = &kernels;
  run_kernel("step_kernel", resident, param_bytes, params);
  return true;
}

bool describe_tensor(TensorMap& map, const void* data, const uint64_t (&sizes)[4],
                     const uint64_t (&strides)[3], uint32_t box_rows) {
  emulator::sm90::TensorBox box;
  if (!emulator::sm90::describe_box(box, data, sizes, strides, 64, static_cast<int>(box_rows))) {
    fail_test("a tensor map is refused");
  }
  static_assert(sizeof box <= sizeof map.opaque);
  std::memcpy(map.opaque, &box, sizeof box);
  return true;
}

void prepare_kernels() {}

std::vector<std::pair<std::string, std::string>> kernel_names() {
  std::vector<std::pair<std::string, std::string>> names;
  for (const emulator::Kernel& kernel : emulator::kernels()) {
    names.emplace_back(kernel.name, kernel.symbol);
  }
  return names;
}

}  // namespace kernel_test

#include <dlfcn.h>

#include <atomic>

#include "access_trace.h"
#include "emulator.h"

namespace emulator {

namespace {

std::vector<Kernel>& registered() {
  static std::vector<Kernel> list;
  return list;
}

std::atomic<uint64_t> threads_that_waited = 0;

}  // namespace

const std::vector<Kernel>& kernels() { return registered(); }

const Kernel* find_kernel(const std::string& name_or_symbol) {
  for (const Kernel& kernel : registered()) {
    if (kernel.name == name_or_symbol || kernel.symbol == name_or_symbol) return &kernel;
  }
  return nullptr;
}

std::string symbol_of(void* function) {
  Dl_info info;
  if (dladdr(function, &info) == 0 || info.dli_sname == nullptr || info.dli_saddr != function) {
    return "";
  }
  return info.dli_sname;
}

void register_kernel(Kernel kernel) { registered().push_back(std::move(kernel)); }

void note_wait() { threads_that_waited.fetch_add(1, std::memory_order_relaxed); }

void run_dependent_grid(const Launch& shape, const std::string& name,
                        const std::function<void()>& thread) {
  const auto count = [](const Dim3& d) { return uint64_t{d.x} * d.y * d.z; };
  threads_that_waited = 0;
  run_grid(shape, thread);
  if (threads_that_waited != count(shape.grid) * count(shape.block)) {
    fail("%s does not wait for the kernel before it", name.c_str());
  }
}

void Kernel::launch(const Launch& shape, void** params) const {
  run_dependent_grid(shape, name, [&] { thread(params); });
  end_traced_kernel(name);
}

}  // namespace emulator

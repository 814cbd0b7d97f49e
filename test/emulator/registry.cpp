#include <dlfcn.h>

#include "emulator.h"

namespace emulator {

namespace {

std::vector<Kernel>& registered() {
  static std::vector<Kernel> list;
  return list;
}

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

void Kernel::launch(const Launch& shape, void** params) const {
  run_grid(shape, [&] { thread(params); });
}

}  // namespace emulator

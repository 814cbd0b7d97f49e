#include <dlfcn.h>

#include <atomic>
#include <mutex>

#include "access_trace.h"
#include "block.h"
#include "emulator.h"
#include "fiber.h"

namespace emulator {

namespace {

std::vector<Kernel>& registered() {
  static std::vector<Kernel> list;
  return list;
}

// The mangled name of a function in a shared library.
std::string symbol_of(void* function) {
  Dl_info info;
  if (dladdr(function, &info) == 0 || info.dli_sname == nullptr || info.dli_saddr != function) {
    return "";
  }
  return info.dli_sname;
}

std::atomic<uint64_t> threads_that_waited = 0;

// The previous kernel, until a thread has waited for it. Only this orders its writes before reads
// of other threads: those that do not wait race with it.
std::function<void()> previous_kernel;
std::atomic<bool> previous_pending = false;
std::mutex previous_mutex;

}  // namespace

const std::vector<Kernel>& kernels() { return registered(); }

const Kernel* find_kernel(const std::string& name_or_symbol) {
  for (const Kernel& kernel : registered()) {
    if (kernel.name == name_or_symbol || kernel.symbol == name_or_symbol) return &kernel;
  }
  return nullptr;
}

void register_kernel(const KernelEntry& entry) {
  registered().push_back({
      entry.name,
      symbol_of(reinterpret_cast<void*>(entry.function)),
      {entry.param_bytes, entry.param_bytes + entry.n_params},
      [call = entry.call, function = entry.function](void** params) { call(function, params); },
  });
}

std::vector<void*> Kernel::parameters_at(const void* arguments) const {
  auto* at = static_cast<char*>(const_cast<void*>(arguments));
  std::vector<void*> parameters;
  for (const size_t bytes : param_bytes) {
    parameters.push_back(at);
    at += (bytes + 7) / 8 * 8;
  }
  return parameters;
}

void note_wait() {
  if (await_operation()) return;
  threads_that_waited.fetch_add(1, std::memory_order_relaxed);
  finish_previous_kernel();
}

void finish_previous_kernel() {
  if (previous_pending.load(std::memory_order_acquire)) {
    const std::lock_guard lock(previous_mutex);
    if (previous_pending.load(std::memory_order_relaxed)) {
      previous_kernel();
      races::release(&previous_kernel);
      previous_pending.store(false, std::memory_order_release);
    }
  }
  races::acquire(&previous_kernel);
}

void set_previous_kernel(std::function<void()> function) {
  previous_kernel = std::move(function);
  previous_pending = true;
}

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

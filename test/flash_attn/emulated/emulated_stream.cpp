#include "emulated_stream.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "emulator.h"

namespace flash_attn {

namespace {

constexpr int kComputeMajor = 75, kComputeMinor = 76;

// The driver functions used by a separate library.
struct Driver {
  int (*current_device)(int *device) = nullptr;
  int (*attribute)(int *value, int attribute, int device) = nullptr;
  int (*launch_host_function)(void *stream, void (*function)(void *), void *data) = nullptr;

  Driver() {
    const char *const path = std::getenv("FORGE_CUDA_DRIVER");
    // Only a driver that the program has already opened, so that none is loaded here.
    void *const library = path == nullptr ? nullptr : dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) return;
    const auto load = [&](auto &function, const char *symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
          dlsym(library, symbol));
    };
    load(current_device, "cuCtxGetDevice");
    load(attribute, "cuDeviceGetAttribute");
    load(launch_host_function, "cuLaunchHostFunc");
  }
};

const Driver &driver() {
  static const Driver instance;
  return instance;
}

// Runs `work` in stream order; without a stream, immediately.
void run_on_stream(void *stream, std::function<void()> work) {
  if (stream == nullptr || driver().launch_host_function == nullptr) return work();
  // Never freed, since a graph may replay it until the process ends.
  static std::mutex mutex;
  static std::deque<std::function<void()>> kept;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(work));
  driver().launch_host_function(
      stream, [](void *data) { (*static_cast<std::function<void()> *>(data))(); }, &kept.back());
}

}  // namespace

void run_kernel_on_stream(void *stream, const LaunchShape &shape, const void *data,
                          void (*thread)(const void *data), void (*destroy)(const void *data)) {
  emulator::Launch launch;
  launch.grid = {shape.x, shape.y, shape.z};
  launch.block = {static_cast<unsigned>(shape.threads), 1, 1};
  launch.dynamic_shared = static_cast<size_t>(shape.shared_bytes);
  const std::shared_ptr<const void> work(data, destroy);
  run_on_stream(stream, [=, dependent = shape.dependent] {
    const auto run = [&] { thread(work.get()); };
    if (dependent) {
      emulator::run_dependent_grid(launch, "a dependent kernel", run);
    } else {
      emulator::run_grid(launch, run);
    }
  });
}

void clear_on_stream(void *stream, void *memory, size_t bytes) {
  run_on_stream(stream, [=] { std::memset(memory, 0, bytes); });
}

int32_t driver_capability() {
  if (driver().current_device == nullptr) return 0;
  int device = 0, major = 0, minor = 0;
  if (driver().current_device(&device) != 0) return 0;
  driver().attribute(&major, kComputeMajor, device);
  driver().attribute(&minor, kComputeMinor, device);
  return 10 * major + minor;
}

}  // namespace flash_attn

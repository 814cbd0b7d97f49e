// Exports for other libraries, which put their work on the program's streams as host functions:
// libflash_attn's emulated build and the stand-ins for cuBLASLt and NCCL.

#include <chrono>
#include <thread>

#include "access_guard.h"
#include "exports.h"
#include "launch_log.h"
#include "options.h"

using namespace fake_driver;

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT Result cuCtxGetDevice(DeviceOrdinal* device) {
  return with_context([&](ContextState& context) {
    *device = static_cast<DeviceOrdinal>(&context - state().contexts.data());
    return kSuccess;
  });
}

EXPORT Result cuLaunchHostFunc(Stream stream, void (*function)(void* data), void* data) {
  return with_context([&](ContextState& context) {
    const auto run = [&context, function, data] {
      if (context.failure != kSuccess) return;
      if (is_dry_run()) return log_host_function(reinterpret_cast<const void*>(function));
      const AccessGuard guard(context, "a host function");
      function(data);
    };
    // The function represents a library's kernel.
    stream_of(context, stream).add(run, true);
    return kSuccess;
  });
}

// Enqueues a function that may wait by `fake_cuda_wait`, and so runs without a guard of accesses.
EXPORT Result fake_cuda_enqueue(Stream stream, void (*function)(void* data), void* data) {
  return with_context([&](ContextState& context) {
    const auto run = [&context, function, data] {
      if (context.failure != kSuccess) return;
      if (is_dry_run()) return log_host_function(reinterpret_cast<const void*>(function));
      function(data);
    };
    stream_of(context, stream).add(run, true);
    return kSuccess;
  });
}

// Lets other threads use the driver until they have made a condition true. Returns false after
// about `most_ms`. For functions that run on a stream, which hold the lock.
EXPORT bool fake_cuda_wait(bool (*is_over)(void* data), void* data, int most_ms) {
  for (int waited = 0; !is_over(data); ++waited) {
    if (waited >= most_ms) return false;
    state().mutex.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    state().mutex.lock();
  }
  return true;
}

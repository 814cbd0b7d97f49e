// Exports for other libraries, which put their work on the program's streams as host functions:
// libflash_attn's emulated build and the stand-in for cuBLASLt.
//
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

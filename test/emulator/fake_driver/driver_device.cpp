// Devices, contexts and error texts.

#include <cstdio>

#include "exports.h"
#include "options.h"

using namespace fake_driver;

namespace {

struct ErrorText {
  Result result;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kUnknownError, "CUDA_ERROR_UNKNOWN", "unknown error"},
    {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
};

const ErrorText* find_error(Result result) {
  for (const ErrorText& error : kErrors) {
    if (error.result == result) return &error;
  }
  return nullptr;
}

Result error_part(Result result, const char** text, const char* ErrorText::*part) {
  const ErrorText* error = find_error(result);
  *text = error ? error->*part : nullptr;
  return error ? kSuccess : kInvalidValue;
}

bool is_device(DeviceOrdinal device) {
  return device >= 0 && static_cast<uint64_t>(device) < options().devices;
}

// Aborts if a released device still holds anything.
void require_clean(const ContextState& context) {
  context.memory.require_empty();
  if (!context.pinned.empty()) {
    misuse("the context ends with %zu pinned buffers", context.pinned.size());
  }
  if (!context.streams.empty()) misuse("the context ends with %zu streams", context.streams.size());
  if (!context.events.empty()) misuse("the context ends with %zu events", context.events.size());
  if (!context.modules.empty()) misuse("the context ends with %zu modules", context.modules.size());
  if (!context.graphs.empty()) misuse("the context ends with %zu graphs", context.graphs.size());
}

// Runs when the process ends: every retained context must have been released by then.
__attribute__((destructor)) void check_contexts() {
  if (options().strict_exit == 0) return;
  for (const ContextState& context : state().contexts) {
    if (context.references != 0) misuse("the process ends with a primary context retained");
  }
}

}  // namespace

Result cuInit(unsigned flags) {
  if (flags != 0) misuse("cuInit with flags %u", flags);
  if (options().fail_init != 0) return static_cast<Result>(options().fail_init);
  state().initialised = true;
  return options().devices == 0 ? kNoDevice : kSuccess;
}

Result cuDriverGetVersion(int* version) {
  *version = static_cast<int>(options().version);
  return kSuccess;
}

Result cuGetErrorName(Result result, const char** text) {
  return error_part(result, text, &ErrorText::name);
}

Result cuGetErrorString(Result result, const char** text) {
  return error_part(result, text, &ErrorText::text);
}

Result cuDeviceGetCount(int* count) {
  if (!state().initialised) return kNotInitialized;
  *count = static_cast<int>(options().devices);
  return kSuccess;
}

Result cuDeviceGet(DeviceOrdinal* device, int index) {
  *device = index;
  return is_device(index) ? kSuccess : kInvalidValue;
}

Result cuDeviceGetName(char* name, int capacity, DeviceOrdinal device) {
  if (!is_device(device)) return kInvalidValue;
  std::snprintf(name, static_cast<size_t>(capacity), "Emulated GPU %d", device);
  return kSuccess;
}

Result cuDeviceGetAttribute(int* value, DeviceAttribute attribute, DeviceOrdinal device) {
  if (!is_device(device)) return kInvalidValue;
  const int architecture = static_cast<int>(options().architecture);
  switch (attribute) {
    case DeviceAttribute::compute_major:
      *value = architecture / 10;
      return kSuccess;
    case DeviceAttribute::compute_minor:
      *value = architecture % 10;
      return kSuccess;
    case DeviceAttribute::multiprocessors:
      *value = static_cast<int>(options().multiprocessors);
      return kSuccess;
    case DeviceAttribute::l2_cache_bytes:
      *value = static_cast<int>(options().l2_kib << 10);
      return kSuccess;
    case DeviceAttribute::max_shared_per_block_optin:
      *value = static_cast<int>(options().max_shared_bytes());
      return kSuccess;
  }
  return kInvalidValue;
}

Result cuDeviceTotalMem_v2(size_t* bytes, DeviceOrdinal device) {
  *bytes = options().memory_mib << 20;
  return is_device(device) ? kSuccess : kInvalidValue;
}

Result cuDevicePrimaryCtxRetain(Context* context, DeviceOrdinal device) {
  if (!is_device(device)) return kInvalidValue;
  const std::lock_guard lock(state().mutex);
  ContextState& owned = state().contexts[static_cast<size_t>(device)];
  ++owned.references;
  *context = reinterpret_cast<Context>(&owned);
  return kSuccess;
}

Result cuDevicePrimaryCtxRelease_v2(DeviceOrdinal device) {
  const std::lock_guard lock(state().mutex);
  ContextState& context = state().contexts[static_cast<size_t>(device)];
  if (context.references == 0) misuse("a primary context is released once too often");
  if (--context.references > 0) return kSuccess;
  // The resources of a failed context cannot be released any more.
  if (context.failure == kSuccess) require_clean(context);
  context.failure = kSuccess;
  return kSuccess;
}

Result cuCtxPushCurrent_v2(Context context) {
  auto* pushed = reinterpret_cast<ContextState*>(context);
  if (!pushed || pushed->references == 0) misuse("a context is made current that is not retained");
  context_stack().push_back(pushed);
  return kSuccess;
}

Result cuCtxPopCurrent_v2(Context* context) {
  if (context_stack().empty()) misuse("cuCtxPopCurrent without a current context");
  *context = reinterpret_cast<Context>(context_stack().back());
  context_stack().pop_back();
  return kSuccess;
}

#include "library_end.h"

#if defined(_WIN32)
#include "windows_api.h"
#else
#include <dlfcn.h>
#endif

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <thread>

#include "error.h"

namespace forge {

namespace {

std::atomic<bool> exiting{false};
std::atomic<uint32_t> calls{0};

}  // namespace

#if defined(_WIN32)

void keep_library_loaded() {
  HMODULE self = nullptr;
  const DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_PIN;
  if (!GetModuleHandleExW(flags, reinterpret_cast<LPCWSTR>(&forge_abi_version), &self)) {
    fail(FORGE_INTERNAL, "cannot keep the library loaded");
  }
}

// Windows ends the other threads of a process before it runs handlers, so none is in a call.
void stop_calls_at_exit() {}

#else

namespace {

// A run stops within one operation, which takes milliseconds on any device but an emulated one.
constexpr std::chrono::seconds kLongestWait{10};

// Handlers run in reverse order of registration, and each open device and compiled step may have
// created objects after the previous handler. The number is limited, as the list never shrinks.
constexpr uint32_t kMostHandlers = 64;

void stop_calls() {
  exiting = true;
  const auto until = std::chrono::steady_clock::now() + kLongestWait;
  while (calls != 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

void keep_library_loaded() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&forge_abi_version), &info) == 0) return;
  // The name identifies the loaded library even if its file or the working directory has changed.
  // The handle is never closed.
  static void* const kept = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  if (!kept) fail(FORGE_INTERNAL, "cannot keep ", info.dli_fname, " loaded");
}

void stop_calls_at_exit() {
  static std::atomic<uint32_t> n_handlers{0};
  if (n_handlers.fetch_add(1) < kMostHandlers) std::atexit(stop_calls);
}

#endif

bool is_exiting() { return exiting.load(std::memory_order_relaxed); }

CallInProgress::CallInProgress() : CallInProgress(std::nothrow) {
  if (!is_allowed_) fail(FORGE_CANCELLED, "the process is exiting");
}

CallInProgress::CallInProgress(std::nothrow_t) {
  ++calls;
  is_allowed_ = !exiting;
}

CallInProgress::~CallInProgress() { --calls; }

}  // namespace forge

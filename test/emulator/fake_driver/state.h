#pragma once

// The process-wide state of the stand-in, protected by one lock.

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "../../../csrc/cuda/driver_api.h"
#include "../emulator.h"
#include "device_memory.h"
#include "queue.h"

namespace fake_driver {

using forge::cuda::Result;

constexpr Result kInvalidContext = 201;
constexpr Result kInvalidHandle = 400;
constexpr Result kNotReady = 600;
constexpr Result kCooperativeLaunchTooLarge = 720;
constexpr Result kCaptureUnsupported = 900;

struct ContextState;

struct FunctionState {
  const emulator::Kernel* kernel = nullptr;
  const ContextState* owner = nullptr;
  std::vector<const emulator::Kernel*> operations;  // of step_kernel
  int max_dynamic_shared = 48 * 1024;
};

struct ModuleState {
  std::string image;
  std::vector<FunctionState*> functions;
};

struct ContextState {
  int references = 0;
  DeviceMemory memory;
  std::map<void*, size_t> pinned;
  std::set<StreamQueue*> streams;
  std::set<EventMark*> events;
  std::set<ModuleState*> modules;
  std::set<GraphWork*> graphs;
  // A fatal failure of the context, returned by every later call.
  Result failure = forge::cuda::kSuccess;
  uint64_t allocations = 0, launches = 0, kernels_run = 0, captured = 0, streams_asked = 0;
};

struct State {
  std::mutex mutex;
  std::vector<ContextState> contexts;  // by device
  bool initialised = false;
};

State& state();

// The stack of current contexts of this thread.
std::vector<ContextState*>& context_stack();
ContextState* current();

// Runs `body` under the lock with the current context. Returns the context's failure, or an error
// without a current context.
template <class Body>
Result with_context(Body&& body) {
  const std::lock_guard lock(state().mutex);
  ContextState* context = current();
  if (!context) return kInvalidContext;
  if (context->failure != forge::cuda::kSuccess) return context->failure;
  const Result result = body(*context);
  return context->failure != forge::cuda::kSuccess ? context->failure : result;
}

// True if an event with this number is the n-th, which the options make fail on this device.
bool is_failing(const ContextState& context, uint64_t number, uint64_t n);

// Aborts if memory of another device is among the words of a kernel's arguments.
void require_own_memory(const ContextState& context, const char* kernel,
                        const std::vector<std::string>& arguments);

// Returns the stream of a handle; aborts for an invalid handle.
StreamQueue& stream_of(ContextState& context, forge::cuda::Stream stream);

}  // namespace fake_driver

#pragma once

// The library at the end of its process. A program may end without closing a model: its threads, or
// a run on a thread of Deno's, are then inside the library while Deno unloads libraries and the
// system runs destructors.

#include <atomic>

namespace forge {

// Keeps the library in memory until the process ends. Throws FORGE_INTERNAL where that fails.
void keep_library_loaded();

// Has the process, when it exits, stop the calls in progress and wait for them before it destroys
// what was created before this call, such as the state of a GPU's driver.
void stop_calls_at_exit();

// True from the beginning of the process's exit.
bool is_exiting();

// A call that uses a device, for the length of the object's life. Throws FORGE_CANCELLED once the
// process is exiting.
class CallInProgress {
 public:
  CallInProgress();
  ~CallInProgress();
  CallInProgress(const CallInProgress&) = delete;
  CallInProgress& operator=(const CallInProgress&) = delete;
};

}  // namespace forge

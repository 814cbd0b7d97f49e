#pragma once

// The library at the exit of its process. A program may exit without closing a model: its threads,
// or a run on a thread of Deno, are then inside the library while Deno unloads libraries and the
// system runs destructors.

#include <atomic>
#include <new>

namespace forge {

// Keeps the library loaded until the process ends. Throws FORGE_INTERNAL on failure.
void keep_library_loaded();

// Registers an exit handler that stops the calls in progress and waits for them, before the process
// destroys objects created before this call, such as the state of a GPU driver.
void stop_calls_at_exit();

// True once the process is exiting.
bool is_exiting();

// Counts a call that uses a device while the object lives. The exit handler waits for it.
class CallInProgress {
 public:
  // Throws FORGE_CANCELLED if the process is exiting.
  CallInProgress();
  // Does not throw; the caller asks whether the device may be used.
  explicit CallInProgress(std::nothrow_t);
  ~CallInProgress();
  bool is_allowed() const { return is_allowed_; }
  CallInProgress(const CallInProgress&) = delete;
  CallInProgress& operator=(const CallInProgress&) = delete;

 private:
  bool is_allowed_;
};

}  // namespace forge

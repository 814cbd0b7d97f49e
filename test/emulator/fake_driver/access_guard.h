#pragma once

#include <signal.h>

#include "state.h"

namespace fake_driver {

// During its lifetime, an invalid access is reported with its origin and address.
class AccessGuard {
 public:
  // `what` must outlive the guard.
  AccessGuard(const ContextState& context, const char* what);
  ~AccessGuard();
  AccessGuard(const AccessGuard&) = delete;
  AccessGuard& operator=(const AccessGuard&) = delete;

 private:
  struct sigaction before_[2];
};

}  // namespace fake_driver

#include "access_guard.h"

#include "options.h"

namespace fake_driver {

namespace {

const ContextState* running_context = nullptr;
const char* running = nullptr;

void report_illegal_access(int, siginfo_t* info, void*) {
  char place[128];
  running_context->memory.describe(reinterpret_cast<uint64_t>(info->si_addr), place, sizeof place);
  misuse("%s accesses %s", running, place);
}

}  // namespace

AccessGuard::AccessGuard(const ContextState& context, const char* what) {
  running_context = &context;
  running = what;
  struct sigaction action = {};
  action.sa_sigaction = report_illegal_access;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, &before_[0]);
  sigaction(SIGBUS, &action, &before_[1]);
}

AccessGuard::~AccessGuard() {
  sigaction(SIGSEGV, &before_[0], nullptr);
  sigaction(SIGBUS, &before_[1], nullptr);
}

}  // namespace fake_driver

#include "state.h"

#include <cstring>

#include "options.h"

namespace fake_driver {

State& state() {
  static State* instance = [] {
    auto* created = new State;
    created->contexts.resize(options().devices);
    return created;
  }();
  return *instance;
}

std::vector<ContextState*>& context_stack() {
  static thread_local std::vector<ContextState*> stack;
  return stack;
}

ContextState* current() { return context_stack().empty() ? nullptr : context_stack().back(); }

bool is_failing(const ContextState& context, uint64_t number, uint64_t n) {
  const uint64_t only = options().failing_device;
  const auto device = static_cast<uint64_t>(&context - state().contexts.data());
  return number == n && (only == ~uint64_t{0} || only == device);
}

void require_own_memory(const ContextState& context, const char* kernel,
                        const std::vector<std::string>& arguments) {
  const std::vector<ContextState>& contexts = state().contexts;
  if (contexts.size() < 2) return;
  for (const std::string& argument : arguments) {
    for (size_t at = 0; at + sizeof(uint64_t) <= argument.size(); at += sizeof(uint64_t)) {
      uint64_t address = 0;
      std::memcpy(&address, argument.data() + at, sizeof address);
      // A small number, and padding that still holds half of an address.
      if (static_cast<uint32_t>(address) < 1u << 20) continue;
      for (const ContextState& other : contexts) {
        if (&other == &context || !other.memory.holds(address)) continue;
        misuse("%s on device %zu is given memory of device %zu", kernel,
               static_cast<size_t>(&context - contexts.data()),
               static_cast<size_t>(&other - contexts.data()));
      }
    }
  }
}

StreamQueue& stream_of(ContextState& context, forge::cuda::Stream stream) {
  auto* queue = reinterpret_cast<StreamQueue*>(stream);
  if (!context.streams.contains(queue)) misuse("a stream that does not exist is used");
  return *queue;
}

}  // namespace fake_driver

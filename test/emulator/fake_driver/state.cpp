#include "state.h"

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

StreamQueue& stream_of(ContextState& context, forge::cuda::Stream stream) {
  auto* queue = reinterpret_cast<StreamQueue*>(stream);
  if (!context.streams.contains(queue)) misuse("a stream that does not exist is used");
  return *queue;
}

}  // namespace fake_driver

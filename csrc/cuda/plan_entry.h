#pragma once

#include <variant>

#include "flash_library.h"
#include "launch.h"

namespace forge::cuda {

// A piece of work of a plan. None waits, allocates or reads what the host may change, so that all can
// be captured in a graph.
using PlanEntry = std::variant<Launch, FlashCall>;

inline void enqueue(const PlanEntry& entry, const Device& device) {
  std::visit([&](const auto& work) { work.enqueue(device); }, entry);
}

}  // namespace forge::cuda

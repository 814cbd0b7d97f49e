#pragma once

#include <string>
#include <variant>
#include <vector>

#include "../gpu/step_work.h"
#include "cublaslt.h"
#include "flash_library.h"
#include "launch.h"

namespace forge::cuda {

// A piece of work of a plan. None waits, allocates or reads what the host may change, so that all
// can be captured in a graph.
using PlanEntry = std::variant<Launch, FlashCall, LtCall>;

// `follows_kernel`: see Launch::enqueue.
void enqueue(const PlanEntry& entry, const Device& device, bool follows_kernel);

// One line about a plan for people who tune it: what it was made for, how many entries it has, and
// of which kernels.
std::string plan_summary(const StepShape& shape, const std::vector<PlanEntry>& entries);

}  // namespace forge::cuda

#pragma once

#include <string>
#include <variant>
#include <vector>

#include "../gpu/step_work.h"
#include "cublaslt.h"
#include "flash_library.h"
#include "launch.h"
#include "nccl.h"

namespace forge::cuda {

// One piece of work in a plan. It neither waits, allocates nor reads host memory, so that it can be
// captured in a graph.
using PlanEntry = std::variant<Launch, FlashCall, LtCall, NcclCall>;

// `follows_kernel`: see Launch::enqueue.
void enqueue(const PlanEntry& entry, const Device& device, bool follows_kernel);

// Describes a plan in one line for tuning: its shape, and the number of launches of each kernel.
std::string plan_summary(const StepShape& shape, const std::vector<PlanEntry>& entries);

}  // namespace forge::cuda

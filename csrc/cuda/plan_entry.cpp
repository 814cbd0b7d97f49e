#include "plan_entry.h"

#include <map>

namespace forge::cuda {

namespace {

struct Enqueue {
  const Device& device;
  bool follows_kernel;

  void operator()(const Launch& launch) const { launch.enqueue(device, follows_kernel); }
  void operator()(const auto& call) const { call.enqueue(device); }
};

}  // namespace

void enqueue(const PlanEntry& entry, const Device& device, bool follows_kernel) {
  std::visit(Enqueue{device, follows_kernel}, entry);
}

std::string plan_summary(const StepShape& shape, const std::vector<PlanEntry>& entries) {
  std::map<std::string, uint32_t> counts;
  for (const PlanEntry& entry : entries) {
    ++counts[std::visit([](const auto& work) { return std::string(work.name()); }, entry)];
  }
  std::string text = "plan for " + std::to_string(shape.tokens) + " tokens (" +
                     std::to_string(shape.decode_tokens) + " decoded, " +
                     std::to_string(shape.prefill_tokens) + " of prompts), " +
                     std::to_string(shape.outputs) +
                     " outputs: " + std::to_string(entries.size()) + " launches:";
  for (const auto& [name, count] : counts) text += " " + std::to_string(count) + "x" + name;
  return text;
}

}  // namespace forge::cuda

#include "profile.h"

#include <cstdio>
#include <fstream>

#include "../common/json_text.h"
#include "../gpu/environment.h"

namespace forge::cuda {

std::unique_ptr<Profile> Profile::create(std::shared_ptr<DeviceState> state) {
  std::string path = environment("FORGE_CUDA_PROFILE");
  if (path.empty()) return nullptr;
  return std::unique_ptr<Profile>(new Profile(std::move(state), std::move(path)));
}

Profile::~Profile() {
  write();
  const DeviceScope scope(state_->device);
  const DriverApi& api = state_->device.api();
  for (const Span& span : spans_) {
    if (span.begin) api.event_destroy(span.begin);
    if (span.end) api.event_destroy(span.end);
  }
}

void Profile::begin() {
  const Device& device = state_->device;
  const DriverApi& api = device.api();
  if (names_.size() == spans_.size()) {
    Span& span = spans_.emplace_back();
    device.check(api.event_create(&span.begin, 0), "cuEventCreate");
    device.check(api.event_create(&span.end, 0), "cuEventCreate");
  }
  device.check(api.event_record(spans_[names_.size()].begin, device.stream()), "cuEventRecord");
}

void Profile::end(const std::string& name) {
  const Device& device = state_->device;
  device.check(device.api().event_record(spans_[names_.size()].end, device.stream()),
               "cuEventRecord");
  names_.push_back(name);
}

void Profile::finish_run(uint32_t tokens) {
  const Device& device = state_->device;
  for (size_t i = 0; i < names_.size(); ++i) {
    float milliseconds = 0;
    device.check(device.api().event_elapsed(&milliseconds, spans_[i].begin, spans_[i].end),
                 "cuEventElapsedTime");
    Sum& sum = sums_[{tokens, names_[i]}];
    ++sum.launches;
    sum.microseconds += 1e3 * milliseconds;
  }
  if (!names_.empty()) ++runs_[tokens];
  names_.clear();
}

void Profile::write() const {
  std::ofstream file(path_, std::ios::app);
  for (const auto& [key, sum] : sums_) {
    const auto& [tokens, name] = key;
    char microseconds[32];
    std::snprintf(microseconds, sizeof microseconds, "%.3f", sum.microseconds);
    JsonObject line;
    line.add("tokens", uint64_t{tokens});
    line.add("runs", runs_.at(tokens));
    line.add("kernel", name);
    line.add("launches", sum.launches);
    line.add_raw("microseconds", microseconds);
    file << line.str() << "\n";
  }
}

}  // namespace forge::cuda

#include "rank_group.h"

#include <algorithm>
#include <chrono>

#include "error.h"

namespace forge {

namespace {

// Time between two looks at the stop flag.
constexpr std::chrono::milliseconds kStopInterval(2);

}  // namespace

void RankGroup::meet(const StopFlag* stop) {
  std::unique_lock lock(mutex_);
  const uint64_t meeting = n_meetings_;
  if (++n_arrived_ == parts_.size()) {
    n_arrived_ = 0;
    ++n_meetings_;
    arrival_.notify_all();
    return;
  }
  const auto is_over = [&] { return n_meetings_ != meeting; };
  if (!stop) return arrival_.wait(lock, is_over);
  // By the system's clock: a wait by the steady one needs glibc 2.30.
  const auto next_look = [] { return std::chrono::system_clock::now() + kStopInterval; };
  while (!arrival_.wait_until(lock, next_look(), is_over)) {
    if (!stop->raised()) continue;
    --n_arrived_;
    stop->check();
  }
}

template <class Work>
void RankGroup::exchange(uint32_t rank, const Part& part, const StopFlag& stop, Work&& work) {
  parts_[rank] = part;
  meet(&stop);
  const bool agree =
      std::ranges::all_of(parts_, [&](const Part& other) { return other.n == part.n; });
  if (agree) work();
  // Until all have worked, inputs are read and results written by other ranks.
  meet(nullptr);
  if (!agree) {
    fail(FORGE_INTERNAL, "rank ", rank, " exchanges ", part.n, " numbers, others do not");
  }
}

void RankGroup::sum(uint32_t rank, const float* in, float* out, uint64_t n, const StopFlag& stop) {
  exchange(rank, {in, out, n}, stop, [&] { sum_slice(rank); });
}

void RankGroup::send(const float* in, uint64_t n, const StopFlag& stop) {
  exchange(0, {in, nullptr, n}, stop, [] {});
}

void RankGroup::receive(float* out, uint64_t n, const StopFlag& stop) {
  exchange(1, {nullptr, out, n}, stop, [&] { std::copy_n(parts_[0].in, n, out); });
}

bool RankGroup::all(uint32_t rank, bool says, const StopFlag& stop) {
  parts_[rank].n = says;
  meet(&stop);
  const bool result = std::ranges::all_of(parts_, [](const Part& part) { return part.n != 0; });
  meet(nullptr);  // before the next one writes
  return result;
}

void RankGroup::sum_slice(uint32_t rank) const {
  const uint64_t n = parts_[0].n, n_ranks = parts_.size();
  for (uint64_t i = n * rank / n_ranks; i < n * (rank + 1) / n_ranks; ++i) {
    double sum = 0;
    for (const Part& part : parts_) sum += static_cast<double>(part.in[i]);
    for (const Part& part : parts_) part.out[i] = static_cast<float>(sum);
  }
}

void HostBackend::join(std::span<Backend* const> devices, const GroupPart& part) {
  if (!part.keys.empty()) Backend::join(devices, part);
  const auto n = static_cast<uint32_t>(devices.size());
  const auto links_of = [&](uint32_t device) -> RankLinks& {
    return static_cast<HostBackend*>(devices[device])->links_;
  };
  for (uint32_t device = 0; device < n; ++device) {
    RankLinks& links = links_of(device);
    links = {};
    const GroupPlace at = links.place = place_of(device, n, part.n_stages);
    links.stage =
        at.rank == 0 ? std::make_shared<RankGroup>(at.n_ranks) : links_of(device - 1).stage;
    if (at.stage > 0) links.previous = links_of(device - at.n_ranks).next;
    if (at.stage + 1 < part.n_stages) links.next = std::make_shared<RankGroup>(2);
  }
}

}  // namespace forge

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

void RankGroup::sum(uint32_t rank, const float* in, float* out, uint64_t n, const StopFlag& stop) {
  parts_[rank] = {in, out, n};
  meet(&stop);
  const bool agree =
      std::ranges::all_of(parts_, [&](const Part& part) { return part.n == parts_[0].n; });
  if (agree) sum_slice(rank);
  // Until all slices are complete, inputs are read and results written by other ranks.
  meet(nullptr);
  if (!agree) fail(FORGE_INTERNAL, "all_reduce: rank ", rank, " has ", n, " numbers, others differ");
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

void HostBackend::join(std::span<Backend* const> ranks) {
  const auto group = std::make_shared<RankGroup>(static_cast<uint32_t>(ranks.size()));
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    static_cast<HostBackend*>(ranks[rank])->place_ = {group, rank};
  }
}

}  // namespace forge

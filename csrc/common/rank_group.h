#pragma once

// Devices of one process that divide a model (forge_devices_join).

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backend.h"
#include "step_inputs.h"

namespace forge {

// The ranks of a group of processors, which exchange values through memory.
class RankGroup {
 public:
  explicit RankGroup(uint32_t n_ranks) : parts_(n_ranks) {}

  // Writes the sums of the ranks' `in[n]`, in the order of the ranks, to the `out[n]` of each.
  // Returns when all ranks have called it. Throws FORGE_CANCELLED if the flag is raised before, and
  // FORGE_INTERNAL if the ranks' counts differ.
  void sum(uint32_t rank, const float* in, float* out, uint64_t n, const StopFlag& stop);
  // Returns true if all ranks say so, likewise.
  bool all(uint32_t rank, bool says, const StopFlag& stop);

 private:
  struct Part {
    const float* in;
    float* out;
    uint64_t n;
  };

  // Waits for all ranks; without a flag until they have arrived.
  void meet(const StopFlag* stop);
  void sum_slice(uint32_t rank) const;

  std::mutex mutex_;
  std::condition_variable arrival_;
  uint32_t n_arrived_ = 0;
  uint64_t n_meetings_ = 0;
  std::vector<Part> parts_;  // of each rank
};

// The rank of a device in its group, if it is part of one.
struct RankPlace {
  std::shared_ptr<RankGroup> group;
  uint32_t rank = 0;
};

// A backend of a processor, which may be divided into ranks.
class HostBackend : public Backend {
 public:
  void join(std::span<Backend* const> ranks) override;
  bool is_rank() const override { return place_.group != nullptr; }

 protected:
  RankPlace place_;
};

}  // namespace forge

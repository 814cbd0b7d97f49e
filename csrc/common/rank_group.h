#pragma once

// Processors of one process that divide a model (forge_devices_join).

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backend.h"
#include "step_inputs.h"

namespace forge {

// Threads that meet to exchange values through memory, each with a number.
class RankGroup {
 public:
  explicit RankGroup(uint32_t n_ranks) : parts_(n_ranks) {}

  uint32_t n_ranks() const { return static_cast<uint32_t>(parts_.size()); }

  // Writes the sums of the ranks' `in[n]`, in the order of the ranks, to the `out[n]` of each.
  // Returns when all ranks have called it. Throws FORGE_CANCELLED if the flag is raised before, and
  // FORGE_INTERNAL if the ranks' counts differ.
  void sum(uint32_t rank, const float* in, float* out, uint64_t n, const StopFlag& stop);
  // Of two ranks, the first sends `in[n]` to the `out[n]` of the second, likewise.
  void send(const float* in, uint64_t n, const StopFlag& stop);
  void receive(float* out, uint64_t n, const StopFlag& stop);
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
  // Works on the parts of all ranks once they have arrived, and returns when all have worked.
  template <class Work>
  void exchange(uint32_t rank, const Part& part, const StopFlag& stop, Work&& work);
  void sum_slice(uint32_t rank) const;

  std::mutex mutex_;
  std::condition_variable arrival_;
  uint32_t n_arrived_ = 0;
  uint64_t n_meetings_ = 0;
  std::vector<Part> parts_;  // of each rank
};

// A device's place in its group, and the devices that it exchanges values with; null if it has
// none.
struct RankLinks {
  GroupPlace place;
  std::shared_ptr<RankGroup> stage;
  // With the rank of the same number in the previous and in the next stage.
  std::shared_ptr<RankGroup> previous, next;
};

// A backend of a processor, of which several may divide a model.
class HostBackend : public Backend {
 public:
  void join(std::span<Backend* const> devices, const GroupPart& part) override;
  GroupPlace place() const override { return links_.place; }

 protected:
  RankLinks links_;
};

}  // namespace forge

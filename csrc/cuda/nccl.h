#pragma once

// Devices that divide a model, and their sums by NCCL.

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../common/rank_group.h"
#include "device.h"
#include "nccl_api.h"
#include "shared_library.h"

namespace forge::cuda {

// The ranks of a group. Each has a thread that enqueues its work; all enqueue the same sums in the
// same order.
class NcclGroup {
 public:
  // Finds the library and connects the devices. Throws FORGE_UNSUPPORTED without the library.
  explicit NcclGroup(const std::vector<int>& devices);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  // Meets the other ranks before a run. Returns true if all of them ask for a graph, since NCCL
  // requires that all ranks capture a sum or none. Throws FORGE_CANCELLED if the flag is raised
  // before all have come, and FORGE_DEVICE_FAILED after a failure. Then a run has begun on all
  // ranks, which must not stop before its last sum.
  bool begin_run(uint32_t rank, bool captures, const StopFlag& stop);
  // Ends the sums of all ranks, which would wait for a rank that failed; the group fails from then
  // on.
  void abort(const std::string& reason);

  void enqueue_sum(uint32_t rank, DevicePointer in, DevicePointer out, uint64_t n,
                   const Device& device) const;

 private:
  void check(NcclResult result, const char* what) const;

  std::shared_ptr<const SharedLibrary> library_;
  NcclApi api_{};
  std::vector<NcclComm> comms_;  // of each rank
  RankGroup meeting_;
  std::atomic<bool> is_aborted_{false};
  std::mutex mutex_;
  std::string failure_;
};

// The rank of a device in its group, if it is part of one.
struct NcclRank {
  std::shared_ptr<NcclGroup> group;
  uint32_t rank = 0;
};

// One sum in a plan.
class NcclCall {
 public:
  NcclCall(const NcclRank& place, DevicePointer out, DevicePointer in, uint64_t n)
      : place_(place), out_(out), in_(in), n_(n) {}

  void enqueue(const Device& device) const {
    place_.group->enqueue_sum(place_.rank, in_, out_, n_, device);
  }
  std::string name() const { return "ncclAllReduce"; }

 private:
  NcclRank place_;
  DevicePointer out_, in_;
  uint64_t n_;
};

}  // namespace forge::cuda

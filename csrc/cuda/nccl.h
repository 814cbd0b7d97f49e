#pragma once

// Devices that divide a model, and what they exchange by NCCL.

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

// Exchanges of the operations all_reduce, send and receive.
enum class NcclExchange { sum, send, receive };

// Numbers in the memory of a device that it exchanges; null without any.
struct NcclNumbers {
  DevicePointer in, out;
  uint64_t n;
};

// The library, found at run time.
class Nccl {
 public:
  // Throws FORGE_UNSUPPORTED if the library is missing.
  Nccl();
  const NcclApi& api() const { return api_; }
  // Throws FORGE_DEVICE_FAILED for a result that is no success.
  void check(NcclResult result, const char* what) const;

 private:
  std::shared_ptr<const SharedLibrary> library_;
  NcclApi api_{};
};

// The devices of a group that this process has. Each has a thread that enqueues its work; all ranks
// of a stage enqueue the same sums in the same order, and each sends what the rank of its number in
// the next stage receives.
class NcclGroup {
 public:
  // Connects the devices, with those of other processes once these have called it too.
  NcclGroup(const std::vector<const Device*>& devices, const GroupPart& part);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  GroupPlace place(uint32_t device) const { return place_of(device, n_devices_, n_stages_); }
  // True if other processes have devices of the group.
  bool spans_processes() const { return in_group_.size() < n_devices_; }

  // Meets the other devices of the process before a run. Returns true if all of them ask for a
  // graph, since NCCL requires that all ranks capture a sum or none. Throws FORGE_CANCELLED if the
  // flag is raised before all have come, and FORGE_DEVICE_FAILED after a failure. Then a run has
  // begun on all devices, which must not stop before its last exchange.
  bool begin_run(uint32_t device, bool captures, const StopFlag& stop);
  // Ends the exchanges of all devices, which would wait for one that failed; the group fails from
  // then on.
  void abort(const std::string& reason);

  void enqueue(uint32_t number, NcclExchange kind, const NcclNumbers& numbers,
               const Device& device) const;

 private:
  // Numbers of devices in the group.
  struct Ranks {
    uint32_t begin, end;
  };

  // Connects devices with each other.
  void connect_all(NcclComm* comms, std::span<const Device* const> devices) const;
  // Connects devices, as consecutive ranks, with those of other processes by a key that all have.
  void connect_ranks(NcclComm* comms, std::span<const Device* const> devices, uint32_t n_ranks,
                     uint32_t first_rank, const uint8_t* key) const;

  Nccl nccl_;
  uint32_t n_devices_, n_stages_, first_;
  // Of each device of this process, with the ranks of its stage, and with all devices of the group;
  // null for one rank, and for one stage.
  std::vector<NcclComm> in_stage_, in_group_;
  RankGroup meeting_;
  std::atomic<bool> is_aborted_{false};
  std::mutex mutex_;
  std::string failure_;
};

// The number of a device in its group, if it is part of one.
struct NcclLinks {
  std::shared_ptr<NcclGroup> group;
  uint32_t device = 0;
};

// One exchange in a plan.
class NcclCall {
 public:
  NcclCall(const NcclLinks& links, NcclExchange kind, DevicePointer in, DevicePointer out,
           uint64_t n)
      : links_(links), kind_(kind), numbers_{in, out, n} {}

  void enqueue(const Device& device) const {
    links_.group->enqueue(links_.device, kind_, numbers_, device);
  }
  std::string name() const;

 private:
  NcclLinks links_;
  NcclExchange kind_;
  NcclNumbers numbers_;
};

}  // namespace forge::cuda

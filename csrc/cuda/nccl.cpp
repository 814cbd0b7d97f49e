#include "nccl.h"

#include "../common/error.h"

namespace forge::cuda {

NcclGroup::NcclGroup(const std::vector<int>& devices)
    : comms_(devices.size()), meeting_(static_cast<uint32_t>(devices.size())) {
  LibrarySearch search = find_library(kNcclQuery);
  if (!search.library) fail(FORGE_UNSUPPORTED, search.problem);
  library_ = std::move(search.library);
#define FORGE_NCCL_LOAD(member, symbol, result, parameters) \
  api_.member = reinterpret_cast<decltype(api_.member)>(library_->require_symbol(#symbol));
  FORGE_NCCL_FUNCTIONS(FORGE_NCCL_LOAD)
#undef FORGE_NCCL_LOAD
  check(api_.init_all(comms_.data(), static_cast<int>(devices.size()), devices.data()),
        "ncclCommInitAll");
}

NcclGroup::~NcclGroup() {
  if (is_aborted_) return;
  for (const NcclComm comm : comms_) {
    if (comm) api_.destroy(comm);
  }
}

void NcclGroup::check(NcclResult result, const char* what) const {
  if (result == 0) return;
  fail(FORGE_DEVICE_FAILED, what, " of ", library_->path(), " fails: ", api_.error_text(result));
}

bool NcclGroup::begin_run(uint32_t rank, bool captures, const StopFlag& stop) {
  const bool all_capture = meeting_.all(rank, captures, stop);
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) fail(FORGE_DEVICE_FAILED, "a device of the group failed: ", failure_);
  return all_capture;
}

void NcclGroup::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return;
  failure_ = reason;
  is_aborted_ = true;
  for (const NcclComm comm : comms_) api_.abort(comm);
}

void NcclGroup::enqueue_sum(uint32_t rank, DevicePointer in, DevicePointer out, uint64_t n,
                            const Device& device) const {
  const auto address = [](DevicePointer at) { return reinterpret_cast<void*>(at); };
  if (is_aborted_) fail(FORGE_DEVICE_FAILED, "another device of the group failed");
  check(api_.all_reduce(address(in), address(out), n, kNcclFloat32, kNcclSum, comms_[rank],
                        device.stream()),
        "ncclAllReduce");
  if (device.is_synchronous()) device.synchronize("running ncclAllReduce");
}

}  // namespace forge::cuda

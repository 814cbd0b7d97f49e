#include "nccl.h"

#include "../common/error.h"

namespace forge::cuda {

namespace {

const char* name_of(NcclExchange kind) {
  switch (kind) {
    case NcclExchange::sum:
      return "ncclAllReduce";
    case NcclExchange::send:
      return "ncclSend";
    case NcclExchange::receive:
      return "ncclRecv";
  }
  return "";
}

}  // namespace

NcclGroup::NcclGroup(const std::vector<int>& devices, uint32_t n_stages)
    : n_devices_(static_cast<uint32_t>(devices.size())),
      n_stages_(n_stages),
      in_stage_(devices.size()),
      in_group_(devices.size()),
      meeting_(n_devices_) {
  LibrarySearch search = find_library(kNcclQuery);
  if (!search.library) fail(FORGE_UNSUPPORTED, search.problem);
  library_ = std::move(search.library);
#define FORGE_NCCL_LOAD(member, symbol, result, parameters) \
  api_.member = reinterpret_cast<decltype(api_.member)>(library_->require_symbol(#symbol));
  FORGE_NCCL_FUNCTIONS(FORGE_NCCL_LOAD)
#undef FORGE_NCCL_LOAD
  const auto connect = [&](std::vector<NcclComm>& comms, uint32_t first, uint32_t n) {
    check(api_.init_all(&comms[first], static_cast<int>(n), &devices[first]), "ncclCommInitAll");
  };
  const uint32_t n_ranks = n_devices_ / n_stages;
  for (uint32_t first = 0; n_ranks > 1 && first < n_devices_; first += n_ranks) {
    connect(in_stage_, first, n_ranks);
  }
  if (n_stages > 1) connect(in_group_, 0, n_devices_);
}

NcclGroup::~NcclGroup() {
  if (is_aborted_) return;
  for (const auto& comms : {in_stage_, in_group_}) {
    for (const NcclComm comm : comms) {
      if (comm) api_.destroy(comm);
    }
  }
}

void NcclGroup::check(NcclResult result, const char* what) const {
  if (result == 0) return;
  fail(FORGE_DEVICE_FAILED, what, " of ", library_->path(), " fails: ", api_.error_text(result));
}

bool NcclGroup::begin_run(uint32_t device, bool captures, const StopFlag& stop) {
  const bool all_capture = meeting_.all(device, captures, stop);
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) fail(FORGE_DEVICE_FAILED, "a device of the group failed: ", failure_);
  return all_capture;
}

void NcclGroup::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return;
  failure_ = reason;
  is_aborted_ = true;
  for (const auto& comms : {in_stage_, in_group_}) {
    for (const NcclComm comm : comms) {
      if (comm) api_.abort(comm);
    }
  }
}

void NcclGroup::enqueue(uint32_t number, NcclExchange kind, const NcclNumbers& numbers,
                        const Device& device) const {
  if (is_aborted_) fail(FORGE_DEVICE_FAILED, "another device of the group failed");
  const auto in = reinterpret_cast<void*>(numbers.in), out = reinterpret_cast<void*>(numbers.out);
  const auto stream = device.stream();
  const auto number_of = [&](int64_t stages) {
    return static_cast<int>(number + stages * (n_devices_ / n_stages_));
  };
  NcclResult result = 0;
  switch (kind) {
    case NcclExchange::sum:
      result = api_.all_reduce(in, out, numbers.n, kNcclFloat32, kNcclSum, in_stage_[number], stream);
      break;
    case NcclExchange::send:
      result = api_.send(in, numbers.n, kNcclFloat32, number_of(1), in_group_[number], stream);
      break;
    case NcclExchange::receive:
      result = api_.receive(out, numbers.n, kNcclFloat32, number_of(-1), in_group_[number], stream);
      break;
  }
  check(result, name_of(kind));
  if (device.is_synchronous()) device.synchronize("running " + std::string(name_of(kind)));
}

std::string NcclCall::name() const { return name_of(kind_); }

}  // namespace forge::cuda

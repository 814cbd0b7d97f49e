#include "nccl.h"

#include <algorithm>
#include <cstring>

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

Nccl::Nccl() {
  LibrarySearch search = find_library(kNcclQuery);
  if (!search.library) fail(FORGE_UNSUPPORTED, search.problem);
  library_ = std::move(search.library);
#define FORGE_NCCL_LOAD(member, symbol, result, parameters) \
  api_.member = reinterpret_cast<decltype(api_.member)>(library_->require_symbol(#symbol));
  FORGE_NCCL_FUNCTIONS(FORGE_NCCL_LOAD)
#undef FORGE_NCCL_LOAD
}

void Nccl::check(NcclResult result, const char* what) const {
  if (result == 0) return;
  fail(FORGE_DEVICE_FAILED, what, " of ", library_->path(), " fails: ", api_.error_text(result));
}

NcclGroup::NcclGroup(const std::vector<const Device*>& devices, const GroupPart& part)
    : n_devices_(part.n_devices),
      n_stages_(part.n_stages),
      first_(part.first),
      in_stage_(devices.size()),
      in_group_(devices.size()),
      meeting_(static_cast<uint32_t>(devices.size())) {
  const uint32_t n_ranks = n_devices_ / n_stages_, end = first_ + meeting_.n_ranks();
  const auto connect = [&](std::vector<NcclComm>& comms, Ranks all, uint32_t key) {
    const Ranks own = {std::max(all.begin, first_), std::min(all.end, end)};
    if (all.end - all.begin == 1 || own.begin >= own.end) return;
    const std::span joining(devices.begin() + (own.begin - first_), own.end - own.begin);
    NcclComm* const first = &comms[own.begin - first_];
    if (part.keys.empty()) return connect_all(first, joining);
    const auto* id = part.keys.data() + uint64_t{key} * FORGE_GROUP_KEY_BYTES;
    connect_ranks(first, joining, all.end - all.begin, own.begin - all.begin, id);
  };
  for (uint32_t stage = 0; stage < n_stages_; ++stage) {
    connect(in_stage_, {stage * n_ranks, (stage + 1) * n_ranks}, stage);
  }
  if (n_stages_ > 1) connect(in_group_, {0, n_devices_}, n_stages_);
}

void NcclGroup::connect_all(NcclComm* comms, std::span<const Device* const> devices) const {
  std::vector<int> indices;
  for (const Device* device : devices) indices.push_back(device->properties().index);
  const auto n = static_cast<int>(indices.size());
  nccl_.check(nccl_.api().init_all(comms, n, indices.data()), "ncclCommInitAll");
}

void NcclGroup::connect_ranks(NcclComm* comms, std::span<const Device* const> devices,
                              uint32_t n_ranks, uint32_t first_rank, const uint8_t* key) const {
  NcclUniqueId id;
  std::memcpy(&id, key, sizeof(id));
  const NcclApi& api = nccl_.api();
  nccl_.check(api.group_start(), "ncclGroupStart");
  for (uint32_t i = 0; i < devices.size(); ++i) {
    const DeviceScope scope(*devices[i]);
    const auto rank = static_cast<int>(first_rank + i);
    nccl_.check(api.init_rank(comms + i, static_cast<int>(n_ranks), id, rank), "ncclCommInitRank");
  }
  nccl_.check(api.group_end(), "ncclGroupEnd");
}

NcclGroup::~NcclGroup() {
  if (is_aborted_) return;
  for (const auto& comms : {in_stage_, in_group_}) {
    for (const NcclComm comm : comms) {
      if (comm) nccl_.api().destroy(comm);
    }
  }
}

bool NcclGroup::begin_run(uint32_t device, bool captures, const StopFlag& stop) {
  const bool all_capture = meeting_.all(device - first_, captures, stop);
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
      if (comm) nccl_.api().abort(comm);
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
  const NcclApi& api = nccl_.api();
  const NcclComm stage = in_stage_[number - first_], group = in_group_[number - first_];
  NcclResult result = 0;
  switch (kind) {
    case NcclExchange::sum:
      result = api.all_reduce(in, out, numbers.n, kNcclFloat32, kNcclSum, stage, stream);
      break;
    case NcclExchange::send:
      result = api.send(in, numbers.n, kNcclFloat32, number_of(1), group, stream);
      break;
    case NcclExchange::receive:
      result = api.receive(out, numbers.n, kNcclFloat32, number_of(-1), group, stream);
      break;
  }
  nccl_.check(result, name_of(kind));
  if (device.is_synchronous()) device.synchronize("running " + std::string(name_of(kind)));
}

std::string NcclCall::name() const { return name_of(kind_); }

}  // namespace forge::cuda

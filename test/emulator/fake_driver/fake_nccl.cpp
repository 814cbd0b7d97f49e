// A stand-in for NCCL: sums in stream order once all ranks have come, and ends the program for sums
// that do not match, for communicators that are used wrongly, and for ranks that wait for others
// too long.

#include <dlfcn.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "../../../csrc/cuda/nccl_api.h"

using namespace forge::cuda;

#define FORGE_FAKE_DECLARE(member, symbol, result, parameters) \
  extern "C" __attribute__((visibility("default"))) result symbol parameters;
FORGE_NCCL_FUNCTIONS(FORGE_FAKE_DECLARE)
#undef FORGE_FAKE_DECLARE

namespace {

constexpr NcclResult kOk = 0, kInvalid = 4;
constexpr int kMostWaitMs = 20'000;  // unless FORGE_FAKE_NCCL_WAIT_MS says otherwise

[[noreturn]] __attribute__((format(printf, 1, 2))) void misuse(const char* format, ...) {
  std::fputs("fake NCCL: ", stderr);
  va_list values;
  va_start(values, format);
  std::vfprintf(stderr, format, values);
  va_end(values);
  std::fputc('\n', stderr);
  std::abort();
}

// Functions of the stand-in for the driver (driver_host.cpp).
template <class Function>
Function* of_driver(const char* name) {
  const char* path = std::getenv("FORGE_CUDA_DRIVER");
  void* library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : nullptr;
  void* symbol = library ? dlsym(library, name) : nullptr;
  if (!symbol) misuse("the driver lacks %s", name);
  return reinterpret_cast<Function*>(symbol);
}

int current_device() {
  static const auto get = of_driver<int(int*)>("cuCtxGetDevice");
  int device = -1;
  if (get(&device) != 0) misuse("no context is current");
  return device;
}

// One sum of all ranks.
struct Sum {
  struct Part {
    const float* in = nullptr;
    float* out = nullptr;
    size_t count = 0;
  };
  explicit Sum(size_t n_ranks) : parts(n_ranks) {}
  std::vector<Part> parts;
  size_t n_arrived = 0;
};

// Accessed by work of streams, under the lock of the driver.
struct Group {
  std::vector<int> devices;
  std::vector<uint64_t> n_sums;              // that each rank has begun
  std::vector<std::shared_ptr<Sum>> open;    // begun by some ranks, in order
  uint64_t n_complete = 0;
  std::atomic<bool> is_aborted{false};
};

struct Comm {
  std::shared_ptr<Group> group;
  size_t rank;
};

Comm& the(NcclComm comm) {
  if (!comm) misuse("a null communicator");
  return *reinterpret_cast<Comm*>(comm);
}

struct Wait {
  const Group* group;
  uint64_t index;
};

void report_wait(const Group& group, size_t rank, uint64_t index) {
  std::string missing;
  for (size_t other = 0; other < group.devices.size(); ++other) {
    if (group.n_sums[other] <= index) missing += " " + std::to_string(other);
  }
  misuse("rank %zu waits in sum %lu for the ranks%s", rank, index + 1, missing.c_str());
}

void add(const Sum& sum) {
  for (size_t i = 0; i < sum.parts[0].count; ++i) {
    float total = 0;
    for (const Sum::Part& part : sum.parts) total += part.in[i];
    for (const Sum::Part& part : sum.parts) part.out[i] = total;
  }
}

// A call of one rank, which runs when its stream comes to it.
struct Call {
  std::shared_ptr<Group> group;
  size_t rank;
  Sum::Part part;

  void run() const {
    Group& own = *group;
    if (own.is_aborted) return;
    const uint64_t index = own.n_sums[rank]++;
    while (own.open.size() <= index - own.n_complete) {
      own.open.push_back(std::make_shared<Sum>(own.devices.size()));
    }
    const std::shared_ptr<Sum> sum = own.open[index - own.n_complete];
    for (const Sum::Part& other : sum->parts) {
      if (other.in && other.count != part.count) {
        misuse("sum %lu has %zu numbers on rank %zu, %zu on another", index + 1, part.count, rank,
               other.count);
      }
    }
    sum->parts[rank] = part;
    if (++sum->n_arrived == own.devices.size()) {
      add(*sum);
      own.open.erase(own.open.begin());
      ++own.n_complete;
      return;
    }
    static const auto wait = of_driver<bool(bool (*)(void*), void*, int)>("fake_cuda_wait");
    Wait until{group.get(), index};
    const auto is_over = [](void* data) {
      const Wait& wait = *static_cast<Wait*>(data);
      return wait.group->n_complete > wait.index || wait.group->is_aborted;
    };
    static const char* given = std::getenv("FORGE_FAKE_NCCL_WAIT_MS");
    static const int most = given ? std::atoi(given) : kMostWaitMs;
    if (!wait(is_over, &until, most)) report_wait(own, rank, index);
  }
};

}  // namespace

NcclResult ncclGetVersion(int* version) {
  *version = 22800;
  return kOk;
}

const char* ncclGetErrorString(NcclResult result) {
  return result == kOk ? "no error" : "invalid argument";
}

NcclResult ncclCommInitAll(NcclComm* comms, int n_devices, const int* devices) {
  const auto group = std::make_shared<Group>();
  group->devices.assign(devices, devices + n_devices);
  group->n_sums.resize(static_cast<size_t>(n_devices));
  for (size_t rank = 0; rank < group->devices.size(); ++rank) {
    comms[rank] = reinterpret_cast<NcclComm>(new Comm{group, rank});
  }
  return kOk;
}

NcclResult ncclCommDestroy(NcclComm comm) {
  const Comm& own = the(comm);
  if (!own.group->open.empty()) misuse("a communicator is destroyed during a sum");
  delete &own;
  return kOk;
}

NcclResult ncclCommAbort(NcclComm comm) {
  the(comm).group->is_aborted = true;
  return kOk;
}

NcclResult ncclAllReduce(const void* in, void* out, size_t count, int type, int operation,
                         NcclComm comm, void* stream) {
  const Comm& own = the(comm);
  if (type != kNcclFloat32 || operation != kNcclSum || count == 0) return kInvalid;
  if (current_device() != own.group->devices[own.rank]) {
    misuse("rank %zu is used on device %d", own.rank, current_device());
  }
  // Never freed, since a graph may replay it until the process ends.
  static std::mutex mutex;
  static std::deque<Call> kept;
  const std::lock_guard lock(mutex);
  Call* call = &kept.emplace_back(Call{
      own.group, own.rank, {static_cast<const float*>(in), static_cast<float*>(out), count}});
  static const auto enqueue =
      of_driver<int(void*, void (*)(void*), void*)>("fake_cuda_enqueue");
  return enqueue(stream, [](void* data) { static_cast<Call*>(data)->run(); }, call);
}

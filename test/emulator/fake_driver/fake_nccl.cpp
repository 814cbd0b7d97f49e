// A stand-in for NCCL: sums in stream order once all ranks have come, copies once sender and
// receiver have, and ends the program for sums and messages that do not match, for communicators
// that are used wrongly, and for ranks that wait for others too long. Ranks of several processes of
// one machine exchange values through a file that all of them map.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
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

// Messages from one rank to another, in order.
struct Channel {
  struct Message {
    const float* in = nullptr;
    size_t count = 0;
  };
  std::deque<Message> sent;  // and not yet received
  uint64_t n_sent = 0, n_awaited = 0, n_received = 0;
};

// The most ranks of a group of several processes, and the numbers that a rank passes at a time.
constexpr size_t kMostRanks = 16, kMostNumbers = size_t{1} << 16;

// Memory that the processes of a group share, zeros at first. A rank's counts grow without end.
struct SharedMemory {
  struct Rank {
    std::atomic<uint32_t> has_joined;
    std::atomic<uint64_t> n_begun, n_done;  // pieces of sums: written by the rank, read by it
    uint64_t count;                         // numbers of the sum, or of the message
    float numbers[kMostNumbers];
  };
  struct Channel {
    std::atomic<uint64_t> n_sent, n_received;  // pieces of messages
    uint64_t count;
    float numbers[kMostNumbers];
  };
  std::atomic<uint32_t> n_ranks;
  Rank ranks[kMostRanks];
  Channel channels[kMostRanks];  // to the rank of each number, from the only one that sends to it

  // Maps the memory with a name, which the first process creates.
  static SharedMemory* open(const char* name) {
    const std::string path = std::string("/dev/shm/") + name;
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof(SharedMemory)) != 0) {
      misuse("cannot open %s", path.c_str());
    }
    void* memory =
        mmap(nullptr, sizeof(SharedMemory), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) misuse("cannot map %s", path.c_str());
    return static_cast<SharedMemory*>(memory);
  }
};

// Accessed by work of streams, under the lock of the driver.
struct Group {
  SharedMemory* shared = nullptr;  // of a group of several processes
  std::vector<int> devices;
  std::map<std::pair<size_t, size_t>, Channel> channels;  // by sender and receiver
  std::vector<uint64_t> n_sums;              // that each rank has begun
  std::vector<std::shared_ptr<Sum>> open;    // begun by some ranks, in order
  uint64_t n_complete = 0;
  std::atomic<bool> is_aborted{false};
};

struct Comm {
  std::shared_ptr<Group> group;
  size_t rank;
};

std::atomic<int> n_comms{0};  // neither destroyed nor aborted

// Runs when the process ends: with the driver's option strict_exit, no communicator is left.
__attribute__((destructor)) void check_comms() {
  const char* options = std::getenv("FORGE_FAKE_CUDA");
  const bool is_strict = options && std::strstr(options, "strict_exit=1");
  if (is_strict && n_comms != 0) misuse("the process ends with %d communicators", n_comms.load());
}

Comm& the(NcclComm comm) {
  if (!comm) misuse("a null communicator");
  return *reinterpret_cast<Comm*>(comm);
}

int most_wait_ms() {
  static const char* given = std::getenv("FORGE_FAKE_NCCL_WAIT_MS");
  static const int most = given ? std::atoi(given) : kMostWaitMs;
  return most;
}

// Waits until the group is aborted or a number, such as that of sums that are complete, exceeds an
// index. Returns false after too long.
template <class Number>
bool wait_for(const Group& group, const Number& number, uint64_t index) {
  struct Wait {
    const Group* group;
    const Number* number;
    uint64_t index;
  };
  static const auto wait = of_driver<bool(bool (*)(void*), void*, int)>("fake_cuda_wait");
  Wait until{&group, &number, index};
  const auto is_over = [](void* data) {
    const Wait& wait = *static_cast<Wait*>(data);
    return *wait.number > wait.index || wait.group->is_aborted;
  };
  return wait(is_over, &until, most_wait_ms());
}

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

// A call of one rank, which runs when its stream comes to it: a sum, a message to a peer, or one
// from a peer.
struct Call {
  std::shared_ptr<Group> group;
  size_t rank;
  Sum::Part part;
  int peer = -1;  // of messages

  void run() const {
    if (group->is_aborted) return;
    const auto other = static_cast<size_t>(peer);
    if (group->shared) {
      for (size_t at = 0; at < part.count; at += kMostNumbers) {
        const size_t n = std::min(kMostNumbers, part.count - at);
        if (peer < 0) {
          sum_shared(at, n);
        } else if (part.in) {
          send_shared(group->shared->channels[other], at, n);
        } else {
          receive_shared(group->shared->channels[rank], at, n);
        }
        if (group->is_aborted) return;
      }
      return;
    }
    if (peer < 0) return sum();
    if (part.in) return send(group->channels[{rank, other}]);
    receive(group->channels[{other, rank}]);
  }

  void send(Channel& channel) const {
    const uint64_t index = channel.n_sent++;
    channel.sent.push_back({part.in, part.count});
    if (!wait_for(*group, channel.n_received, index)) {
      misuse("rank %zu waits until rank %d receives message %lu", rank, peer, index + 1);
    }
  }

  void receive(Channel& channel) const {
    const uint64_t index = channel.n_awaited++;
    if (!wait_for(*group, channel.n_sent, index)) {
      misuse("rank %zu waits for message %lu of rank %d", rank, index + 1, peer);
    }
    if (group->is_aborted) return;
    const Channel::Message message = channel.sent.front();
    if (message.count != part.count) {
      misuse("message %lu has %zu numbers on rank %d, %zu on rank %zu", index + 1, message.count,
             peer, part.count, rank);
    }
    std::copy_n(message.in, message.count, part.out);
    channel.sent.pop_front();
    ++channel.n_received;
  }

  // Adds up `n` numbers of all ranks, from `at` on.
  void sum_shared(size_t at, size_t n) const {
    const size_t n_ranks = group->devices.size();
    SharedMemory::Rank* const ranks = group->shared->ranks;
    SharedMemory::Rank& own = ranks[rank];
    const uint64_t index = own.n_done;
    // The numbers of the previous piece have been read by all.
    for (size_t other = 0; other < n_ranks; ++other) {
      if (index > 0) wait_in_sum(ranks[other].n_done, index - 1, other);
    }
    std::copy_n(part.in + at, n, own.numbers);
    own.count = part.count;
    ++own.n_begun;
    for (size_t other = 0; other < n_ranks; ++other) {
      wait_in_sum(ranks[other].n_begun, index, other);
      if (group->is_aborted) return;
      if (ranks[other].count == part.count) continue;
      misuse("a sum has %zu numbers on rank %zu, %zu on rank %zu", part.count, rank,
             size_t{ranks[other].count}, other);
    }
    for (size_t i = 0; i < n; ++i) {
      float total = 0;
      for (size_t other = 0; other < n_ranks; ++other) total += ranks[other].numbers[i];
      part.out[at + i] = total;
    }
    ++own.n_done;
  }

  void wait_in_sum(const std::atomic<uint64_t>& number, uint64_t index, size_t other) const {
    if (wait_for(*group, number, index)) return;
    misuse("rank %zu waits in a sum for the ranks %zu", rank, other);
  }

  void send_shared(SharedMemory::Channel& channel, size_t at, size_t n) const {
    const uint64_t index = channel.n_sent;
    channel.count = part.count;
    std::copy_n(part.in + at, n, channel.numbers);
    ++channel.n_sent;
    if (!wait_for(*group, channel.n_received, index)) {
      misuse("rank %zu waits until rank %d receives a message", rank, peer);
    }
  }

  void receive_shared(SharedMemory::Channel& channel, size_t at, size_t n) const {
    const uint64_t index = channel.n_received;
    if (!wait_for(*group, channel.n_sent, index)) {
      misuse("rank %zu waits for a message of rank %d", rank, peer);
    }
    if (group->is_aborted) return;
    if (channel.count != part.count) {
      misuse("a message has %zu numbers on rank %d, %zu on rank %zu", size_t{channel.count}, peer,
             part.count, rank);
    }
    std::copy_n(channel.numbers, n, part.out + at);
    ++channel.n_received;
  }

  void sum() const {
    Group& own = *group;
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
    if (!wait_for(own, own.n_complete, index)) report_wait(own, rank, index);
  }
};

// Enqueues a call of a communicator's rank.
NcclResult enqueue(const Comm& own, const Sum::Part& part, int type, int peer, void* stream) {
  if (type != kNcclFloat32 || part.count == 0) return kInvalid;
  if (current_device() != own.group->devices[own.rank]) {
    misuse("rank %zu is used on device %d", own.rank, current_device());
  }
  // Never freed, since a graph may replay it, and a thread may run it while the process ends.
  static std::mutex mutex;
  static std::deque<Call>& kept = *new std::deque<Call>;
  const std::lock_guard lock(mutex);
  Call* call = &kept.emplace_back(Call{own.group, own.rank, part, peer});
  static const auto enqueue =
      of_driver<int(void*, void (*)(void*), void*)>("fake_cuda_enqueue");
  return enqueue(stream, [](void* data) { static_cast<Call*>(data)->run(); }, call);
}

// Checks the peer of a message.
bool is_peer(const Comm& own, int peer) {
  const auto number = static_cast<size_t>(peer);
  return peer >= 0 && number < own.group->devices.size() && number != own.rank;
}

// Communicators of the group of calls that a thread has begun, and the names of their memory.
thread_local bool is_grouped = false;
thread_local std::vector<std::pair<std::shared_ptr<Group>, std::string>> joining;

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
    ++n_comms;
  }
  return kOk;
}

NcclResult ncclGetUniqueId(NcclUniqueId* id) {
  static std::atomic<uint32_t> n_ids{0};
  const long long now = std::chrono::steady_clock::now().time_since_epoch().count();
  std::memset(id, 0, sizeof(*id));
  std::snprintf(id->internal, sizeof(id->internal), "forge-fake-nccl-%d-%u-%llx",
                static_cast<int>(getpid()), ++n_ids, static_cast<unsigned long long>(now));
  return kOk;
}

NcclResult ncclGroupStart() {
  if (is_grouped) misuse("a group begins in a group");
  is_grouped = true;
  return kOk;
}

NcclResult ncclCommInitRank(NcclComm* comm, int n_ranks, NcclUniqueId id, int rank) {
  const auto all = static_cast<size_t>(n_ranks), own = static_cast<size_t>(rank);
  if (!is_grouped) misuse("communicators of several processes are made in a group");
  if (n_ranks < 1 || all > kMostRanks || rank < 0 || own >= all) return kInvalid;
  SharedMemory* shared = SharedMemory::open(id.internal);
  if (shared->ranks[own].has_joined++ != 0) misuse("rank %d joins twice", rank);
  shared->n_ranks = static_cast<uint32_t>(n_ranks);
  const auto group = std::make_shared<Group>();
  group->shared = shared;
  group->devices.resize(all, -1);
  group->devices[own] = current_device();
  *comm = reinterpret_cast<NcclComm>(new Comm{group, own});
  ++n_comms;
  joining.push_back({group, id.internal});
  return kOk;
}

// Waits until all ranks of the communicators have joined.
NcclResult ncclGroupEnd() {
  if (!is_grouped) misuse("a group ends that has not begun");
  is_grouped = false;
  int waited = 0;
  for (const auto& [group, name] : std::exchange(joining, {})) {
    for (size_t rank = 0; rank < group->devices.size(); ++rank) {
      while (group->shared->ranks[rank].has_joined == 0) {
        if (waited++ > most_wait_ms()) misuse("rank %zu does not join", rank);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    unlink(("/dev/shm/" + name).c_str());
  }
  return kOk;
}

NcclResult ncclCommDestroy(NcclComm comm) {
  const Comm& own = the(comm);
  if (!own.group->open.empty()) misuse("a communicator is destroyed during a sum");
  for (const auto& [ends, channel] : own.group->channels) {
    if (!channel.sent.empty()) misuse("a communicator is destroyed before a message is received");
  }
  delete &own;
  --n_comms;
  return kOk;
}

NcclResult ncclCommAbort(NcclComm comm) {
  the(comm).group->is_aborted = true;
  --n_comms;
  return kOk;
}

NcclResult ncclAllReduce(const void* in, void* out, size_t count, int type, int operation,
                         NcclComm comm, void* stream) {
  if (operation != kNcclSum) return kInvalid;
  const Sum::Part part{static_cast<const float*>(in), static_cast<float*>(out), count};
  return enqueue(the(comm), part, type, -1, stream);
}

NcclResult ncclSend(const void* in, size_t count, int type, int peer, NcclComm comm, void* stream) {
  if (!is_peer(the(comm), peer)) return kInvalid;
  const Sum::Part part{static_cast<const float*>(in), nullptr, count};
  return enqueue(the(comm), part, type, peer, stream);
}

NcclResult ncclRecv(void* out, size_t count, int type, int peer, NcclComm comm, void* stream) {
  if (!is_peer(the(comm), peer)) return kInvalid;
  const Sum::Part part{nullptr, static_cast<float*>(out), count};
  return enqueue(the(comm), part, type, peer, stream);
}

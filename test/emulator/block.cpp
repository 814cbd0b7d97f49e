#include "block.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>

#include "access_trace.h"
#include "emulator.h"
#include "fiber.h"

// Defined only in a program linked with AddressSanitizer.
extern "C" [[gnu::weak]] void __sanitizer_start_switch_fiber(void** save, const void* stack,
                                                             size_t bytes);

namespace emulator {

namespace {

constexpr uint32_t kWarpLanes = 32;
constexpr uint32_t kMostThreads = 1024;  // of a block; a power of two
// Bytes of NaN, and of the largest numbers, which spoil maxima that ignore NaN.
constexpr int kPoison = 0xff, kLargePoison = 0x7f;

struct AsyncCopy {
  void* to;
  const void* from;
  size_t bytes;
  bool valid;
};

struct Place {
  const char* file = "";
  int line = 0;
};

}  // namespace

struct Thread {
  Position position;
  Fiber* fiber = nullptr;  // null before it starts and after it has finished
  uint32_t number = 0;
  bool finished = false;
  bool has_waited = false;  // in the operation
  bool is_late = false;  // runs only when no other thread and no copy can continue
  const char* waits_for = nullptr;  // null: can run
  Place place;
  // Asynchronous copies, and how many of them are in each committed group.
  std::vector<AsyncCopy> copies;
  std::vector<size_t> copy_groups;
};

namespace {

// Lanes of a warp that wait for each other.
struct Meeting {
  uint32_t mask = 0, arrived = 0;
  WarpOp op = WarpOp::sync;
  void* arguments[kWarpLanes];
  Thread* waiting[kWarpLanes];
};

struct Warp {
  std::vector<Meeting> meetings;
};

// True in a program linked with a sanitizer.
bool is_sanitized() { return races::is_watched() || __sanitizer_start_switch_fiber != nullptr; }

// Seed of the order of threads and blocks; 0: in order.
uint64_t seed_of_environment() {
  const char* const text = std::getenv("FORGE_EMULATOR_SEED");
  return text ? std::strtoull(text, nullptr, 10) : 0;
}

uint64_t order_seed = seed_of_environment();

uint64_t next_random(uint64_t& state) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return state >> 33;
}

// Poisoned shared memory. In a plain build it ends at an inaccessible page, up to an alignment of
// 16 bytes; the padding is checked at the end of the block. Under a sanitizer it is heap memory of
// exactly `bytes` bytes.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept { *this = std::move(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_, other.mapped_);
    std::swap(heap_, other.heap_);
    std::swap(begin_, other.begin_);
    std::swap(bytes_, other.bytes_);
    std::swap(poison_, other.poison_);
    return *this;
  }
  ~SharedMemory() {
    std::free(heap_);
    if (mapping_) munmap(mapping_, mapped_);
  }

  void poison(size_t bytes) {
    static std::atomic<unsigned> times = 0;
    poison_ = times++ % 2 == 0 ? kPoison : kLargePoison;
    const size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    bytes_ = bytes;
    if (is_sanitized()) {
      // Other memory for each block: blocks are not ordered, so reuse would be a race.
      std::free(heap_);
      if (posix_memalign(&heap_, 1024, bytes) != 0) std::abort();
      races::declare(races::kShared, heap_, bytes);
      begin_ = static_cast<char*>(heap_);
      std::memset(begin_, poison_, bytes);
      return;
    }
    const size_t usable = (padded + kPage - 1) / kPage * kPage;
    if (usable + kPage > mapped_) map(usable);
    begin_ = mapping_ + mapped_ - kPage - padded;
    std::memset(begin_, poison_, padded);
  }

  char* begin() const { return begin_; }
  size_t bytes() const { return bytes_; }

  // True if the padding is unchanged.
  bool ends_whole() const {
    if (is_sanitized() || !begin_) return true;
    const char* const end = mapping_ + mapped_ - kPage;
    for (const char* at = begin_ + bytes_; at < end; ++at) {
      if (static_cast<unsigned char>(*at) != poison_) return false;
    }
    return true;
  }

 private:
  static constexpr size_t kPage = 4096, kAlignment = 16;

  void map(size_t usable) {
    if (mapping_) munmap(mapping_, mapped_);
    mapped_ = usable + kPage;
    void* memory =
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    mapping_ = static_cast<char*>(memory);
    mprotect(mapping_ + usable, kPage, PROT_NONE);
  }

  char* mapping_ = nullptr;
  size_t mapped_ = 0;
  void* heap_ = nullptr;
  char* begin_ = nullptr;
  size_t bytes_ = 0;
  int poison_ = kPoison;
};

uint32_t threads_of(const Launch& launch) {
  return launch.block.x * launch.block.y * launch.block.z;
}

// Threads that can run, in the order in which they could first.
class ThreadQueue {
 public:
  bool empty() const { return first_ == end_; }
  void push(Thread* thread) { ring_[end_++ % kSlots] = thread; }
  // Removes the first, or with an order seed any.
  Thread* take(uint64_t& random) {
    Thread*& first = ring_[first_ % kSlots];
    if (order_seed != 0) {
      const uint64_t chosen = next_random(random) * (end_ - first_) >> 31;
      std::swap(first, ring_[(first_ + chosen) % kSlots]);
    }
    ++first_;
    return first;
  }

 private:
  static constexpr uint32_t kSlots = kMostThreads;
  Thread* ring_[kSlots];
  uint32_t first_ = 0, end_ = 0;
};

struct Block {
  std::vector<std::unique_ptr<Thread>> threads;  // reused between blocks
  std::vector<Warp> warps;
  ThreadQueue ready, late;
  uint32_t live = 0;
  std::vector<Thread*> at_barrier;
  std::map<const void*, SharedMemory> shared;  // by declaration, reused between blocks
  std::vector<std::pair<const void*, SharedMemory*>> own_shared;  // those of this block
  SharedMemory dynamic;
  size_t dynamic_bytes = 0;
  size_t shared_bytes = 0, most_shared = 0;
  uint64_t serial = 0;
  char barrier_tag = 0, resident_tag = 0;
  // In a grid whose blocks run at once.
  uint32_t number = 0;
  Operation operation;
  uint32_t members = 0;  // threads of the operation, which meet at its barriers; 0: all
  uint32_t done = 0;  // of them
  std::vector<Thread*> at_resident_barrier;
  std::vector<Thread*> polling;  // until the awaited counter has its arrivals
  std::vector<Thread*> yielding;  // until the block's next turn
};

const std::function<void()>* thread_function = nullptr;
uint64_t random_state = 0;
char launch_tag = 0, end_tag = 0;
const Launch* launched = nullptr;

// The running block, and all of a grid whose blocks run at once.
Block first_block;
Block* now = &first_block;
std::vector<std::unique_ptr<Block>> resident;
Thread* current = nullptr;
bool (*idle_work)() = nullptr;

// The stack of run_grid's caller.
Fiber caller;
std::vector<std::unique_ptr<Fiber>> fibers;
// Fibers without a thread. A new thread takes the one that was left last, whose stack is in the
// cache.
std::vector<Fiber*> idle_fibers;
// Fibers whose threads have finished, if races are watched. They are reused in the next block only:
// ThreadSanitizer takes threads on one fiber for one thread.
std::vector<Fiber*> used_fibers;

void run_threads();

Fiber* idle_fiber() {
  if (idle_fibers.empty()) {
    idle_fibers.push_back(fibers.emplace_back(std::make_unique<Fiber>(run_threads)).get());
  }
  Fiber* const fiber = idle_fibers.back();
  idle_fibers.pop_back();
  return fiber;
}

// Leaves a fiber for the one of a thread, and sets `current`. Returns when a fiber switches back.
void run_thread(Thread* thread, Fiber& from) {
  current = thread;
  if (!thread->fiber) thread->fiber = idle_fiber();
  if (thread->fiber != &from) from.switch_to(*thread->fiber);
}

// Leaves a thread's fiber for that of a thread that can run, or for run_block if there is none.
void run_next_thread(Fiber& from) {
  if (now->ready.empty()) {
    from.switch_to(caller);
  } else {
    run_thread(now->ready.take(random_state), from);
  }
}

void suspend(const char* reason) {
  current->waits_for = reason;
  run_next_thread(*current->fiber);
}

void wake(Thread& thread) {
  thread.waits_for = nullptr;
  (thread.is_late ? now->late : now->ready).push(&thread);
}

void open_barrier() {
  for (Thread* thread : now->at_barrier) wake(*thread);
  now->at_barrier.clear();
}

// The function of each fiber: runs one thread after another.
void run_threads() {
  for (;;) {
    races::acquire(&launch_tag);
    (*thread_function)();
    races::release(&end_tag);
    races::Ignored ignored;
    Thread& self = *current;
    if (!self.copies.empty() || !self.copy_groups.empty()) {
      fail("the thread ends with asynchronous copies in flight");
    }
    Fiber& fiber = *self.fiber;
    self.fiber = nullptr;
    self.finished = true;
    --now->live;
    if (now->live > 0 && now->at_barrier.size() == now->live && now->members == 0) open_barrier();
    (races::is_watched() ? used_fibers : idle_fibers).push_back(&fiber);
    run_next_thread(fiber);
  }
}

// Makes one lane of about every other warp late. Hardware does not guarantee that a lane continues
// soon, so results must not depend on the work of other lanes in the meantime.
void choose_late_threads(uint32_t n) {
  for (uint32_t i = 0; i < n; ++i) now->threads[i]->is_late = false;
  if (order_seed == 0) return;
  for (uint32_t first = 0; first < n; first += kWarpLanes) {
    const uint64_t choice = next_random(random_state);
    if (choice % 2 == 0) continue;
    now->threads[first + choice / 2 % std::min(kWarpLanes, n - first)]->is_late = true;
  }
}

uint64_t blocks_begun = 0;

[[noreturn]] void report_deadlock() {
  uint32_t shown = 0;
  for (const auto& thread : now->threads) {
    if (thread->finished || !thread->waits_for || ++shown > 8) continue;
    std::fprintf(stderr, "  thread %u waits for %s at %s:%d\n", thread->number, thread->waits_for,
                 thread->place.file, thread->place.line);
  }
  current = nullptr;
  fail("deadlock: %u threads wait for others that never come", now->live);
}

// Prepares the threads of the block at a place of its grid.
void place_threads(const Launch& launch, Dim3 at) {
  const Dim3 size = launch.block;
  Dim3 place = {0, 0, 0};
  for (uint32_t i = 0; i < threads_of(launch); ++i) {
    Thread& thread = *now->threads[i];
    thread.number = i;
    thread.finished = false;
    thread.position = {place, at, size, launch.grid, i % kWarpLanes};
    if (++place.x == size.x) {
      place.x = 0;
      if (++place.y == size.y) place.y = 0, ++place.z;
    }
    wake(thread);
  }
}

// Begins the running block.
void begin_block(const Launch& launch, Dim3 at) {
  const uint32_t n = threads_of(launch);
  while (now->threads.size() < n) now->threads.push_back(std::make_unique<Thread>());
  // Warps of an earlier block have no open meetings.
  now->warps.resize(std::max<size_t>(now->warps.size(), (n + kWarpLanes - 1) / kWarpLanes));
  now->own_shared.clear();
  if (launch.dynamic_shared > 0) now->dynamic.poison(launch.dynamic_shared);
  now->dynamic_bytes = now->shared_bytes = launch.dynamic_shared;
  now->most_shared = launch.most_shared;
  now->serial = ++blocks_begun;
  now->members = 0;
  now->operation = {};
  now->live = n;
  choose_late_threads(n);
  place_threads(launch, at);
  // Threads of this block only: extra threads of an earlier, larger block count as finished.
  for (size_t i = n; i < now->threads.size(); ++i) now->threads[i]->finished = true;
}

void run_next_thread() {
  run_thread((now->ready.empty() ? now->late : now->ready).take(random_state), caller);
}

// Runs threads of the running block until none can continue.
void run_ready_threads() {
  while (!now->ready.empty() || !now->late.empty()) {
    run_next_thread();
  }
  current = nullptr;
}

void check_end() {
  const auto check = [](const SharedMemory& memory) {
    if (memory.ends_whole()) return;
    fail("a write past the end of %zu bytes of shared memory", memory.bytes());
  };
  if (now->dynamic_bytes > 0) check(now->dynamic);
  for (const auto& [declaration, array] : now->own_shared) check(*array);
}

void reuse_fibers() {
  idle_fibers.insert(idle_fibers.end(), used_fibers.begin(), used_fibers.end());
  used_fibers.clear();
}

void run_block(const Launch& launch, Dim3 at) {
  races::Ignored ignored;
  begin_block(launch, at);
  while (now->live > 0) {
    if (now->ready.empty() && idle_work != nullptr && idle_work()) continue;
    if (now->ready.empty() && now->late.empty()) report_deadlock();
    run_next_thread();
  }
  current = nullptr;
  reuse_fibers();
  end_traced_block();
  check_end();
}

// The order in which the blocks of a grid run.
std::vector<uint32_t> order_of_blocks(uint64_t n) {
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (uint64_t i = n; order_seed != 0 && i > 1; --i) {
    std::swap(order[i - 1], order[next_random(random_state) % i]);
  }
  return order;
}

bool has_arrivals(const Operation& operation) {
  return __atomic_load_n(operation.awaited, __ATOMIC_RELAXED) >= operation.expected;
}

[[noreturn]] void report_waiting_blocks() {
  for (const auto& each : resident) {
    if (each->live == 0) continue;
    now = each.get();
    const Operation& operation = now->operation;
    if (now->polling.empty()) report_deadlock();
    std::fprintf(stderr, "  block %u waits", now->number);
    if (launched->operations) {
      const char* const name = (*launched->operations)[operation.kernel]->name.c_str();
      std::fprintf(stderr, " in operation %u, %s", operation.index, name);
    }
    std::fprintf(stderr, ": %u of %u arrived\n", *operation.awaited, operation.expected);
  }
  fail("deadlock: blocks wait for arrivals that never come");
}

bool runs_at_once() {
  return launched->at_once && !races::is_watched() && !is_traced_build();
}

// Runs all blocks of a grid at once: each until it waits for arrivals, in turn.
void run_resident_grid(const Launch& launch) {
  races::Ignored ignored;
  if (is_traced_build()) fail("accesses of blocks that run at once cannot be traced");
  // The fences and counters by which blocks wait for each other mean nothing to ThreadSanitizer.
  if (races::is_watched()) fail("races of blocks that run at once cannot be found");
  const auto [x, y, z] = launch.grid;
  const uint32_t n = x * y * z;
  while (resident.size() < n) resident.push_back(std::make_unique<Block>());
  resident.resize(n);
  for (uint32_t i = 0; i < n; ++i) {
    now = resident[i].get();
    now->number = i;
    begin_block(launch, {i % x, i / x % y, i / x / y});
  }
  for (bool is_live = true; is_live;) {
    bool has_run = is_live = false;
    for (const uint32_t i : order_of_blocks(n)) {
      now = resident[i].get();
      if (now->live == 0) continue;
      for (Thread* thread : std::exchange(now->yielding, {})) wake(*thread);
      if (!now->polling.empty() && has_arrivals(now->operation)) {
        for (Thread* thread : now->polling) wake(*thread);
        now->polling.clear();
      }
      has_run |= !now->ready.empty() || !now->late.empty();
      run_ready_threads();
      if (now->live == 0) check_end();
      is_live |= now->live > 0;
    }
    if (is_live && !has_run) report_waiting_blocks();
  }
  reuse_fibers();
  now = &first_block;
}

}  // namespace

void run_grid(const Launch& launch, const std::function<void()>& thread) {
  const uint64_t n = uint64_t{launch.block.x} * launch.block.y * launch.block.z;
  if (n == 0 || n > kMostThreads) {
    fail("a block of %llu threads", static_cast<unsigned long long>(n));
  }
  thread_function = &thread;
  random_state = order_seed;
  races::release(&launch_tag);
  launched = &launch;
  if (launch.operations || runs_at_once()) {
    run_resident_grid(launch);
    races::acquire(&end_tag);
    return;
  }
  const auto [x, y, z] = launch.grid;
  for (const uint32_t i : order_of_blocks(uint64_t{x} * y * z)) {
    run_block(launch, {i % x, i / x % y, i / x / y});
  }
  races::acquire(&end_tag);
}

void set_order_seed(uint64_t seed) { order_seed = seed; }

const Position& position() { return current->position; }

void wait_for_block(const char* file, int line, bool orders_memory) {
  if (orders_memory) races::release(&now->barrier_tag);
  {
    races::Ignored ignored;
    current->place = {file, line};
    // All that wait already were found to be at one barrier.
    if (!now->at_barrier.empty()) {
      const Place& other = now->at_barrier.back()->place;
      if (other.line != line || (other.file != file && std::strcmp(other.file, file) != 0)) {
        fail("threads meet at different barriers: %s:%d and %s:%d", file, line, other.file,
             other.line);
      }
    }
    if (now->at_barrier.size() + 1 == (now->members > 0 ? now->members : now->live)) {
      open_barrier();
    } else {
      now->at_barrier.push_back(current);
      suspend("__syncthreads");
    }
  }
  if (orders_memory) races::acquire(&now->barrier_tag);
}

uint32_t resident_block() { return now->number; }

uint32_t resident_blocks() { return launched->grid.x; }

void wait_for_resident() {
  races::release(&now->resident_tag);
  {
    races::Ignored ignored;
    current->place = {"the barrier between operations", 0};
    if (now->at_resident_barrier.size() + 1 == now->live) {
      for (Thread* thread : now->at_resident_barrier) wake(*thread);
      now->at_resident_barrier.clear();
    } else {
      now->at_resident_barrier.push_back(current);
      suspend("the barrier between operations");
    }
  }
  races::acquire(&now->resident_tag);
}

void enter_operation(const Operation& operation, uint32_t threads, Dim3 grid) {
  {
    races::Ignored ignored;
    const uint32_t n = operation.block;
    Position& position = current->position;
    position.block = {n % grid.x, n / grid.x % grid.y, n / grid.x / grid.y};
    position.grid_size = grid;
    position.block_size = {threads, 1, 1};
    current->has_waited = false;
    if (current->number == 0) {
      now->operation = operation;
      now->members = threads;
      now->done = 0;
    }
  }
  wait_for_resident();
}

const Operation& operation() { return now->operation; }

void leave_operations() {
  {
    races::Ignored ignored;
    current->position.block_size = launched->block;
    if (current->number == 0) now->members = 0;
  }
  wait_for_resident();
}

void run_operation(const void* arguments) {
  const Kernel& kernel = *(*launched->operations)[now->operation.kernel];
  kernel.thread(kernel.parameters_at(arguments).data());
  if (!current->has_waited) {
    fail("%s does not wait for the operation before it", kernel.name.c_str());
  }
  ++now->done;
}

bool await_operation() {
  if (now->members == 0) return false;
  current->has_waited = true;
  const Operation& operation = now->operation;
  if (!operation.awaited) return true;
  if (current->number == 0) {
    {
      races::Ignored ignored;
      current->place = {"arrivals", 0};
      if (!has_arrivals(operation)) {
        now->polling.push_back(current);
        suspend("arrivals at the operation before");
      }
    }
    races::acquire(const_cast<uint32_t*>(operation.awaited));
  }
  wait_for_block("await_operation", 0);
  return true;
}

void arrive(uint32_t* counter) {
  if (now->done != now->members) {
    fail("block %u arrives at operation %u, which %u of %u threads have done", now->number,
         now->operation.index, now->done, now->members);
  }
  races::release(counter);
  __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

void await_count(const uint32_t* counter, uint32_t count) {
  const races::Ignored ignored;
  const auto counted = [&] { return __atomic_load_n(counter, __ATOMIC_RELAXED); };
  if (counted() >= count) return;
  if (!runs_at_once()) fail("a wait for %u of %u, which later blocks count", counted(), count);
  current->place = {"await_count", 0};
  now->operation.awaited = counter;
  now->operation.expected = count;
  now->polling.push_back(current);
  suspend("a count of other blocks");
}

void let_others_run() {
  if (!runs_at_once() || next_random(random_state) % 2 == 0) return;
  const races::Ignored ignored;
  current->place = {"let_others_run", 0};
  now->yielding.push_back(current);
  suspend("the next turn of its block");
}

void collective(uint32_t mask, WarpOp op, void* argument,
                void (*perform)(void* const* arguments, uint32_t mask), const char* file, int line,
                bool orders_memory) {
  Warp& warp = now->warps[current->number / kWarpLanes];
  if (orders_memory) races::release(&warp);
  {
    races::Ignored ignored;
    const uint32_t lane = current->number % kWarpLanes;
    current->place = {file, line};
    if ((mask >> lane & 1) == 0) fail("%s:%d: the lane is not in its own mask", file, line);
    Meeting* meeting = nullptr;
    for (Meeting& candidate : warp.meetings) {
      if (candidate.arrived == 0 || (candidate.mask & mask) == 0) continue;
      if (candidate.mask != mask || candidate.op != op) {
        fail("%s:%d: lanes of a warp meet in different operations or with different masks", file,
             line);
      }
      meeting = &candidate;
    }
    if (!meeting) {
      for (Meeting& candidate : warp.meetings) {
        if (candidate.arrived == 0) meeting = &candidate;
      }
    }
    if (!meeting) meeting = &warp.meetings.emplace_back();
    const size_t index = static_cast<size_t>(meeting - warp.meetings.data());
    meeting->mask = mask;
    meeting->op = op;
    meeting->arguments[lane] = argument;
    meeting->waiting[lane] = current;
    meeting->arrived |= 1u << lane;
    if (meeting->arrived == mask) {
      if (perform) perform(meeting->arguments, mask);
      meeting = &warp.meetings[index];
      meeting->arrived = 0;
      for (uint32_t i = 0; i < kWarpLanes; ++i) {
        if ((mask >> i & 1) != 0 && i != lane) wake(*meeting->waiting[i]);
      }
    } else {
      suspend("the other lanes of its warp");
    }
  }
  if (orders_memory) races::acquire(&warp);
}

MemorySpace space_of(const void* address) {
  if (!current) return MemorySpace::none;
  if (current->fiber->holds(address)) return MemorySpace::stack;
  const auto holds = [&](const SharedMemory& memory) {
    const auto* at = static_cast<const char*>(address);
    return memory.begin() && at >= memory.begin() && at < memory.begin() + memory.bytes();
  };
  if (now->dynamic_bytes > 0 && holds(now->dynamic)) return MemorySpace::shared;
  for (const auto& [declaration, array] : now->own_shared) {
    if (holds(*array)) return MemorySpace::shared;
  }
  return MemorySpace::global;
}

void* shared_array(const void* declaration, size_t bytes) {
  for (const auto& [other, array] : now->own_shared) {
    if (other == declaration) return array->begin();
  }
  races::Ignored ignored;
  SharedMemory& array = now->shared[declaration];
  array.poison(bytes);
  now->own_shared.emplace_back(declaration, &array);
  now->shared_bytes += bytes;
  if (now->shared_bytes > now->most_shared) {
    fail("%zu bytes of shared memory, of which a block has %zu", now->shared_bytes,
         now->most_shared);
  }
  return array.begin();
}

void* dynamic_shared() { return now->dynamic_bytes > 0 ? now->dynamic.begin() : nullptr; }

size_t dynamic_shared_bytes() { return now->dynamic_bytes; }

uint64_t block_serial() { return now->serial; }

uint32_t thread_number() { return current->number; }

void park(const char* reason) {
  races::Ignored ignored;
  current->place = {reason, 0};
  suspend(reason);
}

void unpark(uint32_t thread) { wake(*now->threads[thread]); }

void set_idle(bool (*idle)()) { idle_work = idle; }

void copy_async(void* to, const void* from, size_t bytes, bool valid) {
  const auto misaligned = [&](const void* p) { return reinterpret_cast<uintptr_t>(p) % bytes; };
  if (misaligned(to) || (valid && misaligned(from))) fail("a misaligned asynchronous copy");
  races::write(to, bytes);
  if (valid) races::read(from, bytes);
  std::memset(to, kPoison, bytes);
  races::Ignored ignored;
  current->copies.push_back({to, from, bytes, valid});
}

void commit_async_copies() {
  races::Ignored ignored;
  size_t committed = 0;
  for (const size_t n : current->copy_groups) committed += n;
  current->copy_groups.push_back(current->copies.size() - committed);
}

void wait_async_copies(size_t groups_left) {
  while (current->copy_groups.size() > groups_left) {
    std::vector<AsyncCopy> group;
    {
      races::Ignored ignored;
      auto& copies = current->copies;
      const auto end = copies.begin() + static_cast<std::ptrdiff_t>(current->copy_groups.front());
      group.assign(copies.begin(), end);
      copies.erase(copies.begin(), end);
      current->copy_groups.erase(current->copy_groups.begin());
    }
    for (const AsyncCopy& copy : group) {
      if (copy.valid) {
        std::memcpy(copy.to, copy.from, copy.bytes);
      } else {
        std::memset(copy.to, 0, copy.bytes);
      }
    }
  }
}

void fail(const char* format, ...) {
  std::fprintf(stderr, "emulator: ");
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  if (current) {
    const Position& p = current->position;
    std::fprintf(stderr, " (block %u, %u, %u; thread %u)", p.block.x, p.block.y, p.block.z,
                 current->number);
  }
  if (order_seed != 0) {
    std::fprintf(stderr, "; repeat it with FORGE_EMULATOR_SEED=%llu",
                 static_cast<unsigned long long>(order_seed));
  }
  std::fputc('\n', stderr);
  std::abort();
}

}  // namespace emulator

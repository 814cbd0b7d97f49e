#include "sm90.h"

#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "block.h"
#include "e4m3_sum.h"
#include "fiber.h"

namespace emulator::sm90 {

namespace {

constexpr uint8_t kInitialised = 0x5a;  // not yet fenced for the copy engine
constexpr uint8_t kFenced = 0x5b;
// Granularity of the record of stores.
constexpr uint32_t kPieceBytes = 16;

struct BarrierState {
  int32_t bytes;     // still expected in this phase
  uint8_t arrivals;  // per phase
  uint8_t pending;   // arrivals still expected in this phase
  uint8_t phase;     // parity of the current phase
  uint8_t mark;      // kInitialised or kFenced
};
static_assert(sizeof(BarrierState) == 8);

struct BoxCopy {
  char* to;
  TensorBox tensor;
  uint64_t* barrier;
  int at[4];
};

struct NamedBarrier {
  int arrived = 0;
  int threads = 0;
  std::vector<uint32_t> waiting;
};

// State of the running block.
struct BlockState {
  uint64_t serial = 0;
  std::deque<BoxCopy> copies;
  std::map<uint64_t*, std::vector<uint32_t>> waiting;
  NamedBarrier named[16];
  uint64_t random = 1;
  std::map<uint32_t, uint32_t> unfenced;  // the thread that stored a piece of shared memory
  std::map<uint64_t*, uint32_t> unfenced_barriers;  // the thread that initialised a barrier
};

bool run_one_copy();

BlockState& state() {
  static BlockState block;
  if (block.serial != block_serial()) {
    if (!block.copies.empty()) fail("a block ended with copies of boxes in flight");
    block = BlockState();
    block.serial = block_serial();
    set_idle(run_one_copy);
  }
  return block;
}

BarrierState& barrier_state(uint64_t* barrier) {
  auto& found = *reinterpret_cast<BarrierState*>(barrier);
  if (found.mark != kInitialised && found.mark != kFenced) {
    fail("a barrier is used before it is initialised");
  }
  return found;
}

void end_phase_if_complete(uint64_t* barrier) {
  BarrierState& b = barrier_state(barrier);
  if (b.pending != 0 || b.bytes != 0) return;
  b.phase ^= 1;
  b.pending = b.arrivals;
  auto& waiting = state().waiting[barrier];
  for (const uint32_t thread : waiting) unpark(thread);
  waiting.clear();
}

// The swizzled location of an address in shared memory: address bits above the chunk's are
// exclusive-ored with bits of the row.
uint32_t swizzled(uint32_t address, int swizzle_bytes) {
  const uint32_t rows = swizzle_bytes == 128 ? 7 : 3;
  return address ^ ((address >> 7 & rows) << 4);
}

char* shared_at(uint32_t address, size_t bytes) {
  if (address + bytes > dynamic_shared_bytes()) fail("an address beyond shared memory");
  return static_cast<char*>(dynamic_shared()) + address;
}

// Fails if a thread's stores are not visible to the asynchronous proxy.
void require_fenced(uint32_t address, size_t bytes, const char* what) {
  const auto& unfenced = state().unfenced;
  const auto found = unfenced.lower_bound(address / kPieceBytes);
  if (found == unfenced.end() || found->first * kPieceBytes >= address + bytes) return;
  fail("%s meets what thread %u stored to shared memory without a fence of the asynchronous proxy",
       what, found->second);
}

bool run_one_copy() {
  BlockState& block = state();
  if (block.copies.empty()) return false;
  block.random = block.random * 6364136223846793005u + 1442695040888963407u;
  const size_t index = (block.random >> 33) % block.copies.size();
  const BoxCopy copy = block.copies[index];
  block.copies.erase(block.copies.begin() + static_cast<std::ptrdiff_t>(index));
  const TensorBox& tensor = copy.tensor;
  const uint32_t base = shared_address(copy.to);
  for (int row = 0; row < tensor.box[1]; ++row) {
    for (int column = 0; column < tensor.box[0]; ++column) {
      const int64_t at[4] = {copy.at[0] + column, copy.at[1] + row, copy.at[2], copy.at[3]};
      bool inside = true;
      int64_t offset = 0;
      for (int d = 0; d < 4; ++d) {
        inside = inside && at[d] >= 0 && at[d] < tensor.size[d];
        offset += at[d] * tensor.stride[d];
      }
      uint16_t element = 0;
      if (inside) std::memcpy(&element, tensor.data + offset, sizeof element);
      const auto to = base + static_cast<uint32_t>((row * tensor.box[0] + column) * 2);
      std::memcpy(shared_at(swizzled(to, tensor.swizzle_bytes), 2), &element, sizeof element);
    }
  }
  barrier_state(copy.barrier).bytes -= tensor.box[0] * tensor.box[1] * 2;
  end_phase_if_complete(copy.barrier);
  return true;
}

// Registers of a thread, with their contents at its last fence of products.
using Registers = std::vector<uint32_t>;

// Products of the running threads, by thread number.
struct ThreadProducts {
  uint64_t serial = 0;
  std::vector<Product> open;
  std::deque<std::vector<Product>> groups;
  bool is_fenced = false;
  std::map<const void*, Registers> fenced;  // registers of earlier products
};

// Word by word: a sanitizer would refuse to copy a variable whose scope has ended.
void keep(const void* at, Registers& contents) {
  const auto* from = static_cast<const volatile uint32_t*>(at);
  for (uint32_t& word : contents) word = *from++;
}

// Fails if registers have changed since the last fence; later fences keep their contents.
void require_fenced_registers(ThreadProducts& own, const void* at, int count) {
  if (!own.is_fenced) fail("a product without a fence of the registers that it uses");
  const auto bytes = static_cast<size_t>(count) * sizeof(uint32_t);
  const auto [known, is_new] = own.fenced.try_emplace(at, static_cast<size_t>(count));
  if (is_new || known->second.size() * sizeof(uint32_t) != bytes) {
    known->second.resize(static_cast<size_t>(count));
    keep(at, known->second);
  } else if (std::memcmp(at, known->second.data(), bytes) != 0) {
    fail("a product uses registers that were changed after the last fence");
  }
}

ThreadProducts& products() {
  static std::map<uint32_t, ThreadProducts> by_thread;
  ThreadProducts& own = by_thread[thread_number()];
  if (own.serial != block_serial()) {
    own = ThreadProducts();
    own.serial = block_serial();
  }
  return own;
}

struct Operand {
  uint32_t start;
  uint32_t leading;
  uint32_t stride;
  int row_bytes;

  explicit Operand(uint64_t descriptor)
      : start(static_cast<uint32_t>(descriptor & 0x3fff) << 4),
        leading(static_cast<uint32_t>(descriptor >> 16 & 0x3fff) << 4),
        stride(static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4) {
    const auto swizzle = descriptor >> 62;
    if (swizzle != 1 && swizzle != 2) fail("an operand without a swizzle of 128 or 64 bytes");
    row_bytes = swizzle == 1 ? 128 : 64;
  }

  // Address of the element of row (or column) `i` at depth `k`.
  uint32_t at(int i, int k, bool transposed) const {
    const int across = transposed ? k : i;
    const int along = transposed ? i : k;
    uint32_t address = start + static_cast<uint32_t>(across % 8 * row_bytes) +
                       static_cast<uint32_t>(across / 8) * stride;
    const int panel = row_bytes / 2;
    if (transposed) address += static_cast<uint32_t>(along / panel) * leading;
    address += static_cast<uint32_t>((transposed ? along % panel : along) * 2);
    return swizzled(address, row_bytes);
  }
};

// The 16 bits at depth `k` of row (or column) `i` of an operand.
uint16_t load(const Operand& operand, int i, int k, bool transposed) {
  uint16_t bits;
  const uint32_t address = operand.at(i, k, transposed);
  require_fenced(address, sizeof bits, "a product");
  std::memcpy(&bits, shared_at(address, 2), sizeof bits);
  return bits;
}

void check_same(const Product& a, const Product& b) {
  if (a.columns != b.columns || a.each != b.each || a.a_descriptor != b.a_descriptor ||
      a.b_descriptor != b.b_descriptor || (a.a == nullptr) != (b.a == nullptr)) {
    fail("lanes of a warp issue different products");
  }
}

// One product for the 16 rows of a warp. Fragments have the layout of mma.m16n8k16.
void perform_product(const std::vector<const Product*>& lanes, int first_row) {
  const Product& first = *lanes[0];
  // Eight columns at a time, each of which adds its products in the order of their depth.
  typedef float Columns __attribute__((vector_size(32)));
  static float a[16][32], b[32][256], sums[16][256];
  const int each = first.each;
  for (const Product* lane : lanes) check_same(first, *lane);
  if (first.a == nullptr) {
    const Operand operand(first.a_descriptor);
    for (int i = 0; i < 16; ++i) {
      for (int k = 0; k < 16; ++k) {
        const uint16_t bits = load(operand, first_row + i, k, false);
        for (int e = 0; e < each; ++e) a[i][k * each + e] = first.value_of(bits, e);
      }
    }
  } else {
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 4; ++i) {
        for (int e = 0; e < 2 * each; ++e) {
          a[lane / 4 + 8 * (i % 2)][lane % 4 * 2 * each + e + 8 * each * (i / 2)] =
              first.value_of(lanes[static_cast<size_t>(lane)]->a[i], e);
        }
      }
    }
  }
  const Operand operand(first.b_descriptor);
  for (int n = 0; n < first.columns; ++n) {
    for (int k = 0; k < 16; ++k) {
      const uint16_t bits = load(operand, n, k, first.b_transposed);
      for (int e = 0; e < each; ++e) b[k * each + e][n] = first.value_of(bits, e);
    }
  }
  // Sets each element of C by its row, its column, and its value before.
  const auto update = [&](auto&& sum_of) {
    for (int lane = 0; lane < 32; ++lane) {
      const Product& own = *lanes[static_cast<size_t>(lane)];
      for (int i = 0; i < first.columns / 2; ++i) {
        const int row = lane / 4 + 8 * (i % 4 / 2), n = i / 4 * 8 + lane % 4 * 2 + i % 2;
        own.c[i] = sum_of(row, n, own.accumulate ? own.c[i] : 0);
      }
    }
  };
  if (each == 2) {
    update([&](int row, int n, float before) {
      float column[kE4m3Depth];
      for (int k = 0; k < kE4m3Depth; ++k) column[k] = b[k][n];
      return add_e4m3_products(before, a[row], column);
    });
    return;
  }
  for (int row = 0; row < 16; ++row) {
    for (int n = 0; n < first.columns; n += 8) {
      Columns sum = {}, factors;
      for (int k = 0; k < 16; ++k) {
        std::memcpy(&factors, &b[k][n], sizeof factors);
        sum += a[row][k] * factors;
      }
      std::memcpy(&sums[row][n], &sum, sizeof sum);
    }
  }
  update([&](int row, int n, float before) { return before + sums[row][n]; });
}

struct WaitArgument {
  const std::vector<Product>* group;
  int first_row;
};

void perform_group(void* const* arguments, uint32_t) {
  const auto& first = *static_cast<WaitArgument*>(arguments[0]);
  for (size_t i = 0; i < first.group->size(); ++i) {
    std::vector<const Product*> lanes;
    for (int lane = 0; lane < 32; ++lane) {
      const auto& group = *static_cast<WaitArgument*>(arguments[lane])->group;
      if (group.size() != first.group->size()) fail("lanes of a warp issue different products");
      lanes.push_back(&group[i]);
    }
    perform_product(lanes, first.first_row);
  }
}

// Reports the operands as reads of the kernel, for race detection.
void report_reads(const Product& product, int first_row) {
  const auto report = [](const Operand& operand, int rows, int from, bool transposed) {
    for (int i = 0; i < rows; i += transposed ? 8 : 1) {
      for (int k = 0; k < 16; k += transposed ? 1 : 8) {
        races::read(shared_at(operand.at(from + i, k, transposed), 16), 16);
      }
    }
  };
  if (product.a == nullptr) report(Operand(product.a_descriptor), 16, first_row, false);
  report(Operand(product.b_descriptor), product.columns, 0, product.b_transposed);
}

}  // namespace

uint32_t shared_address(const void* pointer) {
  const auto offset = static_cast<const char*>(pointer) - static_cast<char*>(dynamic_shared());
  if (offset < 0 || static_cast<size_t>(offset) >= dynamic_shared_bytes()) {
    fail("an address outside dynamic shared memory");
  }
  return static_cast<uint32_t>(offset);
}

void barrier_init(uint64_t* barrier, int arrivals) {
  const auto count = static_cast<uint8_t>(arrivals);
  const BarrierState initial = {0, count, count, 0, kInitialised};
  std::memcpy(static_cast<void*>(barrier), &initial, sizeof initial);
  races::Ignored ignored;
  state().unfenced_barriers[barrier] = thread_number();
}

void barrier_init_fence() {
  races::Ignored ignored;
  std::erase_if(state().unfenced_barriers, [](const auto& entry) {
    if (entry.second != thread_number()) return false;
    barrier_state(entry.first).mark = kFenced;
    return true;
  });
}

void note_store(const void* to, size_t bytes) {
  const auto offset = static_cast<const char*>(to) - static_cast<char*>(dynamic_shared());
  if (offset < 0 || static_cast<size_t>(offset) >= dynamic_shared_bytes()) return;
  races::Ignored ignored;
  const auto first = static_cast<uint32_t>(offset);
  for (uint32_t piece = first / kPieceBytes; piece * kPieceBytes < first + bytes; ++piece) {
    state().unfenced[piece] = thread_number();
  }
}

void async_proxy_fence() {
  races::Ignored ignored;
  std::erase_if(state().unfenced,
                [](const auto& entry) { return entry.second == thread_number(); });
}

void barrier_arrive(uint64_t* barrier, int bytes) {
  races::release(barrier);
  races::Ignored ignored;
  BarrierState& b = barrier_state(barrier);
  if (b.pending == 0) fail("more arrivals at a barrier than a phase has");
  b.bytes += bytes;
  --b.pending;
  end_phase_if_complete(barrier);
}

void barrier_wait(uint64_t* barrier, int parity) {
  while (barrier_state(barrier).phase == parity) {
    {
      races::Ignored ignored;
      state().waiting[barrier].push_back(thread_number());
    }
    park("a phase of an mbarrier");
  }
  races::acquire(barrier);
}

void named_barrier(int number, int threads, bool waits) {
  races::Ignored ignored;
  NamedBarrier& barrier = state().named[number];
  races::release(&barrier);
  if (barrier.arrived > 0 && barrier.threads != threads) {
    fail("threads come to named barrier %d for %d and for %d threads", number, threads,
         barrier.threads);
  }
  barrier.threads = threads;
  if (++barrier.arrived == threads) {
    barrier.arrived = 0;
    for (const uint32_t thread : barrier.waiting) unpark(thread);
    barrier.waiting.clear();
  } else if (waits) {
    barrier.waiting.push_back(thread_number());
    park("a named barrier");
  }
  if (waits) races::acquire(&barrier);
}

bool describe_box(TensorBox& box, const void* data, const uint64_t (&sizes)[4],
                  const uint64_t (&strides)[3], int32_t columns, int32_t rows) {
  for (const uint64_t size : sizes) {
    if (size < 1 || size > uint64_t{1} << 32) return false;
  }
  for (const uint64_t stride : strides) {
    if (stride == 0 || stride % 16 != 0 || stride >= uint64_t{1} << 40) return false;
  }
  const auto address = reinterpret_cast<uintptr_t>(data);
  if (address == 0 || address % 16 != 0) return false;
  if (rows < 1 || rows > 256 || (columns != 64 && columns != 32)) return false;
  box = {static_cast<const char*>(data), {}, {2}, {columns, rows}, columns * 2};
  for (int i = 0; i < 4; ++i) box.size[i] = static_cast<int64_t>(sizes[i]);
  for (int i = 0; i < 3; ++i) box.stride[i + 1] = static_cast<int64_t>(strides[i]);
  return true;
}

void copy_box(void* shared, const TensorBox& tensor, uint64_t* barrier, const int (&at)[4]) {
  const auto bytes = static_cast<size_t>(tensor.box[0]) * static_cast<size_t>(tensor.box[1]) * 2;
  const uint32_t address = shared_address(shared);
  // The swizzle's pattern repeats after eight rows.
  if (address % static_cast<uint32_t>(8 * tensor.swizzle_bytes) != 0) fail("a misaligned box");
  if (tensor.box[0] * 2 != tensor.swizzle_bytes) fail("a box whose rows are not one swizzle wide");
  shared_at(address, bytes);
  if (barrier_state(barrier).mark != kFenced) {
    fail("a copy signals a barrier that was initialised and not fenced");
  }
  races::write(shared, bytes);
  races::release(barrier);
  races::Ignored ignored;
  require_fenced(address, bytes, "a copy");
  std::memset(shared, 0xff, bytes);
  state().copies.push_back(
      {static_cast<char*>(shared), tensor, barrier, {at[0], at[1], at[2], at[3]}});
}

void product_fence() {
  races::Ignored ignored;
  ThreadProducts& own = products();
  own.is_fenced = true;
  for (auto& [at, contents] : own.fenced) keep(at, contents);
}

void issue_product(const Product& product) {
  races::Ignored ignored;
  ThreadProducts& own = products();
  require_fenced_registers(own, product.c, product.columns / 2);
  if (product.a != nullptr) require_fenced_registers(own, product.a, 4);
  own.open.push_back(product);
}

void commit_products() {
  races::Ignored ignored;
  ThreadProducts& own = products();
  own.groups.push_back(std::move(own.open));
  own.open.clear();
}

void wait_products(size_t groups_left) {
  const int first_row = static_cast<int>(thread_number() / 32 % 4 * 16);
  while (products().groups.size() > groups_left) {
    const std::vector<Product> group = products().groups.front();
    if (position().lane == 0) {
      for (const Product& product : group) report_reads(product, first_row);
    }
    products().groups.pop_front();
    WaitArgument argument = {&group, first_row};
    collective(0xffffffffu, WarpOp::wgmma, &argument, perform_group, "wgmma.wait_group", 0);
  }
  products().is_fenced = false;
}

}  // namespace emulator::sm90

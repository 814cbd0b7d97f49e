#include "access_trace.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <map>
#include <unordered_map>
#include <vector>

#include "block.h"

namespace emulator {

namespace {

constexpr uint32_t kLanes = 32;
constexpr uint64_t kSector = 32, kBankBytes = 128;

const char* trace_path() {
  static const char* const path = std::getenv("FORGE_EMULATOR_TRACE");
  return path;
}

struct Sums {
  uint64_t requests = 0, sectors = 0, ideal_sectors = 0, cycles = 0, ideal_cycles = 0;
};

// The accesses of one warp by one instruction. Lanes execute it equally often, so the n-th accesses
// of all lanes are one request.
struct Site {
  Access access;
  MemorySpace space;
  uint32_t bytes;
  std::array<uint32_t, kLanes> count = {};
  std::vector<std::array<uint64_t, kLanes>> requests;
};

using SiteKey = std::pair<uint32_t, const void*>;  // warp and instruction
std::map<SiteKey, Site> sites;
Sums global_loads, global_stores, shared;
bool (*is_global)(const void* address) = nullptr;

// The last access. This compiler copies 16 bytes as two words of 8.
struct Last {
  uint32_t thread = 0;
  const void* instruction = nullptr;
  Access access = Access::load;
  uint64_t address = 0;
  size_t bytes = 0;
} last;
uint64_t l2_bytes = 0;

// The sectors that were used last.
class Cache {
 public:
  // True if the sector was there.
  bool touch(uint64_t sector) {
    const auto found = places_.find(sector);
    const bool hit = found != places_.end();
    if (hit) order_.erase(found->second);
    order_.push_front(sector);
    places_[sector] = order_.begin();
    if (order_.size() > kSectors) {
      places_.erase(order_.back());
      order_.pop_back();
    }
    return hit;
  }

 private:
  static constexpr size_t kSectors = 128 * 1024 / kSector;
  std::list<uint64_t> order_;
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> places_;
};
Cache l1;

uint64_t divide_up(uint64_t n, uint64_t by) { return (n + by - 1) / by; }

void sort_unique(std::vector<uint64_t>& list) {
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
}

// Adds one request. Lanes access the banks in groups that together have up to 128 bytes.
void add_request(Sums& sums, const std::array<uint64_t, kLanes>& addresses, uint32_t bytes) {
  std::vector<uint64_t> sectors, units;
  const uint64_t slots = std::max<uint64_t>(1, kBankBytes / std::max(4u, bytes));
  const auto lanes = static_cast<uint32_t>(std::min<uint64_t>(kLanes, slots));
  uint64_t cycles = 0, ideal = 0;
  for (uint32_t first = 0; first < kLanes; first += lanes) {
    std::vector<uint64_t> own;
    for (uint32_t lane = first; lane < first + lanes; ++lane) {
      if (addresses[lane] == 0) continue;
      own.push_back(addresses[lane] / std::max(4u, bytes));
      units.push_back(addresses[lane] / bytes);
      for (uint64_t at = addresses[lane]; at < addresses[lane] + bytes; at += kSector) {
        sectors.push_back(at / kSector);
      }
      sectors.push_back((addresses[lane] + bytes - 1) / kSector);
    }
    if (own.empty()) continue;
    sort_unique(own);
    std::map<uint64_t, uint64_t> in_bank;
    for (const uint64_t unit : own) ++in_bank[unit % slots];
    uint64_t most = 0;
    for (const auto& [bank, count] : in_bank) most = std::max(most, count);
    cycles += most;
    ideal += divide_up(own.size(), slots);
  }
  sort_unique(sectors);
  sort_unique(units);
  // All halves of larger accesses.
  if (sectors.empty()) return;
  ++sums.requests;
  sums.sectors += sectors.size();
  sums.ideal_sectors += divide_up(units.size() * bytes, kSector);
  sums.cycles += cycles;
  sums.ideal_cycles += ideal;
}

void add_access(const SiteKey& key, Site&& site, uint32_t lane, uint64_t address) {
  Site& known = sites.try_emplace(key, std::move(site)).first->second;
  const uint32_t n = known.count[lane]++;
  if (n == known.requests.size()) known.requests.emplace_back();
  known.requests[n][lane] = address;
}

void write_sums(std::FILE* file, const char* name, const Sums& sums) {
  const auto number = [](uint64_t n) { return static_cast<unsigned long long>(n); };
  std::fprintf(file,
               ",\"%s\":{\"requests\":%llu,\"sectors\":%llu,\"ideal_sectors\":%llu,"
               "\"cycles\":%llu,\"ideal_cycles\":%llu}",
               name, number(sums.requests), number(sums.sectors), number(sums.ideal_sectors),
               number(sums.cycles), number(sums.ideal_cycles));
}

}  // namespace

void trace_access(const void* instruction, Access access, const void* address, size_t bytes) {
  if (!trace_path() || bytes == 0) return;
  const MemorySpace space = space_of(address);
  if (space == MemorySpace::none || space == MemorySpace::stack) return;
  if (space == MemorySpace::global && !(is_global && is_global(address))) return;
  const uint32_t thread = thread_number();
  const auto at = reinterpret_cast<uint64_t>(address);
  const uint32_t warp = thread / kLanes, lane = thread % kLanes;
  if (bytes == 8 && last.bytes == 8 && last.thread == thread && last.access == access &&
      last.address + 8 == at && last.address % 16 == 0) {
    Site& half = sites.at({warp, last.instruction});
    half.requests[--half.count[lane]][lane] = 0;
    const void* const both = static_cast<const char*>(last.instruction) + 1;
    last = {};
    return add_access({warp, both}, {access, space, 16, {}, {}}, lane, at - 8);
  }
  last = {thread, instruction, access, at, bytes};
  add_access({warp, instruction}, {access, space, static_cast<uint32_t>(bytes), {}, {}}, lane, at);
}

namespace {

// Loads in the order of warps that advance together; the emulator runs one thread after another.
void load_through_l1() {
  for (size_t n = 0, left = 1; left > 0; ++n) {
    left = 0;
    for (const auto& [key, site] : sites) {
      if (site.space != MemorySpace::global || site.access != Access::load) continue;
      if (n >= site.requests.size()) continue;
      ++left;
      for (const uint64_t at : site.requests[n]) {
        if (at == 0) continue;
        for (uint64_t sector = at / kSector; sector <= (at + site.bytes - 1) / kSector; ++sector) {
          if (!l1.touch(sector)) l2_bytes += kSector;
        }
      }
    }
  }
}

}  // namespace

void end_traced_block() {
  if (!trace_path()) return;
  load_through_l1();
  for (const auto& [key, site] : sites) {
    Sums& sums = site.space == MemorySpace::shared ? shared
                 : site.access == Access::load     ? global_loads
                                                   : global_stores;
    for (const auto& request : site.requests) add_request(sums, request, site.bytes);
  }
  sites.clear();
  last = {};
}

void set_traced_memory(bool (*holds)(const void* address)) { is_global = holds; }

void end_traced_kernel(const std::string& kernel) {
  if (!trace_path()) return;
  if (std::FILE* file = std::fopen(trace_path(), "a")) {
    std::fprintf(file, "{\"kernel\":\"%s\",\"l2_bytes\":%llu", kernel.c_str(),
                 static_cast<unsigned long long>(l2_bytes));
    write_sums(file, "global_loads", global_loads);
    write_sums(file, "global_stores", global_stores);
    write_sums(file, "shared", shared);
    std::fputs("}\n", file);
    std::fclose(file);
  }
  global_loads = global_stores = shared = {};
  l2_bytes = 0;
  l1 = {};
}

bool is_traced_build() {
#ifdef FORGE_TRACED
  return true;
#else
  return false;
#endif
}

}  // namespace emulator

// Calls before each access with -fsanitize=kernel-address. AddressSanitizer has
// functions of the same names.
#ifdef FORGE_TRACED
#define TRACE_CALLBACKS(bytes)                                                             \
  extern "C" void __asan_load##bytes##_noabort(const void* address) {                     \
    emulator::trace_access(__builtin_return_address(0), emulator::Access::load, address,  \
                           bytes);                                                         \
  }                                                                                        \
  extern "C" void __asan_store##bytes##_noabort(const void* address) {                    \
    emulator::trace_access(__builtin_return_address(0), emulator::Access::store, address, \
                           bytes);                                                         \
  }
TRACE_CALLBACKS(1)
TRACE_CALLBACKS(2)
TRACE_CALLBACKS(4)
TRACE_CALLBACKS(8)
TRACE_CALLBACKS(16)
extern "C" void __asan_loadN_noabort(const void* address, size_t bytes) {
  emulator::trace_access(__builtin_return_address(0), emulator::Access::load, address, bytes);
}
extern "C" void __asan_storeN_noabort(const void* address, size_t bytes) {
  emulator::trace_access(__builtin_return_address(0), emulator::Access::store, address, bytes);
}
extern "C" void __asan_handle_no_return() {}
extern "C" void __asan_before_dynamic_init(const char*) {}
extern "C" void __asan_after_dynamic_init() {}
#endif

// Operations that blocks compute while they stay on the device (step_kernel.cuh).

#include "launch.h"

namespace {

using StepTable = cuda_args::StepTable<const void*>;
using cuda_args::StepOperation;

constexpr u32 kBlocks = 4;

struct Operation {
  emulator::Dim3 grid;
  u32 threads;

  u32 blocks() const { return grid.x * grid.y * grid.z; }
  u32 results() const { return blocks() * threads; }
};

// The parameters of sum_of_all, each aligned to 8 bytes.
struct Sum {
  u32* out;
  const u32* in;
  u64 n;
};

// Runs operations that each sum the results of the one before; the counters stay as they are left.
void run_sums(const std::vector<Operation>& operations, u32 first, Buffer<u32>& arrivals) {
  Buffer<u32> start{first};
  std::vector<Buffer<u32>> results;
  StepTable table{};
  table.arrivals = arrivals.data();
  table.n_operations = operations.size();
  auto* bytes = reinterpret_cast<u8*>(table.words);
  size_t at = operations.size() * sizeof(StepOperation);
  for (size_t i = 0; i < operations.size(); ++i) {
    const auto& [grid, threads] = operations[i];
    const Buffer<u32>& in = i == 0 ? start : results.back();
    Buffer<u32> out(operations[i].results());
    const Sum sum = {out.data(), in.data(), in.size()};
    results.push_back(std::move(out));
    const StepOperation op = {0, threads, grid.x, grid.y, grid.z, static_cast<u32>(at)};
    std::memcpy(bytes + i * sizeof op, &op, sizeof op);
    std::memcpy(bytes + at, &sum, sizeof sum);
    at += sizeof sum;
  }
  void* params[] = {&table};
  if (!run_step_kernel({"sum_of_all"}, {{kBlocks}, {256}}, {sizeof table}, params)) return;
  u32 before = first;
  for (size_t i = 0; i < operations.size(); ++i) {
    u32 all = 0;
    for (u32 k = 0; k < operations[i].results(); ++k) {
      const u32 block = k / operations[i].threads, thread = k % operations[i].threads;
      const u32 expected = (thread + 1 + before) * (block + 1);
      if (results[i][k] != expected) {
        fail_test("result %u of operation %zu is %u, not %u", k, i, results[i][k], expected);
      }
      all += expected;
    }
    before = all;
  }
  for (const u32 count : arrivals) EXPECT(count == 0);
}

}  // namespace

TEST(step_kernel_computes_operations_in_order) {
  // Fewer blocks than those of the grid, as many, and several for each.
  const std::vector<Operation> operations = {{{1}, 32},  {{12}, 64}, {{2, 3, 2}, 32}, {{4}, 256},
                                             {{1}, 256}, {{5}, 32},  {{3}, 64},       {{7}, 32}};
  Buffer<u32> arrivals(operations.size() + 1);
  std::fill(arrivals.begin(), arrivals.end(), 0);
  // Twice, since the counters are used again.
  run_sums(operations, 3, arrivals);
  run_sums(operations, 1000, arrivals);
}

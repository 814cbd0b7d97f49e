#include "bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "memory.h"

namespace forge::cpu {

namespace {

constexpr uint64_t kPiece = 1 << 20;
constexpr uint32_t kPieces = 256;
constexpr int kRounds = 5;

typedef uint64_t Words __attribute__((vector_size(16)));

// Reads every byte; the sum keeps the compiler from leaving it.
uint64_t sum(const uint8_t* data) {
  constexpr uint64_t kChains = 8;
  Words sums[kChains] = {};
  for (uint64_t i = 0; i < kPiece; i += kChains * sizeof(Words)) {
    for (uint64_t c = 0; c < kChains; ++c) {
      Words words;
      std::memcpy(&words, data + i + c * sizeof(Words), sizeof words);
      sums[c] += words;
    }
  }
  Words total = {};
  for (const Words& words : sums) total += words;
  return total[0] + total[1];
}

}  // namespace

uint64_t read_bandwidth(ThreadPool& pool) {
  const Memory memory(kPieces * kPiece);
  // Memory that was never written is one page of zeros over and over.
  pool.run(kPieces, [&](uint32_t i, uint32_t) {
    std::memset(memory.data() + i * kPiece, static_cast<int>(i + 1), kPiece);
  });
  std::atomic<uint64_t> sink{0};
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    pool.run(kPieces, [&](uint32_t i, uint32_t) { sink += sum(memory.data() + i * kPiece); });
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(memory.bytes()) / time.count());
  }
  return static_cast<uint64_t>(best);
}

}  // namespace forge::cpu

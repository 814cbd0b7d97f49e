// Measures limits of this machine: streaming read bandwidth, float32 FMA and int8 dot products,
// with the given number of threads. Prints one JSON object. Build with -O3 -march=native -pthread.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_FEATURE_DOTPROD)
#include <arm_neon.h>
#endif

namespace {

constexpr int kRounds = 7;
constexpr uint64_t kBytesPerThread = 256ull << 20;
constexpr uint64_t kIterations = 20'000'000;

// Results are added here so that no loop is optimized away.
std::atomic<uint64_t> sink;

// Returns the best of several rounds, in seconds, of `work(thread)` on all threads at once.
double best_time(unsigned n_threads, const std::function<void(unsigned)>& work) {
  double best = 1e30;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < n_threads; ++t) threads.emplace_back(work, t);
    for (std::thread& thread : threads) thread.join();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    best = std::min(best, elapsed.count());
  }
  return best;
}

typedef uint64_t Words __attribute__((vector_size(64)));
typedef float Floats __attribute__((vector_size(64)));

double read_bandwidth(unsigned n_threads) {
  std::vector<std::unique_ptr<uint8_t, void (*)(void*)>> blocks;
  for (unsigned t = 0; t < n_threads; ++t) {
    auto* block = static_cast<uint8_t*>(std::aligned_alloc(4096, kBytesPerThread));
    std::memset(block, static_cast<int>(t + 1), kBytesPerThread);
    blocks.emplace_back(block, std::free);
  }
  const double seconds = best_time(n_threads, [&](unsigned t) {
    const auto* data = reinterpret_cast<const Words*>(blocks[t].get());
    Words sums[8] = {};
    for (uint64_t i = 0; i < kBytesPerThread / sizeof(Words); i += 8) {
      for (int j = 0; j < 8; ++j) sums[j] += data[i + j];
    }
    for (const Words& sum : sums) sink += sum[0];
  });
  return static_cast<double>(n_threads * kBytesPerThread) / seconds / 1e9;
}

double fma_peak(unsigned n_threads) {
  constexpr int kChains = 12;
  const double seconds = best_time(n_threads, [](unsigned) {
    // Different chains, so that the compiler does not merge them.
    Floats sums[kChains];
    for (int c = 0; c < kChains; ++c) sums[c] = Floats{} + static_cast<float>(c + 1);
    Floats a = Floats{} + 0.5f, b = Floats{} + 0.25f;
    for (uint64_t i = 0; i < kIterations; ++i) {
#pragma GCC unroll 12
      for (int c = 0; c < kChains; ++c) sums[c] = sums[c] * a + b;
    }
    for (const Floats& sum : sums) sink += static_cast<uint64_t>(sum[0]);
  });
  return n_threads * kIterations * kChains * 16 * 2 / seconds / 1e9;
}

// Returns 0 if the compiler has no int8 dot product for this machine.
double int8_dot_peak(unsigned n_threads) {
#if defined(__AVX512VNNI__)
  constexpr int kLanes = 64;
  using Vector = __m512i;
  const auto dot = [](Vector sum, Vector a, Vector b) { return _mm512_dpbusd_epi32(sum, a, b); };
#elif defined(__AVXVNNI__)
  constexpr int kLanes = 32;
  using Vector = __m256i;
  const auto dot = [](Vector sum, Vector a, Vector b) {
    return _mm256_dpbusd_avx_epi32(sum, a, b);
  };
#elif defined(__ARM_FEATURE_DOTPROD)
  constexpr int kLanes = 16;
  using Vector = int32x4_t;
  const auto dot = [](Vector sum, Vector a, Vector b) {
    return vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b));
  };
#else
  (void)n_threads;
  return 0;
#endif
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(__ARM_FEATURE_DOTPROD)
  constexpr int kChains = 12;
  const double seconds = best_time(n_threads, [&](unsigned t) {
    Vector sums[kChains], a, b;
    for (int c = 0; c < kChains; ++c) std::memset(&sums[c], c, sizeof sums[c]);
    std::memset(&a, static_cast<int>(t + 1), sizeof a);
    std::memset(&b, 3, sizeof b);
    for (uint64_t i = 0; i < kIterations; ++i) {
#pragma GCC unroll 12
      for (int c = 0; c < kChains; ++c) sums[c] = dot(sums[c], a, b);
    }
    for (const Vector& sum : sums) {
      uint64_t word;
      std::memcpy(&word, &sum, sizeof word);
      sink += word;
    }
  });
  return n_threads * static_cast<double>(kIterations) * kChains * kLanes * 2 / seconds / 1e9;
#endif
}

}  // namespace

int main(int argc, char** argv) {
  const int asked = argc > 1 ? std::atoi(argv[1]) : 0;
  const unsigned n_threads =
      asked > 0 ? static_cast<unsigned>(asked) : std::max(1u, std::thread::hardware_concurrency());
  std::printf("{\"threads\": %u, \"read_gb_s\": %.2f, "
              "\"fma_gflop_s\": %.1f, \"int8_gop_s\": %.1f}\n",
              n_threads, read_bandwidth(n_threads), fma_peak(n_threads), int8_dot_peak(n_threads));
}

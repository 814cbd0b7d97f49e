// Products of BF16 by the dot product of two columns that AVX512-BF16 has. A lane holds the sum of
// one row.

#include "../bf16_pairs.h"

namespace forge::cpu {

namespace avx512 {

void finish(const MatmulBlock& block, const MatmulToken& token, uint32_t first, uint32_t n_rows,
            const float* sums);

}  // namespace avx512

namespace avx512_bf16 {

namespace {

// As in float_products.cpp.
constexpr int kPrefetchBytes = 2048;

struct Pairs : PairPanels {
  // 24 accumulators, 4 weights and a pair of activations of 32 registers.
  static constexpr uint32_t kTileTokens = 6;
  static constexpr auto base = kernels_avx512;
  static constexpr auto finish = avx512::finish;
  struct Scope {};
  static void set_attention(KernelTable& table) {
    table.attention_split = FORGE_TARGET::attention_split;
  }

  template <int n_tokens, int n_panels>
  static void tile(const uint8_t* panels, uint64_t panel_stride, uint64_t n_pairs, const uint8_t* x,
                   bool from_memory, float* sums) {
    __m512 sum[n_tokens][n_panels];
    for (auto& token : sum) {
      for (__m512& panel : token) panel = _mm512_setzero_ps();
    }
    const int ahead = from_memory ? kPrefetchBytes : 0;
    for (uint64_t pair = 0; pair < n_pairs; ++pair) {
      __m512bh w[n_panels];
      for (int p = 0; p < n_panels; ++p) {
        const uint8_t* at = panels + p * panel_stride + pair * 4 * kPanelRows;
        __builtin_prefetch(at + ahead);
        memcpy(&w[p], at, sizeof w[p]);
      }
      for (int t = 0; t < n_tokens; ++t) {
        int32_t both;
        memcpy(&both, x + (t * kChunk / 2 + pair) * 4, sizeof both);
        const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
        for (int p = 0; p < n_panels; ++p) sum[t][p] = _mm512_dpbf16_ps(sum[t][p], w[p], a);
      }
    }
    for (int t = 0; t < n_tokens; ++t) {
      for (int p = 0; p < n_panels; ++p) {
        float* to = sums + t * kProductRows + p * kPanelRows;
        store(to, load(to) + Vec{sum[t][p]});
      }
    }
  }
};

}  // namespace

}  // namespace avx512_bf16

const KernelTable& kernels_avx512_bf16() {
  return avx512_bf16::Bf16Products<avx512_bf16::Pairs>::table<false>("avx512_bf16");
}

const KernelTable& kernels_avx512_bf16_f16() {
  return avx512_bf16::Bf16Products<avx512_bf16::Pairs>::table<true>("avx512_bf16");
}

}  // namespace forge::cpu

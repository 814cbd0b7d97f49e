// Products of BF16 by the matrix product of Arm's FEAT_BF16: 4 columns of 2 rows with those of 2
// tokens. Four lanes of sums are (row 0, token 0), (row 0, token 1), (row 1, token 0), (row 1,
// token 1).

#include "../bf16_products.h"

namespace forge::cpu {

namespace neon_i8mm {

void finish(const MatmulBlock& block, const MatmulToken& token, uint32_t first, uint32_t n_rows,
            const float* sums);

}  // namespace neon_i8mm

namespace neon_bf16 {

namespace {

constexpr int kPrefetchBytes = 2048;
constexpr int kRowPairs = kPanelRows / 2;
constexpr uint64_t kPairBytes = 16;  // 4 columns of 2 rows, or of 2 tokens

bfloat16x8_t load_pair(const uint8_t* at) {
  bfloat16x8_t pair;
  memcpy(&pair, at, sizeof pair);
  return pair;
}

struct Quads {
  static constexpr uint64_t kColumns = 4;
  static constexpr bool kReadsRounded = false;
  // 24 accumulators, 3 pairs of tokens and a pair of rows of 32 registers.
  static constexpr uint32_t kTileTokens = 6;
  static constexpr auto base = kernels_neon_i8mm;
  static constexpr auto finish = neon_i8mm::finish;
  struct Scope {};
  static void set_attention(KernelTable&) {}

  // Rounds groups of 4 numbers, `stride` bytes apart, the last one followed by zeros.
  static void round_groups(const float* x, uint64_t n, uint8_t* out, uint64_t stride) {
    for_vectors(n, [&](uint64_t i, int left) FORGE_ALWAYS_INLINE {
      const bfloat16x4_t four = vcvt_bf16_f32(load_up_to(x + i, left).v);
      memcpy(out + i / 4 * stride, &four, sizeof four);
    });
  }

  static void round(const float* x, uint64_t n, uint8_t* out) { round_groups(x, n, out, 8); }

  // The partner of a last token without one is undefined; those sums are not used.
  static void round_token(const float* x, uint64_t n, uint32_t t, uint8_t* out) {
    round_groups(x, n, out + t / 2 * kChunk * 4 + t % 2 * 8, kPairBytes);
  }

  static void copy_token(const uint8_t* x, uint64_t n, uint32_t t, uint8_t* out) {
    uint8_t* to = out + t / 2 * kChunk * 4 + t % 2 * 8;
    for (uint64_t i = 0; i < n; i += 4) memcpy(to + i / 4 * kPairBytes, x + 2 * i, 8);
  }

  static uint64_t pack_whole(const uint8_t* const (&rows)[kPanelRows], uint64_t n, uint8_t* out) {
    for (uint64_t group = 0; group < n; ++group, out += kRowPairs * kPairBytes) {
      for (uint32_t row = 0; row < kPanelRows; ++row) {
        memcpy(out + 8 * row, rows[row] + 8 * group, 8);
      }
    }
    return n;
  }

  template <int n_tokens, int n_panels>
  static void tile(const uint8_t* panels, uint64_t panel_stride, uint64_t n_groups,
                   const uint8_t* x, bool from_memory, float* sums) {
    for (int p = 0; p < n_panels; ++p) {
      tile_panel<n_tokens>(panels + p * panel_stride, n_groups, x, from_memory,
                           sums + p * kPanelRows);
    }
  }

  template <int n_tokens>
  static void tile_panel(const uint8_t* panel, uint64_t n_groups, const uint8_t* x,
                         bool from_memory, float* sums) {
    constexpr int kPairs = (n_tokens + 1) / 2;
    float32x4_t sum[kPairs][kRowPairs] = {};
    const int ahead = from_memory ? kPrefetchBytes : 0;
    for (uint64_t group = 0; group < n_groups; ++group, panel += kRowPairs * kPairBytes) {
      bfloat16x8_t a[kPairs];
      for (int t = 0; t < kPairs; ++t) a[t] = load_pair(x + t * kChunk * 4 + group * kPairBytes);
      __builtin_prefetch(panel + ahead);
      __builtin_prefetch(panel + ahead + 64);
      FORGE_UNROLL(8)
      for (int r = 0; r < kRowPairs; ++r) {
        const bfloat16x8_t w = load_pair(panel + r * kPairBytes);
        for (int t = 0; t < kPairs; ++t) sum[t][r] = vbfmmlaq_f32(sum[t][r], w, a[t]);
      }
    }
    for (int t = 0; t < kPairs; ++t) {
      float* to = sums + 2 * t * kProductRows;
      for (int r = 0; r < kRowPairs; r += 2, to += 4) {
        store(to, load(to) + Vec{vuzp1q_f32(sum[t][r], sum[t][r + 1])});
        if (2 * t + 1 == n_tokens) continue;
        float* next = to + kProductRows;
        store(next, load(next) + Vec{vuzp2q_f32(sum[t][r], sum[t][r + 1])});
      }
    }
  }
};

}  // namespace

}  // namespace neon_bf16

const KernelTable& kernels_neon_bf16() {
  return neon_bf16::Bf16Products<neon_bf16::Quads>::table<false>("neon_bf16");
}

const KernelTable& kernels_neon_bf16_f16() {
  return neon_bf16::Bf16Products<neon_bf16::Quads>::table<true>("neon_bf16");
}

}  // namespace forge::cpu

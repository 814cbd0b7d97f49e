#pragma once

// The inner kernel of products with quantised weights: some tokens by some panels.
//
// sum over blocks of  scale_w scale_x (q_w . q_x)  +  min_w scale_x sum(q_x)
//
// Sums inside a block are exact in int32; across blocks the terms are added in float, in the order
// of the columns. So the bits of a token's result do not depend on the tokens it is computed with.

#include "panel_formats.h"
#include "product_kernels.h"

namespace forge::cpu::FORGE_TARGET {

// The initial value of accumulators that makes them sums of (q - bias) q_x.
template <int bias>
FORGE_INLINE IntVec bias_correction(int32_t minus_8_sum) {
  if constexpr (bias == 0) return IntVec{};
  static_assert((bias & (bias - 1)) == 0);
  if constexpr (bias < 8) return splat(minus_8_sum / (8 / bias));
  return splat(minus_8_sum * (bias / 8));
}

// sums[t][16 p + row] += the product of row `row` of panel p with token t, or = if `begins`.
// Panel p begins at first + p panel_stride and consists of `length` of Format::Panel.
template <class Format, int n_tokens, int n_panels>
void int8_tile(const uint8_t* first, uint64_t panel_stride, uint64_t length,
               const ActivationBlock* const* tokens, bool begins, float* sums,
               uint32_t sums_stride) {
  using Panel = typename Format::Panel;
  constexpr int kVectors = Group::kVectors;
  constexpr int kHalves = Panel::kHalves;
  constexpr int kBias = Format::kBias - kDotBias<Format::kMost>;

  const ActivationBlock* x[n_tokens];
  Group total[n_tokens][n_panels];
  for (int t = 0; t < n_tokens; ++t) {
    x[t] = tokens[t];
    for (int p = 0; p < n_panels; ++p) {
      total[t][p] = begins ? Group{} : load_floats(sums + t * sums_stride + 16 * p);
    }
  }
  uint64_t at = 0;  // block of the activations
  for (uint64_t i = 0; i < length; ++i) {
    const Panel* panel[n_panels];
    typename Format::Header header[n_panels];
    for (int p = 0; p < n_panels; ++p) {
      panel[p] = reinterpret_cast<const Panel*>(first + p * panel_stride) + i;
      header[p] = Format::header(*panel[p]);
    }
    for (uint32_t block = 0; block < Panel::kBlocks; ++block, ++at) {
      for (int p = 0; p < n_panels; ++p) Format::prefetch(*panel[p], block);
      unrolled<kHalves>([&]<int half>() FORGE_ALWAYS_INLINE {
        constexpr int kSum = kHalves == 1 ? 0 : 1 + half;
        Dots<Format::kMost> dots[n_tokens][n_panels][kVectors];
        for (int t = 0; t < n_tokens; ++t) {
          const IntVec start = bias_correction<kBias>(x[t][at].minus_8_sums[kSum]);
          for (int p = 0; p < n_panels; ++p) {
            for (int v = 0; v < kVectors; ++v) dots[t][p][v].begin(start);
          }
        }
        unrolled<8 / kHalves>([&]<int i>() FORGE_ALWAYS_INLINE {
          // Groups that share bytes are consecutive.
          constexpr int g = kHalves == 1 ? i % 2 * 4 + i / 2 : 4 * half + i;
          ByteGroup w[n_panels];
          for (int p = 0; p < n_panels; ++p) w[p] = Format::template group<g>(*panel[p], block);
          for (int t = 0; t < n_tokens; ++t) {
            const ByteVec a = splat4(x[t][at].q + 4 * g);
            for (int p = 0; p < n_panels; ++p) {
              for (int v = 0; v < kVectors; ++v) {
                dots[t][p][v].template add<i, 8 / kHalves>(w[p].part[v], a);
              }
            }
          }
        });
        Group scale[n_panels];
        for (int p = 0; p < n_panels; ++p) {
          scale[p] = Format::scale(*panel[p], header[p], block, half);
        }
        for (int t = 0; t < n_tokens; ++t) {
          const Vec by = set(x[t][at].scale);
          for (int p = 0; p < n_panels; ++p) {
            for (int v = 0; v < kVectors; ++v) {
              Vec& to = total[t][p].part[v];
              to = fma(to_floats(dots[t][p][v].sums()), scale[p].part[v] * by, to);
            }
          }
        }
        if constexpr (Panel::kHasMin) {
          Group minimum[n_panels];
          for (int p = 0; p < n_panels; ++p) {
            minimum[p] = Format::minimum(*panel[p], header[p], block, half);
          }
          for (int t = 0; t < n_tokens; ++t) {
            const Vec by = set(x[t][at].scaled_sum[kSum]);
            for (int p = 0; p < n_panels; ++p) {
              for (int v = 0; v < kVectors; ++v) {
                Vec& to = total[t][p].part[v];
                to = fma(minimum[p].part[v], by, to);
              }
            }
          }
        }
      });
    }
  }
  for (int t = 0; t < n_tokens; ++t) {
    for (int p = 0; p < n_panels; ++p) store(sums + t * sums_stride + 16 * p, total[t][p]);
  }
}

}  // namespace forge::cpu::FORGE_TARGET

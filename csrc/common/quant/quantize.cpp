#include "quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "floats.h"
#include "k_quants.h"
#include "legacy.h"

namespace forge {
namespace {

/// `x` rounded to the nearest integer (halves away from zero) within low..high.
int round_clamped(float x, int low, int high) {
  if (!(x > static_cast<float>(low))) return low;
  if (x >= static_cast<float>(high)) return high;
  return static_cast<int>(std::lround(x));
}

/// 1 / step, or 0 where a step of 0 lets every field stand for the same weight.
float inverse(float step) { return step == 0.0f ? 0.0f : 1.0f / step; }

/// The value of in[n] farthest from zero, with its sign.
float extreme(const float* in, uint32_t n) {
  return *std::max_element(in, in + n,
                           [](float a, float b) { return std::fabs(a) < std::fabs(b); });
}

/// Stores `q` of weight `i` in a block of 32 fields of four bits and, for five, `qh`.
void store_field(uint8_t (&qs)[16], uint32_t& qh, uint32_t i, int q) {
  qs[i % 16] |= static_cast<uint8_t>((q & 0xf) << (4 * (i / 16)));
  qh |= static_cast<uint32_t>(q >> 4) << i;
}

// Every quantize_block fills a zeroed block and returns whether the stored scales are finite.

bool quantize_block(const float* in, BlockF32& block) {
  block.bits = PackedU32::from(std::bit_cast<uint32_t>(*in));
  return true;
}

bool quantize_block(const float* in, BlockF16& block) {
  block.value = PackedF16::from(*in);
  return std::isfinite(block.value.value());
}

bool quantize_block(const float* in, BlockBF16& block) {
  block.bits = PackedU16::from(f32_to_bf16(*in));
  return std::isfinite(bf16_to_f32(block.bits.value()));
}

/// The shared part of Q4_0 and Q5_0: steps of d from -levels / 2 to levels / 2 - 1. The weight
/// farthest from zero gets the lowest field, so d has the opposite sign.
bool quantize_symmetric(const float* in, int levels, PackedF16& d, uint8_t (&qs)[16],
                        uint32_t& qh) {
  const int half = levels / 2;
  d = PackedF16::from(extreme(in, 32) / static_cast<float>(-half));
  const float inverse_d = inverse(d.value());
  for (uint32_t i = 0; i < 32; ++i) {
    store_field(qs, qh, i, round_clamped(in[i] * inverse_d, -half, half - 1) + half);
  }
  return std::isfinite(d.value());
}

/// The shared part of Q4_1 and Q5_1: `levels` steps of d from the minimum m up.
bool quantize_from_minimum(const float* in, int levels, PackedF16& d, PackedF16& m,
                           uint8_t (&qs)[16], uint32_t& qh) {
  const auto [min, max] = std::minmax_element(in, in + 32);
  d = PackedF16::from((*max - *min) / static_cast<float>(levels - 1));
  m = PackedF16::from(*min);
  const float inverse_d = inverse(d.value());
  for (uint32_t i = 0; i < 32; ++i) {
    store_field(qs, qh, i, round_clamped((in[i] - m.value()) * inverse_d, 0, levels - 1));
  }
  return std::isfinite(d.value()) && std::isfinite(m.value());
}

bool quantize_block(const float* in, BlockQ4_0& block) {
  uint32_t no_fifth_bits = 0;
  return quantize_symmetric(in, 16, block.d, block.qs, no_fifth_bits);
}

bool quantize_block(const float* in, BlockQ4_1& block) {
  uint32_t no_fifth_bits = 0;
  return quantize_from_minimum(in, 16, block.d, block.m, block.qs, no_fifth_bits);
}

bool quantize_block(const float* in, BlockQ5_0& block) {
  uint32_t qh = 0;
  const bool fits = quantize_symmetric(in, 32, block.d, block.qs, qh);
  block.qh = PackedU32::from(qh);
  return fits;
}

bool quantize_block(const float* in, BlockQ5_1& block) {
  uint32_t qh = 0;
  const bool fits = quantize_from_minimum(in, 32, block.d, block.m, block.qs, qh);
  block.qh = PackedU32::from(qh);
  return fits;
}

bool quantize_block(const float* in, BlockQ8_0& block) {
  block.d = PackedF16::from(std::fabs(extreme(in, 32)) / 127.0f);
  const float inverse_d = inverse(block.d.value());
  for (uint32_t i = 0; i < 32; ++i) {
    block.qs[i] = static_cast<int8_t>(round_clamped(in[i] * inverse_d, -127, 127));
  }
  return std::isfinite(block.d.value());
}

bool quantize_block(const float* in, BlockQ4_K& block) {
  float scales[8];
  float mins[8];  // stored as what is subtracted, so never below zero
  for (uint32_t s = 0; s < 8; ++s) {
    const auto [min, max] = std::minmax_element(in + 32 * s, in + 32 * s + 32);
    mins[s] = std::max(0.0f, -*min);
    scales[s] = (*max + mins[s]) / 15.0f;
  }
  block.d = PackedF16::from(*std::max_element(scales, scales + 8) / 63.0f);
  block.dmin = PackedF16::from(*std::max_element(mins, mins + 8) / 63.0f);
  const float d = block.d.value();
  const float dmin = block.dmin.value();
  for (uint32_t s = 0; s < 8; ++s) {
    const ScaleMin packed = {
        static_cast<uint8_t>(round_clamped(scales[s] * inverse(d), 0, 63)),
        static_cast<uint8_t>(round_clamped(mins[s] * inverse(dmin), 0, 63)),
    };
    pack_scale_min(block.scales, s, packed);
    const float inverse_step = inverse(d * static_cast<float>(packed.scale));
    const float min = dmin * static_cast<float>(packed.min);
    for (uint32_t i = 0; i < 32; ++i) {
      const int q = round_clamped((in[32 * s + i] + min) * inverse_step, 0, 15);
      block.qs[32 * (s / 2) + i] |= static_cast<uint8_t>(q << (4 * (s % 2)));
    }
  }
  return std::isfinite(d) && std::isfinite(dmin);
}

bool quantize_block(const float* in, BlockQ6_K& block) {
  float scales[16];
  for (uint32_t s = 0; s < 16; ++s) scales[s] = extreme(in + 16 * s, 16) / -32.0f;
  block.d = PackedF16::from(extreme(scales, 16) / -128.0f);
  const float d = block.d.value();
  for (uint32_t s = 0; s < 16; ++s) {
    block.scales[s] = static_cast<int8_t>(round_clamped(scales[s] * inverse(d), -128, 127));
    const float inverse_step = inverse(d * static_cast<float>(block.scales[s]));
    const FieldPosition low_at = q6_k_low_fields(s);
    const FieldPosition high_at = two_bit_fields(s);
    for (uint32_t i = 0; i < 16; ++i) {
      const int q = round_clamped(in[16 * s + i] * inverse_step, -32, 31) + 32;
      block.ql[low_at.first + i] |= static_cast<uint8_t>((q & 0xf) << low_at.shift);
      block.qh[high_at.first + i] |= static_cast<uint8_t>((q >> 4) << high_at.shift);
    }
  }
  return std::isfinite(d);
}

template <typename Block>
bool quantize_blocks(const float* in, uint8_t* out, uint64_t n) {
  if (n % Block::elements != 0) return false;
  for (; n != 0; n -= Block::elements) {
    const auto finite = [](float weight) { return std::isfinite(weight); };
    if (!std::all_of(in, in + Block::elements, finite)) return false;
    Block block{};
    if (!quantize_block(in, block)) return false;
    std::memcpy(out, &block, sizeof block);
    in += Block::elements;
    out += sizeof block;
  }
  return true;
}

}  // namespace

bool quantize(WeightType type, const float* in, uint8_t* out, uint64_t n) {
  switch (type) {
    case WeightType::F32: return quantize_blocks<BlockF32>(in, out, n);
    case WeightType::F16: return quantize_blocks<BlockF16>(in, out, n);
    case WeightType::BF16: return quantize_blocks<BlockBF16>(in, out, n);
    case WeightType::Q4_0: return quantize_blocks<BlockQ4_0>(in, out, n);
    case WeightType::Q4_1: return quantize_blocks<BlockQ4_1>(in, out, n);
    case WeightType::Q5_0: return quantize_blocks<BlockQ5_0>(in, out, n);
    case WeightType::Q5_1: return quantize_blocks<BlockQ5_1>(in, out, n);
    case WeightType::Q8_0: return quantize_blocks<BlockQ8_0>(in, out, n);
    case WeightType::Q4_K: return quantize_blocks<BlockQ4_K>(in, out, n);
    case WeightType::Q6_K: return quantize_blocks<BlockQ6_K>(in, out, n);
    default: return false;
  }
}

}  // namespace forge

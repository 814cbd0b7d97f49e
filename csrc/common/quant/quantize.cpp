#include "quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "fit.h"
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

/// The fields of in[n], each `(x - origin) / step` rounded to a level within low..high, less low.
void find_fields(const float* in, uint32_t n, float origin, float step, int low, int high,
                 uint8_t* fields) {
  const float inverse_step = inverse(step);
  const auto bottom = static_cast<float>(low), top = static_cast<float>(high);
  for (uint32_t i = 0; i < n; ++i) {
    const float level = nearest_level((in[i] - origin) * inverse_step, bottom, top);
    fields[i] = static_cast<uint8_t>(static_cast<int>(level) - low);
  }
}

/// Stores 32 fields of four bits, and their fifth bits in `qh`.
void store_fields(const uint8_t (&fields)[32], uint8_t (&qs)[16], uint32_t& qh) {
  for (uint32_t i = 0; i < 16; ++i) {
    qs[i] = static_cast<uint8_t>((fields[i] & 0xf) | (fields[i + 16] & 0xf) << 4);
  }
  for (uint32_t i = 0; i < 32; ++i) qh |= static_cast<uint32_t>(fields[i] >> 4) << i;
}

// Every quantize_block fills a zeroed block and returns true if the stored scales are finite.

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

/// The shared part of Q4_0 and Q5_0: steps of d from -levels / 2 to levels / 2 - 1.
bool quantize_symmetric(const float* in, int levels, PackedF16& d, uint8_t (&qs)[16],
                        uint32_t& qh) {
  const int half = levels / 2;
  d = PackedF16::from(fit_step(in, 32, half));
  uint8_t fields[32];
  find_fields(in, 32, 0.0f, d.value(), -half, half - 1, fields);
  store_fields(fields, qs, qh);
  return std::isfinite(d.value());
}

/// The shared part of Q4_1 and Q5_1: `levels` steps of d from the minimum m up.
bool quantize_from_minimum(const float* in, int levels, PackedF16& d, PackedF16& m,
                           uint8_t (&qs)[16], uint32_t& qh) {
  const auto [min, max] = std::minmax_element(in, in + 32);
  d = PackedF16::from((*max - *min) / static_cast<float>(levels - 1));
  m = PackedF16::from(*min);
  uint8_t fields[32];
  find_fields(in, 32, m.value(), d.value(), 0, levels - 1, fields);
  store_fields(fields, qs, qh);
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
    block.qs[i] = static_cast<int8_t>(nearest_level(in[i] * inverse_d, -127.0f, 127.0f));
  }
  return std::isfinite(block.d.value());
}

bool quantize_block(const float* in, BlockQ4_K& block) {
  float scales[8];
  float mins[8];  // stored as what is subtracted, so never below zero
  for (uint32_t s = 0; s < 8; ++s) {
    const auto [step, min] = fit_affine(in + 32 * s, 32, 15);
    scales[s] = step;
    mins[s] = min;
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
    const float min = dmin * static_cast<float>(packed.min);
    uint8_t fields[32];
    find_fields(in + 32 * s, 32, -min, d * static_cast<float>(packed.scale), 0, 15, fields);
    for (uint32_t i = 0; i < 32; ++i) {
      block.qs[32 * (s / 2) + i] |= static_cast<uint8_t>(fields[i] << (4 * (s % 2)));
    }
  }
  return std::isfinite(d) && std::isfinite(dmin);
}

bool quantize_block(const float* in, BlockQ6_K& block) {
  float scales[16];
  for (uint32_t s = 0; s < 16; ++s) scales[s] = fit_step(in + 16 * s, 16, 32);
  block.d = PackedF16::from(extreme(scales, 16) / -128.0f);
  const float d = block.d.value();
  for (uint32_t s = 0; s < 16; ++s) {
    block.scales[s] = static_cast<int8_t>(round_clamped(scales[s] * inverse(d), -128, 127));
    uint8_t fields[16];
    find_fields(in + 16 * s, 16, 0.0f, d * static_cast<float>(block.scales[s]), -32, 31, fields);
    const FieldPosition low_at = q6_k_low_fields(s);
    const FieldPosition high_at = two_bit_fields(s);
    for (uint32_t i = 0; i < 16; ++i) {
      block.ql[low_at.first + i] |= static_cast<uint8_t>((fields[i] & 0xf) << low_at.shift);
      block.qh[high_at.first + i] |= static_cast<uint8_t>((fields[i] >> 4) << high_at.shift);
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

using QuantizeBlocks = bool (*)(const float* in, uint8_t* out, uint64_t n);

QuantizeBlocks quantizer(WeightType type) {
  switch (type) {
    case WeightType::F32: return quantize_blocks<BlockF32>;
    case WeightType::F16: return quantize_blocks<BlockF16>;
    case WeightType::BF16: return quantize_blocks<BlockBF16>;
    case WeightType::Q4_0: return quantize_blocks<BlockQ4_0>;
    case WeightType::Q4_1: return quantize_blocks<BlockQ4_1>;
    case WeightType::Q5_0: return quantize_blocks<BlockQ5_0>;
    case WeightType::Q5_1: return quantize_blocks<BlockQ5_1>;
    case WeightType::Q8_0: return quantize_blocks<BlockQ8_0>;
    case WeightType::Q4_K: return quantize_blocks<BlockQ4_K>;
    case WeightType::Q6_K: return quantize_blocks<BlockQ6_K>;
    default: return nullptr;
  }
}

}  // namespace

bool quantize(WeightType type, const float* in, uint8_t* out, uint64_t n) {
  const QuantizeBlocks quantize_all = quantizer(type);
  return quantize_all != nullptr && quantize_all(in, out, n);
}

bool can_quantize(WeightType type) { return quantizer(type) != nullptr; }

}  // namespace forge

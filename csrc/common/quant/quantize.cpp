#include "quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "fit.h"
#include "floats.h"
#include "iq4.h"
#include "k_quants.h"
#include "legacy.h"

namespace forge {
namespace {

// `x` rounded to the nearest integer (halves away from zero) within low..high.
int round_clamped(float x, int low, int high) {
  if (!(x > static_cast<float>(low))) return low;
  if (x >= static_cast<float>(high)) return high;
  return static_cast<int>(std::lround(x));
}

// 1 / step, or 0 where a step of 0 lets every field stand for the same weight.
float inverse(float step) { return step == 0.0f ? 0.0f : 1.0f / step; }

// The fields of in[n], each `(x - origin) / step` rounded to a level within low..high, less low.
void find_fields(const float* in, uint32_t n, float origin, float step, int low, int high,
                 uint8_t* fields) {
  const float inverse_step = inverse(step);
  const auto bottom = static_cast<float>(low), top = static_cast<float>(high);
  for (uint32_t i = 0; i < n; ++i) {
    const float level = nearest_level((in[i] - origin) * inverse_step, bottom, top);
    fields[i] = static_cast<uint8_t>(static_cast<int>(level) - low);
  }
}

// Stores 32 fields of four bits, and their fifth bits in `qh`.
void store_fields(const uint8_t (&fields)[32], uint8_t (&qs)[16], uint32_t& qh) {
  for (uint32_t i = 0; i < 16; ++i) {
    qs[i] = static_cast<uint8_t>((fields[i] & 0xf) | (fields[i + 16] & 0xf) << 4);
  }
  for (uint32_t i = 0; i < 32; ++i) qh |= static_cast<uint32_t>(fields[i] >> 4) << i;
}

// Every quantize_block fills a zeroed block and returns true if the stored scales are finite.

bool quantize_block(const float* in, const float*, BlockF32& block) {
  block.bits = PackedU32::from(std::bit_cast<uint32_t>(*in));
  return true;
}

bool quantize_block(const float* in, const float*, BlockF16& block) {
  block.value = PackedF16::from(*in);
  return std::isfinite(block.value.value());
}

bool quantize_block(const float* in, const float*, BlockBF16& block) {
  block.bits = PackedU16::from(f32_to_bf16(*in));
  return std::isfinite(bf16_to_f32(block.bits.value()));
}

// The shared part of Q4_0 and Q5_0: steps of d from -levels / 2 to levels / 2 - 1.
bool quantize_symmetric(const float* in, const float* importance, int levels, PackedF16& d,
                        uint8_t (&qs)[16], uint32_t& qh) {
  const int half = levels / 2;
  d = PackedF16::from(fit_step(in, importance, 32, half));
  uint8_t fields[32];
  find_fields(in, 32, 0.0f, d.value(), -half, half - 1, fields);
  store_fields(fields, qs, qh);
  return std::isfinite(d.value());
}

// The shared part of Q4_1 and Q5_1: `levels` steps of d from the minimum m up.
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

bool quantize_block(const float* in, const float* importance, BlockQ4_0& block) {
  uint32_t no_fifth_bits = 0;
  return quantize_symmetric(in, importance, 16, block.d, block.qs, no_fifth_bits);
}

bool quantize_block(const float* in, const float*, BlockQ4_1& block) {
  uint32_t no_fifth_bits = 0;
  return quantize_from_minimum(in, 16, block.d, block.m, block.qs, no_fifth_bits);
}

bool quantize_block(const float* in, const float* importance, BlockQ5_0& block) {
  uint32_t qh = 0;
  const bool fits = quantize_symmetric(in, importance, 32, block.d, block.qs, qh);
  block.qh = PackedU32::from(qh);
  return fits;
}

bool quantize_block(const float* in, const float*, BlockQ5_1& block) {
  uint32_t qh = 0;
  const bool fits = quantize_from_minimum(in, 32, block.d, block.m, block.qs, qh);
  block.qh = PackedU32::from(qh);
  return fits;
}

bool quantize_block(const float* in, const float*, BlockQ8_0& block) {
  block.d = PackedF16::from(std::fabs(extreme(in, 32)) / 127.0f);
  const float inverse_d = inverse(block.d.value());
  for (uint32_t i = 0; i < 32; ++i) {
    block.qs[i] = static_cast<int8_t>(nearest_level(in[i] * inverse_d, -127.0f, 127.0f));
  }
  return std::isfinite(block.d.value());
}

// The steps and minima of the sub-blocks of a block, as floats.
template <uint32_t n_sub_blocks>
struct SubBlocks {
  float steps[n_sub_blocks];
  float mins[n_sub_blocks];  ///< stored as what is subtracted, so never below zero
};

template <uint32_t n_sub_blocks>
SubBlocks<n_sub_blocks> fit_sub_blocks(const float* in, const float* importance, int top) {
  constexpr uint32_t size = 256 / n_sub_blocks;
  SubBlocks<n_sub_blocks> fitted;
  for (uint32_t s = 0; s < n_sub_blocks; ++s) {
    const auto [step, min] = fit_affine(in + size * s, importance + size * s, size, top);
    fitted.steps[s] = step;
    fitted.mins[s] = min;
  }
  return fitted;
}

bool quantize_block(const float* in, const float* importance, BlockQ2_K& block) {
  const SubBlocks<16> fitted = fit_sub_blocks<16>(in, importance, 3);
  block.d = PackedF16::from(*std::max_element(fitted.steps, fitted.steps + 16) / 15.0f);
  block.dmin = PackedF16::from(*std::max_element(fitted.mins, fitted.mins + 16) / 15.0f);
  const float d = block.d.value();
  const float dmin = block.dmin.value();
  for (uint32_t s = 0; s < 16; ++s) {
    const int scale = round_clamped(fitted.steps[s] * inverse(d), 0, 15);
    const int min = round_clamped(fitted.mins[s] * inverse(dmin), 0, 15);
    block.scales[s] = static_cast<uint8_t>(scale | min << 4);
    uint8_t fields[16];
    find_fields(in + 16 * s, 16, -dmin * static_cast<float>(min), d * static_cast<float>(scale), 0,
                3, fields);
    const FieldPosition at = two_bit_fields(s);
    for (uint32_t i = 0; i < 16; ++i) {
      block.qs[at.first + i] |= static_cast<uint8_t>(fields[i] << at.shift);
    }
  }
  return std::isfinite(d) && std::isfinite(dmin);
}

bool quantize_block(const float* in, const float* importance, BlockQ3_K& block) {
  float steps[16];
  for (uint32_t s = 0; s < 16; ++s) {
    steps[s] = fit_step(in + 16 * s, importance + 16 * s, 16, 4);
  }
  block.d = PackedF16::from(extreme(steps, 16) / -32.0f);
  const float d = block.d.value();
  for (uint32_t s = 0; s < 16; ++s) {
    const int scale = round_clamped(steps[s] * inverse(d), -32, 31);
    pack_q3_k_scale(block.scales, s, static_cast<uint32_t>(scale + 32));
    uint8_t fields[16];
    find_fields(in + 16 * s, 16, 0.0f, d * static_cast<float>(scale), -4, 3, fields);
    const FieldPosition at = two_bit_fields(s);
    for (uint32_t i = 0; i < 16; ++i) {
      block.qs[at.first + i] |= static_cast<uint8_t>((fields[i] & 3) << at.shift);
      block.hmask[16 * (s % 2) + i] |= static_cast<uint8_t>((fields[i] >> 2) << (s / 2));
    }
  }
  return std::isfinite(d);
}

// Q4_K and Q5_K: calls store(s, fields) for the 32 fields of each sub-block.
template <typename Block, typename Store>
bool quantize_scale_min(const float* in, const float* importance, int top, Block& block,
                        Store store) {
  const SubBlocks<8> fitted = fit_sub_blocks<8>(in, importance, top);
  block.d = PackedF16::from(*std::max_element(fitted.steps, fitted.steps + 8) / 63.0f);
  block.dmin = PackedF16::from(*std::max_element(fitted.mins, fitted.mins + 8) / 63.0f);
  const float d = block.d.value();
  const float dmin = block.dmin.value();
  for (uint32_t s = 0; s < 8; ++s) {
    const ScaleMin packed = {
        static_cast<uint8_t>(round_clamped(fitted.steps[s] * inverse(d), 0, 63)),
        static_cast<uint8_t>(round_clamped(fitted.mins[s] * inverse(dmin), 0, 63)),
    };
    pack_scale_min(block.scales, s, packed);
    const float min = dmin * static_cast<float>(packed.min);
    uint8_t fields[32];
    find_fields(in + 32 * s, 32, -min, d * static_cast<float>(packed.scale), 0, top, fields);
    store(s, fields);
  }
  return std::isfinite(d) && std::isfinite(dmin);
}

bool quantize_block(const float* in, const float* importance, BlockQ4_K& block) {
  return quantize_scale_min(in, importance, 15, block, [&](uint32_t s, const uint8_t* fields) {
    for (uint32_t i = 0; i < 32; ++i) {
      block.qs[32 * (s / 2) + i] |= static_cast<uint8_t>(fields[i] << (4 * (s % 2)));
    }
  });
}

bool quantize_block(const float* in, const float* importance, BlockQ5_K& block) {
  return quantize_scale_min(in, importance, 31, block, [&](uint32_t s, const uint8_t* fields) {
    for (uint32_t i = 0; i < 32; ++i) {
      block.qs[32 * (s / 2) + i] |= static_cast<uint8_t>((fields[i] & 0xf) << (4 * (s % 2)));
      block.qh[i] |= static_cast<uint8_t>((fields[i] >> 4) << s);
    }
  });
}

bool quantize_block(const float* in, const float* importance, BlockQ6_K& block) {
  float scales[16];
  for (uint32_t s = 0; s < 16; ++s) {
    scales[s] = fit_step(in + 16 * s, importance + 16 * s, 16, 32);
  }
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

// Stores 32 fields of IQ4: byte i holds those of weights i and i + 16.
void store_table_fields(const float* in, float step, uint8_t* qs) {
  const float inverse_step = inverse(step);
  for (uint32_t i = 0; i < 16; ++i) {
    const uint8_t low = nearest_of_16(in[i] * inverse_step, iq4_levels);
    const uint8_t high = nearest_of_16(in[i + 16] * inverse_step, iq4_levels);
    qs[i] = static_cast<uint8_t>(low | high << 4);
  }
}

bool quantize_block(const float* in, const float* importance, BlockIQ4_NL& block) {
  block.d = PackedF16::from(fit_table_step(in, importance, 32, iq4_levels));
  store_table_fields(in, block.d.value(), block.qs);
  return std::isfinite(block.d.value());
}

bool quantize_block(const float* in, const float* importance, BlockIQ4_XS& block) {
  float steps[8];
  for (uint32_t s = 0; s < 8; ++s) {
    steps[s] = fit_table_step(in + 32 * s, importance + 32 * s, 32, iq4_levels);
  }
  block.d = PackedF16::from(extreme(steps, 8) / -32.0f);
  const float d = block.d.value();
  uint32_t high = 0;
  for (uint32_t s = 0; s < 8; ++s) {
    const int scale = round_clamped(steps[s] * inverse(d), -32, 31);
    const auto stored = static_cast<uint32_t>(scale + 32);
    block.scales_l[s / 2] |= static_cast<uint8_t>((stored & 0xf) << (4 * (s % 2)));
    high |= (stored >> 4) << (2 * s);
    store_table_fields(in + 32 * s, d * static_cast<float>(scale), block.qs + 16 * s);
  }
  block.scales_h = PackedU16::from(static_cast<uint16_t>(high));
  return std::isfinite(d);
}

// The importance of the weights of a block for which none is given.
constexpr std::array<float, 256> kEqual = [] {
  std::array<float, 256> ones{};
  ones.fill(1.0f);
  return ones;
}();

template <typename Block>
bool quantize_blocks(const float* in, const float* importance, uint8_t* out, uint64_t n) {
  if (n % Block::elements != 0) return false;
  for (uint64_t at = 0; at < n; at += Block::elements) {
    const auto finite = [](float weight) { return std::isfinite(weight); };
    if (!std::all_of(in, in + Block::elements, finite)) return false;
    Block block{};
    const float* own = importance == nullptr ? kEqual.data() : importance + at;
    if (!quantize_block(in, own, block)) return false;
    std::memcpy(out, &block, sizeof block);
    in += Block::elements;
    out += sizeof block;
  }
  return true;
}

using QuantizeBlocks = bool (*)(const float* in, const float* importance, uint8_t* out, uint64_t n);

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
    case WeightType::Q2_K: return quantize_blocks<BlockQ2_K>;
    case WeightType::Q3_K: return quantize_blocks<BlockQ3_K>;
    case WeightType::Q4_K: return quantize_blocks<BlockQ4_K>;
    case WeightType::Q5_K: return quantize_blocks<BlockQ5_K>;
    case WeightType::Q6_K: return quantize_blocks<BlockQ6_K>;
    case WeightType::IQ4_NL: return quantize_blocks<BlockIQ4_NL>;
    case WeightType::IQ4_XS: return quantize_blocks<BlockIQ4_XS>;
    default: return nullptr;
  }
}

}  // namespace

bool quantize(WeightType type, const float* in, uint8_t* out, uint64_t n,
              const float* importance) {
  const QuantizeBlocks quantize_all = quantizer(type);
  return quantize_all != nullptr && quantize_all(in, importance, out, n);
}

bool can_quantize(WeightType type) { return quantizer(type) != nullptr; }

}  // namespace forge

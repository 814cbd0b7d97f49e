#pragma once

// Readers of quantised panels. A Format is a panel type and the meaning of its fields:
//
//   Panel, kBias, kMost        weight = scale (q - kBias) + min, with q at most kMost
//   Header header(panel)       the values shared by all blocks of a panel
//   scale, minimum             of 16 rows in a block, or in half of it
//   group<g>(panel, block)     the bytes q of group g
//   prefetch(panel, block)     prefetches some blocks ahead, in this panel or the next
//
// Products of scales and fields are exact in float32, so weights equal those of the dequantisers of
// common/quant.

#include "../../common/quant/fp4.h"
#include "../../common/quant/iq4.h"
#include "../panel_layout.h"
#include "simd.h"

namespace forge::cpu::FORGE_TARGET {

// The bytes of a group: 4 columns of each row of a panel.
struct ByteGroup {
  ByteVec part[Group::kVectors];
};

FORGE_INLINE ByteGroup load_group(const uint8_t (&bytes)[kGroupBytes]) {
  ByteGroup out;
  for (int i = 0; i < Group::kVectors; ++i) out.part[i] = load_vec(bytes + 4 * kLanes * i);
  return out;
}

template <int bits, int from, int to>
FORGE_INLINE ByteGroup field(ByteGroup a) {
  for (ByteVec& part : a.part) part = field<bits, from, to>(part);
  return a;
}

FORGE_INLINE ByteGroup operator|(ByteGroup a, ByteGroup b) {
  for (int i = 0; i < Group::kVectors; ++i) a.part[i] |= b.part[i];
  return a;
}

template <int g>
FORGE_INLINE ByteGroup group(const Fields8& fields) {
  return load_group(fields.bytes[g]);
}
template <int g>
FORGE_INLINE ByteGroup group(const Fields4& fields) {
  return field<4, g / 4 * 4, 0>(load_group(fields.low[g % 4]));
}
template <int g>
FORGE_INLINE ByteGroup group(const Fields5& fields) {
  return field<4, g / 4 * 4, 0>(load_group(fields.low[g % 4])) |
         field<1, g, 4>(load_group(fields.high));
}
template <int g>
FORGE_INLINE ByteGroup group(const Fields6& fields) {
  return field<4, g / 4 * 4, 0>(load_group(fields.low[g % 4])) |
         field<2, g % 4 * 2, 4>(load_group(fields.high[g / 4]));
}
template <int g>
FORGE_INLINE ByteGroup group(const Fields2& fields) {
  return field<2, g % 4 * 2, 0>(load_group(fields.low[g / 4]));
}
template <int g>
FORGE_INLINE ByteGroup group(const Fields3& fields) {
  return field<2, g % 4 * 2, 0>(load_group(fields.low[g / 4])) |
         field<1, g, 2>(load_group(fields.high));
}

FORGE_INLINE Group load_scales(const PackedU16 (&f16)[kPanelRows]) {
  Group out;
  for (int i = 0; i < Group::kVectors; ++i) out.part[i] = load_f16(f16[kLanes * i].bytes);
  return out;
}
FORGE_INLINE Group load_scales(const int8_t (&integers)[kPanelRows]) {
  return widen(reinterpret_cast<SignedBytes>(
      load_bytes(reinterpret_cast<const uint8_t*>(integers))));
}
FORGE_INLINE Group load_scales(const float (&scales)[kPanelRows]) {
  Group out;
  for (int i = 0; i < Group::kVectors; ++i) out.part[i] = load(scales + kLanes * i);
  return out;
}
// E4M3 times 2^-8.
FORGE_INLINE Group load_scales(const uint8_t (&codes)[kPanelRows]) {
  Group out;
  for (int i = 0; i < Group::kVectors; ++i) out.part[i] = load_e4m3(codes + kLanes * i);
  return out;
}

FORGE_INLINE Group operator*(Group a, Group b) {
  for (int i = 0; i < Group::kVectors; ++i) a.part[i] = a.part[i] * b.part[i];
  return a;
}
FORGE_INLINE Group negate(Group a) {
  for (Vec& part : a.part) part = zero() - part;
  return a;
}

// Far enough ahead to hide the latency of memory; measured.
constexpr int kPrefetchBytes = 2304;

FORGE_INLINE void prefetch_ahead(const void* block, int bytes) {
  const char* ahead = static_cast<const char*>(block) + kPrefetchBytes;
  FORGE_UNROLL(16)
  for (int line = 0; line < bytes; line += 64) __builtin_prefetch(ahead + line);
}

// Types with blocks of 32 columns, which have one level of scales.
template <WeightType type, int bias, int most>
struct Format {
  using Panel = PanelOf<type>;
  static constexpr int kBias = bias;
  static constexpr int kMost = most;
  struct Header {};
  FORGE_INLINE void prefetch(const Panel& panel, uint32_t) { prefetch_ahead(&panel, sizeof panel); }
  FORGE_INLINE Header header(const Panel&) { return {}; }
  FORGE_INLINE const auto& fields(const Panel& panel, uint32_t) { return panel.fields; }
  FORGE_INLINE Group scale(const Panel& panel, const Header&, uint32_t, uint32_t) {
    return load_scales(panel.d);
  }
  FORGE_INLINE Group minimum(const Panel& panel, const Header&, uint32_t, uint32_t) {
    return load_scales(panel.m);
  }
  template <int g>
  FORGE_INLINE ByteGroup group(const Panel& panel, uint32_t block) {
    return FORGE_TARGET::group<g>(fields(panel, block));
  }
};

// Types with blocks of 64 or 256 columns, whose scales are integers times the scale of the block.
template <WeightType type, int bias, int most>
struct SuperFormat {
  using Panel = PanelOf<type>;
  static constexpr int kBias = bias;
  static constexpr int kMost = most;
  struct Header {
    Group d, minus_dmin;
  };
  FORGE_INLINE void prefetch(const Panel& panel, uint32_t block) {
    prefetch_ahead(&panel.blocks[block], sizeof panel.blocks[block]);
  }
  FORGE_INLINE Header header(const Panel& panel) {
    Header out;
    out.d = load_scales(panel.d);
    if constexpr (Panel::kHasMin) out.minus_dmin = negate(load_scales(panel.dmin));
    return out;
  }
  FORGE_INLINE const auto& fields(const Panel& panel, uint32_t block) {
    return panel.blocks[block].fields;
  }
  FORGE_INLINE Group scale(const Panel& panel, const Header& by, uint32_t block, uint32_t half) {
    return by.d * load_scales(panel.blocks[block].scale[half]);
  }
  FORGE_INLINE Group minimum(const Panel& panel, const Header& by, uint32_t block, uint32_t half) {
    return by.minus_dmin * load_scales(panel.blocks[block].min[half]);
  }
  template <int g>
  FORGE_INLINE ByteGroup group(const Panel& panel, uint32_t block) {
    return FORGE_TARGET::group<g>(fields(panel, block));
  }
};

// A type whose fields index a table of 16 levels, stored plus kBias as unsigned bytes.
template <class Base, const int8_t (&levels)[16]>
struct LevelFormat : Base {
  template <int g>
  FORGE_INLINE ByteGroup group(const typename Base::Panel& panel, uint32_t block) {
    const Bytes table = load_bytes(reinterpret_cast<const uint8_t*>(levels)) +
                        static_cast<uint8_t>(Base::kBias);
    ByteGroup out = Base::template group<g>(panel, block);
    for (ByteVec& part : out.part) part = lookup(table, part);
    return out;
  }
};

template <WeightType type>
struct FormatType;
#define FORGE_FORMAT(name, ...)         \
  template <>                           \
  struct FormatType<WeightType::name> { \
    using Type = __VA_ARGS__;           \
  };
FORGE_FORMAT(Q4_0, Format<WeightType::Q4_0, 8, 15>)
FORGE_FORMAT(Q4_1, Format<WeightType::Q4_1, 0, 15>)
FORGE_FORMAT(Q5_0, Format<WeightType::Q5_0, 16, 31>)
FORGE_FORMAT(Q5_1, Format<WeightType::Q5_1, 0, 31>)
FORGE_FORMAT(Q8_0, Format<WeightType::Q8_0, 128, 255>)
FORGE_FORMAT(IQ4_NL, LevelFormat<Format<WeightType::IQ4_NL, 128, 255>, iq4_levels>)
FORGE_FORMAT(Q2_K, SuperFormat<WeightType::Q2_K, 0, 3>)
FORGE_FORMAT(Q3_K, SuperFormat<WeightType::Q3_K, 4, 7>)
FORGE_FORMAT(Q4_K, SuperFormat<WeightType::Q4_K, 0, 15>)
FORGE_FORMAT(Q5_K, SuperFormat<WeightType::Q5_K, 0, 31>)
FORGE_FORMAT(Q6_K, SuperFormat<WeightType::Q6_K, 32, 63>)
FORGE_FORMAT(FP4, LevelFormat<SuperFormat<WeightType::FP4, 16, 31>, e2m1_levels>)
FORGE_FORMAT(IQ4_XS, LevelFormat<SuperFormat<WeightType::IQ4_XS, 128, 255>, iq4_levels>)
#undef FORGE_FORMAT

// The scales are powers of two outside the range of f16, stored as bfloat16.
template <>
struct FormatType<WeightType::MXFP4> {
  struct Type : LevelFormat<Format<WeightType::MXFP4, 16, 31>, e2m1_levels> {
    FORGE_INLINE Group scale(const Panel& panel, const Header&, uint32_t, uint32_t) {
      Group out;
      for (int i = 0; i < Group::kVectors; ++i) {
        out.part[i] = load_bf16(panel.d[kLanes * i].bytes);
      }
      return out;
    }
  };
};

template <WeightType type>
using FormatOf = typename FormatType<type>::Type;

// ---- unpacked panels ------------------------------------------------------------------------

// Columns and panels unpacked at once; the result stays in the second-level cache.
constexpr uint64_t kUnpackedCols = 2048;
constexpr uint32_t kUnpackedPanels = 4;

// 32 columns, unpacked.
template <uint32_t halves, bool has_min>
struct alignas(64) UnpackedPanel {
  static constexpr uint32_t kBlocks = 1;
  static constexpr uint32_t kHalves = halves;
  static constexpr bool kHasMin = has_min;
  float factors[(has_min ? 2 : 1) * halves][kPanelRows];  // scales, then minima
  uint8_t bytes[8][kGroupBytes];
};

template <uint32_t halves, bool has_min, int bias, int most>
struct UnpackedFormat {
  using Panel = UnpackedPanel<halves, has_min>;
  static constexpr int kBias = bias;
  static constexpr int kMost = most;
  struct Header {};
  FORGE_INLINE Header header(const Panel&) { return {}; }
  FORGE_INLINE void prefetch(const Panel&, uint32_t) {}
  FORGE_INLINE Group scale(const Panel& panel, const Header&, uint32_t, uint32_t half) {
    return load_floats(panel.factors[half]);
  }
  FORGE_INLINE Group minimum(const Panel& panel, const Header&, uint32_t, uint32_t half) {
    return load_floats(panel.factors[halves + half]);
  }
  template <int g>
  FORGE_INLINE ByteGroup group(const Panel& panel, uint32_t) {
    return load_group(panel.bytes[g]);
  }
};

// The unpacked form of a Format.
template <class Format>
using Unpacked = UnpackedFormat<Format::Panel::kHalves, Format::Panel::kHasMin, Format::kBias,
                                Format::kMost>;

}  // namespace forge::cpu::FORGE_TARGET

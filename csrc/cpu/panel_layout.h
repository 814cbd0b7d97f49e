#pragma once

// The layout of weights for products on the CPU. 16 rows form a panel, stored column by column with
// the rows of a column adjacent: a vector register holds as many rows as it has lanes, every load
// fills one, and a product needs no sum over lanes. Code of every target includes this header, so
// it holds plain data only.
//
// Quantised weights are divided into blocks of 32 columns, and a block into groups of 4. The bytes
// of a group, [row][4], are the operand of an int8 dot product of four columns. Fields of fewer
// bits share bytes with those of other groups. Floats are stored as [column][row], FP8 in blocks of
// 32 columns with their scales.

#include <cstdint>

#include "../common/quant/block.h"
#include "../common/quant/weight_type.h"

namespace forge::cpu {

constexpr uint32_t kPanelRows = 16;
constexpr uint32_t kBlockCols = 32;
constexpr uint32_t kGroupBytes = 4 * kPanelRows;

// 32 columns of a row of activations as signed bytes: x = scale q. The sums are over all q, the
// first 16 and the last 16; -8 times a sum corrects fields of Q4_0 for their bias. The scale of a
// block with a NaN or an infinity is NaN.
struct alignas(64) ActivationBlock {
  int8_t q[kBlockCols];
  float scale;
  int32_t minus_8_sums[3];
  float scaled_sum[3];  // scale times the sum
};
static_assert(sizeof(ActivationBlock) == 64);

// ---- the fields of a block: 16 rows by 8 groups ---------------------------------------------

struct Fields8 {
  uint8_t bytes[8][kGroupBytes];
};

// Groups i and i + 4 share bytes: bits 0..3 and 4..7.
struct Fields4 {
  uint8_t low[4][kGroupBytes];
};

// The fifth bit of group g is bit g.
struct Fields5 {
  uint8_t low[4][kGroupBytes];
  uint8_t high[kGroupBytes];
};

// The upper two bits of group g are bits 2 (g % 4) and the next of vector g / 4.
struct Fields6 {
  uint8_t low[4][kGroupBytes];
  uint8_t high[2][kGroupBytes];
};

// Like the upper bits of Fields6.
struct Fields2 {
  uint8_t low[2][kGroupBytes];
};

// The third bit of group g is bit g.
struct Fields3 {
  uint8_t low[2][kGroupBytes];
  uint8_t high[kGroupBytes];
};

// ---- the elements of panels -----------------------------------------------------------------

// weight = d (q - bias), or d level[q]; 32 columns.
template <class FieldsType>
struct ScaledPanel {
  using Fields = FieldsType;
  static constexpr uint32_t kBlocks = 1;
  static constexpr uint32_t kHalves = 1;  // scales a block
  static constexpr bool kHasMin = false;
  PackedU16 d[kPanelRows];  // f16, of MXFP4 bfloat16
  Fields fields;
};

// weight = d q + m; 32 columns.
template <class FieldsType>
struct ShiftedPanel {
  using Fields = FieldsType;
  static constexpr uint32_t kBlocks = 1;
  static constexpr uint32_t kHalves = 1;
  static constexpr bool kHasMin = true;
  PackedU16 d[kPanelRows];
  PackedU16 m[kPanelRows];
  Fields fields;
};

// weight = d scale (q - bias), or d scale level[q]; 256 columns.
template <class FieldsType, uint32_t halves>
struct ScaledSuperPanel {
  using Fields = FieldsType;
  static constexpr uint32_t kBlocks = 8;
  static constexpr uint32_t kHalves = halves;
  static constexpr bool kHasMin = false;
  struct Block {
    int8_t scale[halves][kPanelRows];
    Fields fields;
  };
  PackedU16 d[kPanelRows];
  Block blocks[kBlocks];
};

// weight = d scale q - dmin min; 256 columns.
template <class FieldsType, uint32_t halves>
struct ShiftedSuperPanel {
  using Fields = FieldsType;
  static constexpr uint32_t kBlocks = 8;
  static constexpr uint32_t kHalves = halves;
  static constexpr bool kHasMin = true;
  struct Block {
    int8_t scale[halves][kPanelRows];
    int8_t min[halves][kPanelRows];
    Fields fields;
  };
  PackedU16 d[kPanelRows];
  PackedU16 dmin[kPanelRows];
  Block blocks[kBlocks];
};

// weight = 2^-8 d e4m3(q), 32 columns; the factor is that of load_e4m3 (simd.h). Multiplied as
// floats.
struct FP8Panel {
  float d[kPanelRows];
  uint8_t q[kBlockCols][kPanelRows];
};

// weight = d e4m3(scale) level[q]; 64 columns. The factors of e4m3 (see FP8Panel) and of the
// levels, which are doubled, are in d.
struct FP4Panel {
  using Fields = Fields4;
  static constexpr uint32_t kBlocks = 2;
  static constexpr uint32_t kHalves = 2;
  static constexpr bool kHasMin = false;
  struct Block {
    uint8_t scale[2][kPanelRows];
    Fields fields;
  };
  float d[kPanelRows];
  Block blocks[kBlocks];
};

// The panel of each quantised type that is multiplied with activations as signed bytes.
template <WeightType type>
struct PanelType;

#define FORGE_PANEL(name, ...)            \
  template <>                             \
  struct PanelType<WeightType::name> {    \
    using Type = __VA_ARGS__;             \
  };
FORGE_PANEL(Q4_0, ScaledPanel<Fields4>)
FORGE_PANEL(Q4_1, ShiftedPanel<Fields4>)
FORGE_PANEL(Q5_0, ScaledPanel<Fields5>)
FORGE_PANEL(Q5_1, ShiftedPanel<Fields5>)
FORGE_PANEL(Q8_0, ScaledPanel<Fields8>)
FORGE_PANEL(IQ4_NL, ScaledPanel<Fields4>)
FORGE_PANEL(MXFP4, ScaledPanel<Fields4>)
FORGE_PANEL(FP4, FP4Panel)
FORGE_PANEL(Q2_K, ShiftedSuperPanel<Fields2, 2>)
FORGE_PANEL(Q3_K, ScaledSuperPanel<Fields3, 2>)
FORGE_PANEL(Q4_K, ShiftedSuperPanel<Fields4, 1>)
FORGE_PANEL(Q5_K, ShiftedSuperPanel<Fields5, 1>)
FORGE_PANEL(Q6_K, ScaledSuperPanel<Fields6, 2>)
FORGE_PANEL(IQ4_XS, ScaledSuperPanel<Fields4, 1>)
#undef FORGE_PANEL

template <WeightType type>
using PanelOf = typename PanelType<type>::Type;

// Calls visit.template operator()<type>() if the quantised type `type` has panels; returns true if
// so.
template <class Visit>
constexpr bool visit_panel_type(WeightType type, Visit&& visit) {
  switch (type) {
#define FORGE_VISIT(name) \
  case WeightType::name: visit.template operator()<WeightType::name>(); return true;
    FORGE_VISIT(Q4_0)
    FORGE_VISIT(Q4_1)
    FORGE_VISIT(Q5_0)
    FORGE_VISIT(Q5_1)
    FORGE_VISIT(Q8_0)
    FORGE_VISIT(IQ4_NL)
    FORGE_VISIT(MXFP4)
    FORGE_VISIT(FP4)
    FORGE_VISIT(Q2_K)
    FORGE_VISIT(Q3_K)
    FORGE_VISIT(Q4_K)
    FORGE_VISIT(Q5_K)
    FORGE_VISIT(Q6_K)
    FORGE_VISIT(IQ4_XS)
#undef FORGE_VISIT
    default: return false;
  }
}

}  // namespace forge::cpu

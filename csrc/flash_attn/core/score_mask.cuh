// Masks given by the caller: numbers that are added to scores, or keys that are hidden. They narrow
// what a query sees within its window. Kernels without a mask have no code for one.
//
// The two keys of a lane in a tile of columns are adjacent, so the four lanes of a row read 16
// adjacent bytes of 16-bit numbers, or 32 of F32.
#pragma once

#include "core/softmax.cuh"
#include "flash_attn.h"

namespace flash_attn {

// The rows of the mask of a sequence.
class MaskRows {
 public:
  // `pitch` is the factor of strides that mask_pitch loads.
  FA_DEVICE MaskRows(const MaskArgs &mask, int pitch, const QueryArgs &query,
                     const Sequence &sequence)
      : mask_(mask), pitch_(pitch) {
    const bool packed = query.cu_seqlens != nullptr;
    // Computed for every tile, so that it takes no registers between the tiles.
    start_ = forget(packed ? sequence.q_begin : sequence.index) *
             (packed ? mask.row_stride : mask.batch_stride);
  }

  // Elements before the row of a query and head; of bits, words.
  FA_DEVICE int64_t offset(int query, int head) const {
    return (start_ + static_cast<int64_t>(query) * mask_.row_stride +
            static_cast<int64_t>(head) * mask_.head_stride) *
           pitch_;
  }

 private:
  const MaskArgs &mask_;
  int64_t start_;
  int pitch_;
};

// Loads the factor of a mask's strides.
template <class Args>
FA_DEVICE int mask_pitch(const Args &) {
  return 1;
}
template <class Args>
FA_DEVICE int mask_pitch(const Masked<Args> &args) {
  return load_entry(args.mask.pitch, 0, 1);
}

// A score with an entry of a mask; `factor` turns a number into the unit of scores. Numbers below
// the least entry hide the key, since their product with the factor may overflow.
FA_DEVICE float masked_score(float score, float entry, float factor) {
  constexpr float kLeastEntry = -1e30f;
  return entry >= kLeastEntry ? fmaf(entry, factor, score) : kMinusInfinity;
}
FA_DEVICE float masked_score(float score, uint8_t entry, float) {
  return entry != 0 ? score : kMinusInfinity;
}
template <class T>
FA_DEVICE float masked_score(float score, T entry, float factor) {
  return masked_score(score, number_of(entry), factor);
}

// Applies elements of a mask to the scores of one row of a thread. `row` is the element of its
// first column; columns past `last` are hidden already. All loads are in flight at once.
template <class Element, int kColumnTiles>
FA_DEVICE void mask_row(float (&scores)[kColumnTiles][4], int h, const MaskArgs &mask,
                        const Element *row, int last) {
#pragma unroll
  for (int n = 0; n < kColumnTiles; n++) {
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const int column = 8 * n + e < last ? 8 * n + e : last;
      const Element entry = row[static_cast<int64_t>(column) * mask.key_stride];
      scores[n][2 * h + e] = masked_score(scores[n][2 * h + e], entry, mask.factor);
    }
  }
}

// As mask_row, by bits: bit i % 32 of word i / 32 shows key i. A word covers up to four
// tiles of columns, and first_key is a multiple of the keys that are taken from a word.
template <int kColumnTiles>
FA_DEVICE void mask_row_by_bits(float (&scores)[kColumnTiles][4], int h, const uint32_t *row,
                                int first_key, int own, int last_key) {
  constexpr int kTiles = kColumnTiles < 4 ? kColumnTiles : 4, kKeys = 8 * kTiles;
  static_assert(kColumnTiles % kTiles == 0);
#pragma unroll
  for (int word = 0; word < kColumnTiles / kTiles; word++) {
    const int key = first_key + kKeys * word;
    const uint32_t bits = row[(key < last_key ? key : last_key) / 32] >> (key % 32 + own);
#pragma unroll
    for (int n = 0; n < kTiles; n++) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        float &score = scores[kTiles * word + n][2 * h + e];
        score = (bits >> (8 * n + e) & 1) != 0 ? score : kMinusInfinity;
      }
    }
  }
}

// Applies a mask to scores, after the window. `offset_of(row)` is the mask's offset of one of the
// warp's rows; the columns of scores are keys from first_key on. T is the type of 16-bit masks.
template <class T, int kRowTiles, int kColumnTiles, class OffsetOf>
FA_DEVICE void apply_mask(Accumulators<kRowTiles, kColumnTiles> &scores, const MaskArgs &mask,
                          int n_keys, OffsetOf offset_of, int first_key) {
  const int lane = forget(thread_index() % 32), own = 2 * (lane % 4), key = first_key + own;
  const auto for_rows = [&](auto apply) {
#pragma unroll
    for (int t = 0; t < kRowTiles; t++) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        apply(scores[t], h, offset_of(16 * t + 8 * h + lane / 4));
      }
    }
  };
  const auto by_elements = [&](const auto *data) {
    for_rows([&](float(&row)[kColumnTiles][4], int h, int64_t offset) {
      const auto *const from = data + offset + static_cast<int64_t>(key) * mask.key_stride;
      mask_row(row, h, mask, from, n_keys - 1 - key);
    });
  };
  switch (mask.type) {
    case FLASH_ATTN_MASK_F32:
      return by_elements(static_cast<const float *>(mask.data));
    case FLASH_ATTN_MASK_AS_DTYPE:
      return by_elements(static_cast<const T *>(mask.data));
    case FLASH_ATTN_MASK_BYTES:
      return by_elements(static_cast<const uint8_t *>(mask.data));
    default:
      for_rows([&](float(&row)[kColumnTiles][4], int h, int64_t offset) {
        const auto *const words = static_cast<const uint32_t *>(mask.data) + offset;
        mask_row_by_bits(row, h, words, first_key, own, n_keys - 1);
      });
  }
}

}  // namespace flash_attn
